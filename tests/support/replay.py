"""A log written by another broker, appended again batch by batch to a new `PartitionLog`.

Batches are given to it as their producers sent them: base offset 0 and no leader epoch, and where
the broker stamped its own time, none of that. What comes out is to be the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.format.crc32c import crc32c
from cordwood.format.file_names import LOG_SUFFIX, PARTITION_METADATA
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.format.record_batch import (
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    RecordBatch,
    build_header,
    iter_batches,
)
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.manual_clock import ManualClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How a replay ended."""

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
