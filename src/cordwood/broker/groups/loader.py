"""Reads the groups and offsets of a partition of `__consumer_offsets` from its log.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl.
"""

from __future__ import annotations

from cordwood.broker.groups.shard import GroupShard
from cordwood.format.control_record import ControlType, parse_control_key
from cordwood.format.file_names import LOG_SUFFIX, segment_file_name
from cordwood.format.group_metadata import describe_group_record
from cordwood.format.record import Record
from cordwood.format.record_batch import LegacyBatch, RecordBatch, iter_batches
from cordwood.model.clock import Clock
from cordwood.model.errors import CorruptError
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog

_REMEDY = (
    "Clients of its groups are answered NOT_COORDINATOR. Stop the broker and restore the "
    "partition's directory from a copy, or remove it, which loses its groups and their offsets"
)
_READ_BYTES = 5 * 1024 * 1024


def load_shard(log: PartitionLog, clock: Clock) -> GroupShard:
    """All that the log says, from its start to its end as it is now.

    Nobody may append to it meanwhile.

    Raises:
        CorruptError: a record is malformed; the error names the segment's file, the offset, and
            the type of the record.
        KafkaError: the log cannot be read.
    """
    shard = GroupShard(log.topic_partition.partition, clock)
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        data = log.read(offset, _READ_BYTES, isolation=Isolation.LOG_END).read()
        next_offset = offset
        try:
            for _, batch in iter_batches(data):
                _replay_batch(shard, batch)
                next_offset = batch.next_offset
        except CorruptError as error:
            segment = log.segments.floor(next_offset)
            base_offset = log.log_start_offset if segment is None else segment.base_offset
            path = log.directory / segment_file_name(base_offset, LOG_SUFFIX)
            raise type(error)(error.reason, path=str(path), remedy=_REMEDY) from error
        if next_offset == offset:
            break
        offset = next_offset
    return shard


def _replay_batch(shard: GroupShard, batch: RecordBatch | LegacyBatch) -> None:
    if isinstance(batch, LegacyBatch):
        for record in batch.records():
            _replay(shard, record, -1)
        return
    header = batch.header
    for record in batch.iter_records():
        if not header.is_control:
            _replay(shard, record, header.producer_id)
            continue
        control = parse_control_key(record.key)
        if control in {ControlType.COMMIT, ControlType.ABORT}:
            shard.offsets.end_transaction(header.producer_id, commit=control is ControlType.COMMIT)


def _replay(shard: GroupShard, record: Record, producer_id: int) -> None:
    try:
        shard.replay(record.offset, producer_id, record.key, record.value)
    except CorruptError as error:
        raise type(error)(
            f"{describe_group_record(record.key)} at offset {record.offset} cannot be read: "
            f"{error.reason}"
        ) from error
