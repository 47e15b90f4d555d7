"""Settings of another version in the metadata log: a real Kafka and Cordwood with the same ones.

A Kafka of another version has set them: a newer one, or an older one, as `message.format.version`.
Both brokers find them in their metadata logs here.

Kafka 4.3 drops them as it reads them (KAFKA-19851, DefaultSupportedConfigChecker): it answers as if
they had never been set, and its next snapshot is without them. Cordwood differs: they stay in the
metadata log and in snapshots, until somebody deletes them, for the Kafka that knows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from cordwood.format.file_names import CLUSTER_METADATA_DIR
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.metadata.records import config_record
from cordwood.metadata.snapshot_file import data_batch
from support.applied import wait_until_applied
from support.config_client import Answer, Change, ConfigClient, entries
from support.kafka import poll_until
from support.kafka_programs import KAFKA_4_4
from support.two_brokers import TwoBrokers, make_topics

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

TOPIC, CLIENT_METRICS, GROUP = 2, 16, 32
DELETE = 1


class Case(NamedTuple):
    """A resource with an unknown setting, and a known one that is set."""

    kind: int
    name: str
    unknown: str
    value: str
    known: str
    text: str


CASES: Final = (
    Case(TOPIC, "t", "bytes.of.later", "1000", "retention.ms", "5000"),
    Case(TOPIC, "old", "message.format.version", "2.8-IV1", "retention.ms", "5000"),
    Case(GROUP, "g", "consumer.of.later", "7", "consumer.session.timeout.ms", "46000"),
    Case(CLIENT_METRICS, "m", "later", "x", "interval.ms", "500"),
)
REPLACED: Final = (
    CASES[0]._replace(name="replaced"),
    CASES[2]._replace(name="replaced"),
    CASES[3]._replace(name="replaced"),
)
KEPT: Final = CASES[0]._replace(name="kept")
ALL: Final = (*CASES, *REPLACED, KEPT)
#: A value of `retention.ms` that is not elsewhere.
MARK: Final = b"987654321"
NONE, INVALID_REQUEST, INVALID_CONFIG = 0, 42, 40
REFUSALS: Final = {TOPIC: INVALID_CONFIG, GROUP: INVALID_CONFIG, CLIENT_METRICS: INVALID_REQUEST}
NAMES: Final = {
    TOPIC: "topic config name",
    GROUP: "group config name",
    CLIENT_METRICS: "client metrics configuration",
}
#: Kafka writes a snapshot after each change, Cordwood now and then and at a stop.
PROPERTIES: Final = {"metadata.log.max.record.bytes.between.snapshots": "1"}


def add_settings(log_dir: Path, cases: Sequence[Case]) -> None:
    """Appends records of settings to the metadata log of a stopped node."""
    path = max((log_dir / CLUSTER_METADATA_DIR).glob("*.log"))
    _, last = list(iter_batches(path.read_bytes()))[-1]
    assert isinstance(last, RecordBatch)
    header = last.header
    records = [config_record(case.kind, case.name, case.unknown, case.value) for case in cases]
    batch = data_batch(
        [record.encode() for record in records],
        base_offset=header.last_offset + 1,
        timestamp_ms=header.max_timestamp,
        epoch=header.partition_leader_epoch,
    )
    with path.open("ab") as log:
        log.write(batch)


def is_ready(port: int) -> None:
    wait_until_applied(port)


def make(port: int) -> None:
    make_topics(port, {case.name: 1 for case in ALL if case.kind == TOPIC})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    root = tmp_path_factory.mktemp("both")
    with TwoBrokers(
        root, properties=PROPERTIES, prepare=make, is_ready=is_ready, version=KAFKA_4_4
    ) as both:
        both.stop()
        for log_dir in both.log_dirs:
            add_settings(log_dir, ALL)
        both.start()
        yield both


def describe(port: int, case: Case) -> dict[str, Answer]:
    """The settings of a resource that are not defaults, by name."""
    wait_until_applied(port)
    with ConfigClient("127.0.0.1", port) as client:
        (answer,) = client.describe((case.kind, case.name))
    return entries(answer)


def alter(port: int, case: Case, *changes: Change) -> Answer:
    """The outcome of a change."""
    with ConfigClient("127.0.0.1", port) as client:
        (outcome,) = client.alter((case.kind, case.name, changes))
    return outcome


def replace(port: int, case: Case, *settings: tuple[str, str | None]) -> Answer:
    """The outcome of an AlterConfigs, which names all that the resource is to have."""
    with ConfigClient("127.0.0.1", port) as client:
        (outcome,) = client.replace((case.kind, case.name, settings))
    return outcome


def require_as_kafka(both: TwoBrokers, case: Case, *changes: Change) -> Answer:
    """The outcome of a change, which is the same at both."""
    theirs, ours = (alter(port, case, *changes) for port in both.ports)
    assert ours == theirs
    return ours


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_other_settings_can_be_changed_and_an_unknown_one_cannot_be_set(
    both: TwoBrokers, case: Case
) -> None:
    """Kafka 4.3 forgets the setting when it reads it (SupportedConfigChecker); it is kept here."""
    kafka, cordwood = both.ports
    known, unknown = Change(case.known, case.text), Change(case.unknown, case.value)
    refusal = REFUSALS[case.kind], f"Unknown {NAMES[case.kind]}: {case.unknown}"

    theirs, ours = describe(kafka, case), describe(cordwood, case)
    assert case.unknown not in theirs
    if case.kind != CLIENT_METRICS:
        shown = ours.pop(case.unknown)
        assert (shown["value"], shown["sensitive"], shown["type"]) == (None, True, 0)
    assert ours == theirs

    assert require_as_kafka(both, case, known)["error"] == NONE
    theirs, ours = describe(kafka, case), describe(cordwood, case)
    assert ours[case.known] == theirs[case.known]
    assert ours[case.known]["value"] == case.text

    # To another value, by both requests; and to the one that it has, which here is no change.
    for changes in ([unknown._replace(value="8")], [known, unknown._replace(value="8")]):
        outcome = require_as_kafka(both, case, *changes)
        assert (outcome["error"], outcome["message"]) == refusal
    for changes in ([unknown], [known, unknown]):
        outcome = alter(kafka, case, *changes)
        assert (outcome["error"], outcome["message"]) == refusal
        assert alter(cordwood, case, *changes)["error"] == NONE

    assert require_as_kafka(both, case, Change(case.unknown, None, DELETE))["error"] == NONE
    theirs, ours = describe(kafka, case), describe(cordwood, case)
    assert ours == theirs
    assert case.unknown not in ours
    # Now it is nowhere.
    outcome = require_as_kafka(both, case, unknown)
    assert (outcome["error"], outcome["message"]) == refusal


@pytest.mark.parametrize("case", REPLACED, ids=lambda case: case.name)
def test_a_request_that_names_all_settings_takes_the_unknown_one_away(
    both: TwoBrokers, case: Case
) -> None:
    outcomes = [replace(port, case, (case.known, case.text)) for port in both.ports]
    assert outcomes[1] == outcomes[0]
    assert outcomes[0]["error"] == NONE
    theirs, ours = (describe(port, case) for port in both.ports)
    assert ours == theirs
    assert case.unknown not in ours


def test_a_snapshot_keeps_the_unknown_setting_here_and_has_lost_it_at_kafka(
    both: TwoBrokers,
) -> None:
    def newest(log_dir: Path) -> bytes:
        """The last snapshot."""
        paths = (log_dir / CLUSTER_METADATA_DIR).glob("*.checkpoint")
        return max(paths).read_bytes()

    for port in both.ports:
        assert alter(port, KEPT, Change(KEPT.known, MARK.decode()))["error"] == NONE
    kafka, cordwood = both.log_dirs
    poll_until(lambda: MARK in newest(kafka), timeout_s=120, what="a snapshot of the change")
    both.stop()  # here it has a snapshot at the latest now
    unknown = KEPT.unknown.encode()
    assert MARK in newest(cordwood)
    assert unknown in newest(cordwood)
    assert unknown not in newest(kafka)
    both.start()
    assert KEPT.unknown in describe(both.ports[1], KEPT)
