"""Plans of a job for log directories of nodes: topics to append to, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cordwood.format.file_names import BOOTSTRAP_CHECKPOINT, CLEAN_SHUTDOWN, CLUSTER_METADATA_DIR
from cordwood.format.metadata_records import encode_metadata_record
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.errors import TopicWriteError, UnsupportedVersionError
from cordwood.model.uuids import parse_uuid
from support.log_builder import TOPIC_ID, LogBuilder, write_log_dir
from support.written_topics import planned, records_in, rows, write

OTHER = parse_uuid("m8yCKPtj-67ToAczzdCnyQ")


def partition(number: int, *replicas: int, epoch: int = 0) -> tuple[str, int, dict[str, Any]]:
    """The record of a partition of the topic orders."""
    fields = {
        "partitionId": number,
        "topicId": TOPIC_ID,
        "replicas": list(replicas),
        "isr": list(replicas),
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": replicas[0],
        "leaderEpoch": epoch,
        "partitionEpoch": 0,
        "leaderRecoveryState": 0,
        "directories": [OTHER for _ in replicas],
    }
    return "PartitionRecord", 1, fields


def node(
    root: Path,
    *partitions: tuple[str, int, dict[str, Any]],
    topic_id: UUID = TOPIC_ID,
    directories: int = 1,
    level: int = 20,
    clean: bool = True,
) -> Path:
    """The directory of a stopped node whose metadata log has the topic orders."""
    logs = [LogBuilder(f"orders-{number}") for number in range(directories)]
    write_log_dir(root, logs, clean_shutdown=clean)
    records: list[tuple[str, int, dict[str, Any]]] = [
        ("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": level})
    ]
    if partitions:
        records.append(("TopicRecord", 0, {"name": "orders", "topicId": topic_id}))
    records += partitions
    encoded = [
        Record(number, 0, None, encode_metadata_record(*each))
        for number, each in enumerate(records)
    ]
    directory = root / CLUSTER_METADATA_DIR
    directory.mkdir()
    data = build_batch(encoded, base_offset=0, partition_leader_epoch=1)
    (directory / f"{0:020d}.log").write_bytes(data)
    return root


def test_a_topic_of_the_metadata_log_is_appended_to_in_its_epoch(tmp_path: Path) -> None:
    node(tmp_path, partition(0, 1, epoch=6), partition(1, 1), directories=2)
    for number in (0, 1):
        (tmp_path / f"orders-{number}" / "leader-epoch-checkpoint").unlink()
    write(tmp_path, [rows([(b"a", b"v"), (b"b", b"v"), (b"c", b"v"), (b"d", b"v")])])
    assert {each.leader_epoch for each in records_in(tmp_path / "orders-0")} == {6}
    assert {each.leader_epoch for each in records_in(tmp_path / "orders-1")} == {0}
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_topic_with_replicas_elsewhere_is_refused(tmp_path: Path) -> None:
    node(tmp_path, partition(0, 1, 2))
    with pytest.raises(TopicWriteError, match="orders-0 has replicas on brokers 1, 2"):
        planned(tmp_path)


def test_a_partition_that_is_in_another_directory_is_missed(tmp_path: Path) -> None:
    node(tmp_path, partition(0, 1), partition(1, 1))
    with pytest.raises(TopicWriteError, match="has no directory of orders-1"):
        planned(tmp_path)


def test_a_broker_that_did_not_stop_cleanly_is_to_be_started_first(tmp_path: Path) -> None:
    node(tmp_path, partition(0, 1), clean=False)
    with pytest.raises(TopicWriteError, match="has not stopped cleanly"):
        planned(tmp_path)


def test_directories_of_a_topic_that_the_cluster_does_not_have_are_refused(tmp_path: Path) -> None:
    node(tmp_path)
    with pytest.raises(TopicWriteError, match="which is not in the metadata log"):
        planned(tmp_path)


def test_a_cluster_of_a_later_kafka_is_refused(tmp_path: Path) -> None:
    node(tmp_path, partition(0, 1), level=99)
    with pytest.raises(UnsupportedVersionError, match="newer Kafka"):
        planned(tmp_path)


def test_no_topic_is_made_where_other_nodes_decide(tmp_path: Path) -> None:
    node(tmp_path, partition(0, 1))
    with pytest.raises(TopicWriteError, match="both a broker and the only controller"):
        planned(tmp_path, "fresh")


def test_more_partitions_than_a_batch_of_records_has_are_refused(tmp_path: Path) -> None:
    write_log_dir(tmp_path, [])
    (tmp_path / BOOTSTRAP_CHECKPOINT).touch()
    with pytest.raises(TopicWriteError, match="10001 partitions cannot be made at once"):
        planned(tmp_path, partitions="10001")
    assert planned(tmp_path, partitions="9000").attempts.partitions == 9000


def test_settings_of_the_options_come_before_those_of_the_topic(tmp_path: Path) -> None:
    plan = planned(tmp_path, compression_type="zstd", max_message_bytes="10000")
    assert plan.attempts.config.compression_type == "zstd"
    assert plan.attempts.batch_bytes < 10_000
