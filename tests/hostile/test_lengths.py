"""Every string, array and bytes of every API at 32,766 to 70,000 bytes, and a start after each.

A broker that has answered a request must start again on what it wrote, and so must a Kafka.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cordwood.broker.handlers import served_apis
from cordwood.testing.broker import RunningBroker
from support.kafka import RealKafka, poll_until
from support.length_fuzz import (
    LENGTHS,
    LengthCase,
    client_id_cases,
    length_cases,
    send,
    written,
)
from support.no_engine import NoEngine
from support.wire import Wire

_STRING_BYTES_MAX = 32_767
_PROPERTIES = {"offsets.topic.num.partitions": "2"}


def cases_of_last_versions() -> Iterator[LengthCase]:
    """Strings as long as may be and a byte longer, and all else at 70,000 bytes."""
    for key, api in sorted(served_apis().items()):
        for case in length_cases(key, api.max_version, (32_767, 32_768, 70_000)):
            if case.is_text == (case.length < 70_000):
                yield case
    yield from client_id_cases(11, 9)


def cases_of_all_versions() -> Iterator[LengthCase]:
    for key, api in sorted(served_apis().items()):
        for version in range(api.min_version, api.max_version + 1):
            yield from length_cases(key, version, LENGTHS)
            yield from client_id_cases(key, version)


def prepare(broker: RunningBroker) -> None:
    """Makes the topics that the requests name, and waits for the coordinator of the groups."""
    with Wire(broker.port) as wire:
        topics = [
            {"name": name, "num_partitions": count, "replication_factor": 1}
            for name, count in (("t", 1), ("__consumer_offsets", 2))
        ]
        wire.ask("create_topics", 5, {"topics": topics, "timeout_ms": 10_000})


def run(log_dir: Path, cases: Iterable[LengthCase]) -> Counter[str]:
    """Sends them all, and starts the broker again whenever one has changed what a start reads."""
    outcomes: Counter[str] = Counter()
    broker = RunningBroker(_PROPERTIES, log_dir=log_dir, engine=NoEngine).start()
    try:
        prepare(broker)
        before = written(log_dir)
        for case in cases:
            outcome = send(broker.port, case.frame)
            outcomes[outcome] += 1
            if case.is_text and case.length > _STRING_BYTES_MAX:
                assert outcome == "closed", case.name
            if written(log_dir) != before:
                broker.stop()
                broker = RunningBroker(_PROPERTIES, log_dir=log_dir, engine=NoEngine).start()
                prepare(broker)  # a request may have deleted a topic
                outcomes["restarted"] += 1
                before = written(log_dir)
    finally:
        broker.stop()
    return outcomes


def kafka_starts(log_dir: Path, root: Path) -> None:
    """A real Kafka goes on from the directory, with all its topics led."""
    kafka = RealKafka(root, log_dirs=[log_dir], properties=_PROPERTIES)
    with kafka:
        admin = kafka.start()
        assert "t" in admin.list_topics(timeout=30).topics
        with Wire(kafka.port) as wire:
            poll_until(lambda: loaded(wire), timeout_s=180, what="the groups")
        errors = kafka.errors_since_start
        kafka.stop()
    assert not errors


def loaded(wire: Wire) -> bool:
    """Whether the groups of both partitions have been read."""
    answers = [
        wire.ask("offset_fetch", 7, {"group_id": group, "topics": []}) for group in ("a", "b")
    ]
    return all(answer["error_code"] == "none" for answer in answers)


@pytest.mark.kafka
def test_a_broker_and_a_kafka_start_after_requests_with_fields_of_all_lengths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        outcomes = run(tmp_path / "data", cases_of_last_versions())
    assert outcomes["answered"] > 150
    assert outcomes["closed"] > 100
    assert outcomes["restarted"] > 3
    assert not [each for each in caplog.records if each.exc_info], caplog.text[-3000:]
    kafka_starts(tmp_path / "data", tmp_path / "kafka")


@pytest.mark.kafka
@pytest.mark.nightly
def test_a_broker_and_a_kafka_start_after_all_versions_with_fields_of_all_lengths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        outcomes = run(tmp_path / "data", cases_of_all_versions())
    assert outcomes["restarted"] > 30
    assert not [each for each in caplog.records if each.exc_info], caplog.text[-3000:]
    kafka_starts(tmp_path / "data", tmp_path / "kafka")
