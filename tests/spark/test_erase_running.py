"""Erasures in a running broker whose cleaner's process evaluates SQL, and rewrites what is much."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.cleanup.erasure import running_backend
from cordwood.cleanup.erasure.criteria import Criteria
from cordwood.node.node import spark_engine
from cordwood.testing.broker import RunningBroker
from support.erasing import KEY, VALUE, kept_records, sweep
from support.erasing_online import request_of

pytestmark = pytest.mark.spark
WAIT_S = 120


def fill(broker: RunningBroker) -> None:
    """300 records, every third of which is to be erased."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(300):
        key = KEY if number % 3 == 0 else b"other"
        producer.produce("t", VALUE if key == KEY else b"%d" % number, key)
    assert producer.flush(30) == 0


def test_what_an_expression_finds_is_erased_and_a_wrong_one_changes_nothing(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    with RunningBroker(log_dir=log_dir, engine=spark_engine) as broker:
        fill(broker)
        before = kept_records(log_dir / "t-0")
        wrong = request_of("t", criteria=Criteria(where="offset + 1"))
        operation = broker.node.erasures.start(wrong)
        assert operation.over.wait(WAIT_S)
        assert (operation.state, operation.is_usage) == ("failed", True)
        assert "--where 'offset + 1'" in operation.error
        right = request_of("t", criteria=Criteria(where=f"key_text = '{KEY.decode()}'"))
        operation = broker.node.erasures.start(right)
        assert operation.over.wait(WAIT_S)
        assert operation.report is not None, operation.error
        assert operation.report.partitions[0].erased == 100
        assert sweep(log_dir / "t-0", KEY, VALUE) == []  # the ledger has the expression
        assert kept_records(log_dir / "t-0") == before


def test_what_is_much_is_rewritten_by_the_cleaners_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    monkeypatch.setattr(running_backend, "_ENGINE_BYTES_MIN", 1)
    with RunningBroker(log_dir=log_dir, engine=spark_engine) as broker:
        fill(broker)
        before = kept_records(log_dir / "t-0")
        operation = broker.node.erasures.start(request_of("t"))
        phases = set()
        while not operation.over.wait(0.01):
            phases.add(operation.phase)
        assert operation.report is not None, operation.error
        assert "rewriting with Spark" in phases
        assert operation.report.partitions[0].erased == 100
        assert sweep(log_dir, KEY, VALUE) == []
        assert kept_records(log_dir / "t-0") == before
