"""Random requests, as raw messages, answered by a real Kafka and by Cordwood."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from cordwood.testing.broker import RunningBroker
from support.differential import Broker, Step, Transcript, record, replay, report
from support.differential_requests import RandomScript
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_3, KAFKA_VERSIONS
from support.side_by_side import same_properties

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")]

SHORT, LONG = 400, 1300
RELEASE = "4.3"
#: Settings that Kafka 4.3 does not have.
NEWER = frozenset(
    {
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.copy.record.enable",
        "errors.deadletterqueue.group.enable",
        "errors.deadletterqueue.topic.name",
        "errors.deadletterqueue.topic.name.prefix",
        "group.streams.assignors",
        "group.streams.rack.aware.assignment.tags",
        "group.streams.topology.description.plugin.class",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "streams.assignor.name",
        "streams.rack.aware.assignment.tags",
    }
)
#: What Kafka 4.3 and 4.4 say in other words of the same error: a group's setting out of the range
#: that the broker allows, and a level that the controller does not know.
REWORDED = (
    (
        re.compile(
            r"(\S+) must be (?:(?:less|greater) than or equal to group\.\S+"
            r"|in the range \d+ to \d+ inclusive\.)"
        ),
        r"\1 must be in the range",
    ),
    (re.compile(r"Local controller 1 only supports versions 7-(?:30|33)"), "Not supported"),
)
#: The levels of metadata.version that Kafka 4.4 has added.
NEWER_LEVELS = range(31, 34)
LISTENERS = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"


def compare(root: Path, seed: int, count: int, *, version: str) -> None:
    """One script, first answered by a Kafka of a version, then by Cordwood."""
    with RealKafka(root / "kafka", version=version, release=RELEASE) as kafka:
        kafka.start_without_cleaning()
        first = Broker(kafka.port, kafka.log_dirs[0])
        properties = {**same_properties(kafka), "listeners": LISTENERS}
        with RunningBroker(properties, log_dir=root / "cordwood") as running:
            second = Broker(running.port, root / "cordwood")
            if version == KAFKA_4_3:
                second.left_out = NEWER
                first.reworded = second.reworded = REWORDED
            both = common_versions(first, second)
            script = RandomScript(seed, count, int(time.time() * 1000), both)
            transcript: Transcript = record(first, seed, script)
            differences = [
                each
                for each in replay(second, transcript)
                if not (version == KAFKA_4_3 and raises_to_newer_level(each.step))
            ]
    print(f"seed {seed}: {len(transcript.exchanges)} requests answered by both")
    assert not differences, report(seed, differences)


def raises_to_newer_level(step: Step) -> bool:
    """Whether a request asks for a level that only Kafka 4.4 knows; none of a script changes it."""
    if step.api != "update_features":
        return False
    assert step.values["validate_only"], step
    return any(
        each["feature"] == "metadata.version" and each["max_version_level"] in NEWER_LEVELS
        for each in step.values["feature_updates"]
    )


def common_versions(first: Broker, second: Broker) -> dict[int, range]:
    """The versions that both serve, by API key; an empty range where there are none."""
    one, other = first.wire.versions(), second.wire.versions()
    return {
        key: range(max(one[key].start, other[key].start), min(one[key].stop, other[key].stop))
        for key in one
        if key in other
    }


@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_random_requests_are_answered_alike(tmp_path: Path, version: str) -> None:
    seed = int(os.environ.get("CORDWOOD_DIFFERENTIAL_SEED", "1"))
    compare(tmp_path, seed, SHORT, version=version)


@pytest.mark.nightly
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_random_requests_are_answered_alike(tmp_path: Path, seed: int, version: str) -> None:
    compare(tmp_path, seed, LONG, version=version)
