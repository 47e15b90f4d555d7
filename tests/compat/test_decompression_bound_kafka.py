"""max.decompressed.message.bytes: what a Kafka 4.4 refuses, Cordwood refuses with the same answer.

What a Kafka's cleaner sets aside, a cleaning here does, too, and both clean the log beside it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.file_names import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from cordwood.format.offset_checkpoint import build_offset_checkpoint
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.clock import SystemClock
from cordwood.model.topic_partition import TopicPartition
from cordwood.testing.broker import RunningBroker
from support.in_process_engine import clean_in_process
from support.kafka import RealKafka, poll_until
from support.kafka_programs import KAFKA_4_4
from support.log_builder import write_log_dir
from support.no_engine import NoEngine
from support.wire import Wire

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

BOUND, DIRTY_RATIO = "max.decompressed.message.bytes", "min.cleanable.dirty.ratio"
COMPRESSED = [codec for codec in Codec if codec]
LIMIT = 2000
#: Sizes of the values of a batch; records around the bound by a byte are among them.
BATCHES: Mapping[str, tuple[int, ...]] = {
    "small": (10, 10),
    "at the bound": (LIMIT - 8,),
    "over by one": (LIMIT - 7,),
    "the second": (10, 5_000, 10),
    "many within": (1_900,) * 20,
    "far over": (3_000_000,),
}
PROPERTIES = {
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
    "log.retention.ms": "-1",
}
_TIMES = (0, 1_001, 1_002, 1_003, 1_004, -1, -2, -3)


def batch(codec: Codec, sizes: tuple[int, ...], *, timestamp: int = 1_000) -> bytes:
    """Records of so many zeros, a millisecond apart."""
    records = [Record(i, timestamp + i, b"k", bytes(size)) for i, size in enumerate(sizes)]
    return build_batch(records, base_offset=0, codec=codec)


class Asked:
    """A broker, asked message by message."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def create(self, name: str, settings: Mapping[str, str]) -> None:
        configs = [{"name": key, "value": value} for key, value in settings.items()]
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
        answer = self._wire.ask("create_topics", 5, {"topics": [topic], "timeout_ms": 60_000})
        assert answer["topics"][0]["error_code"] == "none", answer
        poll_until(lambda: self.times(name, (-2,)) == [("none", -1, 0)], timeout_s=60, what=name)

    def produce(self, name: str, records: bytes) -> dict[str, Any]:
        """The answer for the partition, without what differs from broker to broker."""
        data = {"name": name, "partition_data": [{"index": 0, "records": records}]}
        fields = {"acks": -1, "timeout_ms": 60_000, "topic_data": [data]}
        answer = self._wire.ask("produce", 9, fields)
        (partition,) = answer["responses"][0]["partition_responses"]
        return {
            key: partition[key]
            for key in ("error_code", "base_offset", "record_errors", "error_message")
        }

    def times(self, name: str, timestamps: tuple[int, ...] = _TIMES) -> list[tuple[str, int, int]]:
        """The answers of ListOffsets: error, timestamp and offset."""
        found = []
        for timestamp in timestamps:
            asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
            fields = {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": name, "partitions": [asked]}],
            }
            answer = self._wire.ask("list_offsets", 7, fields)
            (partition,) = answer["topics"][0]["partitions"]
            found.append((partition["error_code"], partition["timestamp"], partition["offset"]))
        return found

    def wait_for(self, name: str, timestamp: int, error: str) -> None:
        """Waits until a lookup by time has that error."""
        poll_until(lambda: self.times(name, (timestamp,))[0][0] == error, timeout_s=60, what=error)

    def wait_for_broker(self, value: str) -> None:
        """Waits until the bound of the broker is that."""
        poll_until(lambda: self.described(4, "1")[0]["value"] == value, timeout_s=60, what=value)

    def alter(self, kind: int, name: str, settings: Mapping[str, str]) -> str:
        """Sets settings of a topic (2) or a broker (4); the error, or "none", and its message."""
        configs = [
            {"name": key, "config_operation": 0, "value": value} for key, value in settings.items()
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        answer = self._wire.ask("incremental_alter_configs", 1, {"resources": [resource]})
        found = answer["responses"][0]
        return f"{found['error_code']}: {found['error_message']}"

    def described(self, kind: int, name: str) -> list[dict[str, Any]]:
        """The setting as DescribeConfigs has it, but for the words about it."""
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [BOUND]}
        fields = {"resources": [resource], "include_synonyms": True}
        configs = self._wire.ask("describe_configs", 4, fields)["results"][0]["configs"]
        return [{**each, "documentation": None} for each in configs]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    root = tmp_path_factory.mktemp("kafka")
    with RealKafka(root, version=KAFKA_4_4, properties=PROPERTIES) as running:
        running.start_cleaning()
        yield running


@pytest.fixture(scope="module")
def sides(
    kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Asked, Asked]]:
    """The same questions to a Kafka and to a broker of Cordwood."""
    log_dir = tmp_path_factory.mktemp("cordwood") / "data"
    with (
        RunningBroker(PROPERTIES, log_dir=log_dir, engine=NoEngine) as broker,
        Wire(kafka.port) as theirs,
        Wire(broker.port) as ours,
    ):
        yield Asked(theirs), Asked(ours)


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.config_name)
@pytest.mark.parametrize("target", ["producer", "zstd", "uncompressed"])
def test_a_produce_over_the_bound_is_answered_alike(
    sides: tuple[Asked, Asked], codec: Codec, target: str
) -> None:
    name = f"{codec.config_name}-{target}"
    answers = []
    for side in sides:
        settings = {BOUND: str(LIMIT), "compression.type": target, "max.message.bytes": "8000000"}
        side.create(name, settings)
        answers.append(
            {what: side.produce(name, batch(codec, sizes)) for what, sizes in BATCHES.items()}
        )
    theirs, ours = answers
    assert ours == theirs
    errors = {what: each["error_code"] for what, each in theirs.items()}
    refused = {"over by one", "the second", "far over"} if codec else set()
    assert {what for what, error in errors.items() if error == "invalid_record"} == refused
    assert {error for what, error in errors.items() if what not in refused} == {"none"}


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.config_name)
def test_lookups_by_time_are_answered_alike(sides: tuple[Asked, Asked], codec: Codec) -> None:
    name = f"times-{codec.config_name}"
    answers = []
    for side in sides:
        side.create(name, {})
        assert side.produce(name, batch(codec, (10, 10, 5_000, 10)))["error_code"] == "none"
        before = side.times(name)
        assert side.alter(2, name, {BOUND: str(LIMIT)}) == "none: None"
        side.wait_for(name, 1_002, "none" if codec is Codec.NONE else "invalid_record")
        after = side.times(name)
        assert side.alter(2, name, {BOUND: "6000"}) == "none: None"
        side.wait_for(name, 1_002, "none")
        assert side.times(name) == before
        answers.append((before, after))
    assert answers[1] == answers[0]


def test_the_setting_is_described_and_altered_alike(sides: tuple[Asked, Asked]) -> None:
    values = ("0", "1", "2147483639", "2147483640", "-1", "x", "5")
    answers = []
    for side in sides:
        side.create("setting", {})
        said: list[object] = [side.described(2, "setting"), side.described(4, "1")]
        said += [side.alter(2, "setting", {BOUND: value}) for value in values]
        said += [side.alter(4, "", {BOUND: value}) for value in ("0", "777")]
        side.wait_for_broker("777")
        said += [side.described(2, "setting"), side.described(4, "1")]
        said.append(side.alter(4, "", {BOUND: "2147483639"}))
        side.wait_for_broker("2147483639")
        answers.append(said)
    assert answers[1] == answers[0]


def test_a_cleaning_sets_aside_a_log_with_a_record_over_the_bound(
    kafka: RealKafka, sides: tuple[Asked, Asked], tmp_path: Path
) -> None:
    theirs, _ = sides
    over = {f"over-{codec.config_name}": codec for codec in COMPRESSED}
    names = {**over, "within": Codec.ZSTD}
    for name, codec in names.items():
        # With a ratio of 1 nothing is cleaned.
        settings = {"cleanup.policy": "compact", "segment.ms": "1000", DIRTY_RATIO: "1"}
        theirs.create(name, settings)
        for sizes in ((10,), (5_000 if name in over else 500,), (20,)):
            assert theirs.produce(name, batch(codec, sizes))["error_code"] == "none"
        theirs.produce(name, batch(codec, (10,), timestamp=10_000))
    (data,) = kafka.log_dirs
    before = {name: segment_in(data, name).read_bytes() for name in names}
    copies = write_log_dir(tmp_path / "copies", [], clean_shutdown=False)
    for name in names:
        shutil.copytree(data / f"{name}-0", copies / f"{name}-0")
        assert theirs.alter(2, name, {BOUND: str(LIMIT), DIRTY_RATIO: "0"}) == "none: None"
    committed = {TopicPartition(name, 0): 4 for name in names}
    for each in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        (copies / each).write_bytes(build_offset_checkpoint(committed))
    for name in over:
        _wait_for_log(kafka, f"Marking its partition ({name}-0) as uncleanable")
    assert f"exceeds the configured maximum record size of {LIMIT}" in kafka.server_log
    lines = partial(kafka.checkpoint, "cleaner-offset-checkpoint")
    poll_until(lambda: "within-0" in lines(), timeout_s=60, what="the other log is cleaned")
    assert not any(lines().get(f"{name}-0") for name in over)
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.0,
        max_decompressed_message_bytes=LIMIT,
    )
    configs = dict.fromkeys(names, config)
    report = clean_in_process(copies, configs, now_ms=SystemClock().now_ms())
    failed = {each.topic: each.reason for each in report.partitions if each.status == "failed"}
    assert failed.keys() == over.keys()
    for name, reason in failed.items():
        assert f"{segment_in(copies, name)}: " in reason
        assert f"exceeds the configured maximum record size of {LIMIT}" in reason
    for directory in (data, copies):
        left = {name: segment_in(directory, name).read_bytes() for name in names}
        changed = {name for name in names if left[name] != before[name]}
        assert changed == {"within"}
    assert segment_in(copies, "within").read_bytes() == segment_in(data, "within").read_bytes()


def segment_in(log_dir: Path, topic: str) -> Path:
    """The first segment of a topic's partition."""
    return log_dir / f"{topic}-0" / f"{0:020d}.log"


def _wait_for_log(kafka: RealKafka, text: str) -> None:
    poll_until(lambda: text in kafka.server_log, timeout_s=60, what=text)
