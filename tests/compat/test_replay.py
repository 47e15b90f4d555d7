"""Logs that a real Kafka wrote, appended again: every file comes out as Kafka has it.

Batches are given to a new `PartitionLog` as their producers sent them: base offset 0 and no leader
epoch, and where the broker stamped its own time, none of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cordwood.cleanup.plan.request import Resolved
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import (
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    build_header,
)
from cordwood.format.crc32c import crc32c
from cordwood.format.file_names import (
    CLUSTER_METADATA_DIR,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
)
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.manual_clock import ManualClock
from support.golden import Golden


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Result of a replay."""

    directory: Path
    batches: int
    log: PartitionLog


def batches_of(directory: Path) -> Iterator[RecordBatch]:
    """Every batch of a partition's directory, in order."""
    for path in sorted(directory.glob(f"*{LOG_SUFFIX}")):
        for _, batch in iter_batches(path.read_bytes()):
            assert isinstance(batch, RecordBatch), f"an entry of magic {batch.magic} in {path}"
            yield batch


def as_sent(batch: RecordBatch) -> bytes:
    """The batch as its producer sent it."""
    header = batch.header._replace(base_offset=0, partition_leader_epoch=-1)
    rest = bytes(memoryview(batch.raw)[HEADER_BYTES:])
    if batch.timestamp_type != LOG_APPEND_TIME:
        return build_header(header) + rest
    header = header._replace(
        attributes=header.attributes & ~TIMESTAMP_TYPE_BIT, max_timestamp=header.base_timestamp
    )
    return _with_crc(header, rest)


def _with_crc(header: BatchHeader, rest: bytes) -> bytes:
    crc = crc32c(build_header(header)[CRC_START:] + rest)
    return build_header(header._replace(crc=crc)) + rest


def replay(
    source: Path,
    target: Path,
    *,
    config: LogConfig,
    now_ms: int,
    leader_epoch: int | None = 0,
    log_start_offset: int = 0,
) -> Replayed:
    """Appends the batches of the directory `source` to a new log in `target`, and closes it.

    Args:
        source: a partition's directory, whose log begins at its first segment's base.
        target: where the new directory is made, under the same name.
        config: the topic's settings.
        now_ms: the time of the appends; that of a batch stamped LogAppendTime is the stamp.
        leader_epoch: with which the first leader began, before it wrote anything; None to append as
            a follower, which takes the leader's bytes as they are.
        log_start_offset: to which records were deleted in the end.
    """
    clock = ManualClock(now_ms)
    context = LogContext(clock=clock)
    topic_id = parse_partition_metadata((source / PARTITION_METADATA).read_bytes()).topic_id
    partition = TopicPartition.parse(source.name)
    log = load_log(
        LoadRequest(
            directory=target / source.name,
            topic_partition=partition,
            config=config,
            context=context,
            clean_shutdown=True,
            topic_id=topic_id,
        )
    )
    if leader_epoch is not None:
        log.assign_epoch(leader_epoch)
    count = 0
    for batch in batches_of(source):
        if leader_epoch is None:
            log.append_as_follower(batch.raw)
        else:
            _append_as_leader(log, batch, clock)
        log.update_high_watermark(log.log_end_offset)
        context.scheduler.run_due()
        count += 1
    if log_start_offset:
        log.delete_records(log_start_offset)
    log.close()
    return Replayed(directory=log.directory, batches=count, log=log)


def _append_as_leader(log: PartitionLog, batch: RecordBatch, clock: ManualClock) -> None:
    header = batch.header
    if header.timestamp_type == LOG_APPEND_TIME:
        clock.set(header.max_timestamp)
    if header.partition_leader_epoch != log.leader_epochs.latest_epoch:
        log.assign_epoch(header.partition_leader_epoch)
    coordinator = header.is_control or log.topic_partition.is_internal
    guard = None
    if header.is_transactional and not coordinator:
        guard = log.maybe_start_verification(
            header.producer_id, header.base_sequence, header.producer_epoch
        )
    result = log.append_as_leader(
        as_sent(batch),
        leader_epoch=header.partition_leader_epoch,
        origin=AppendOrigin.COORDINATOR if coordinator else AppendOrigin.CLIENT,
        verification_guard=guard,
    )
    assert result.first_offset == header.base_offset, (result, header)


def _partitions(before: Path) -> list[Path]:
    return [d for d in sorted(before.iterdir()) if d.is_dir() and d.name != CLUSTER_METADATA_DIR]


@pytest.fixture(scope="module")
def resolve(golden_a: Golden) -> Callable[[str], Resolved | None]:
    return read_settings(SettingOptions(log_dirs=[golden_a.root / "before"])).resolve


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_replayed_batches_give_every_file_of_kafkas_byte_for_byte(
    golden_a: Golden, tmp_path: Path, resolve: Callable[[str], Resolved | None]
) -> None:
    before = golden_a.root / "before"
    starts = parse_offset_checkpoint((before / LOG_START_OFFSET_CHECKPOINT).read_bytes())
    compared: dict[str, int] = {}
    differing = []
    for source in _partitions(before):
        partition = TopicPartition.parse(source.name)
        found = resolve(partition.topic)
        assert found is not None, partition
        replayed = replay(
            source,
            tmp_path,
            config=found.config,
            now_ms=golden_a.made_at_ms,
            log_start_offset=starts.get(partition, 0),
        )
        ours, kafkas = _files(replayed.directory), _files(source)
        differing += [
            f"{source.name}/{name}"
            for name in sorted(ours.keys() | kafkas.keys())
            if ours.get(name) != kafkas.get(name)
        ]
        for name in kafkas:
            kind = name.rpartition(".")[2]
            compared[kind] = compared.get(kind, 0) + 1
    assert differing == []
    assert compared == {
        "log": 161,
        "index": 161,
        "timeindex": 161,
        "txnindex": 11,
        "snapshot": 160,
        "leader-epoch-checkpoint": 30,
        "metadata": 30,
    }


def test_a_follower_that_takes_the_same_batches_has_the_same_files(
    golden_a: Golden, tmp_path: Path, resolve: Callable[[str], Resolved | None]
) -> None:
    """But for the epoch of a leader that never wrote: a follower learns epochs from batches."""
    count = 0
    for source in _partitions(golden_a.root / "before"):
        found = resolve(TopicPartition.parse(source.name).topic)
        assert found is not None, source
        replayed = replay(
            source, tmp_path, config=found.config, now_ms=golden_a.made_at_ms, leader_epoch=None
        )
        ours, kafkas = _files(replayed.directory), _files(source)
        if source.name in {"empty-0", "delete-records-0"}:
            # No batch names an epoch; records were deleted later, which moves its start.
            ours.pop(LEADER_EPOCH_CHECKPOINT)
            kafkas.pop(LEADER_EPOCH_CHECKPOINT)
        assert ours.keys() == kafkas.keys(), source.name
        assert [name for name in ours if ours[name] != kafkas[name]] == [], source.name
        count += len(ours)
    assert count == 712


def test_the_batches_were_many_and_of_every_kind(golden_a: Golden) -> None:
    headers = [b.header for d in _partitions(golden_a.root / "before") for b in batches_of(d)]
    assert len(headers) > 3_000
    assert {h.codec.config_name for h in headers} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert any(h.is_control for h in headers)
    assert any(h.is_transactional and not h.is_control for h in headers)
    assert {h.timestamp_type for h in headers} == {"CreateTime", "LogAppendTime"}
