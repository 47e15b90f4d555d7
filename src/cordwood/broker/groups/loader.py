"""Reads the groups and offsets of a partition of `__consumer_offsets` from its log.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl.
"""

from __future__ import annotations

from cordwood.broker.groups.shard import GroupShard
from cordwood.format.control_record import ControlType, parse_control_key
from cordwood.format.record_batch import LegacyBatch, RecordBatch, iter_batches
from cordwood.model.clock import Clock
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog

_READ_BYTES = 5 * 1024 * 1024


def load_shard(log: PartitionLog, clock: Clock) -> GroupShard:
    """All that the log says, from its start to its end as it is now.

    Nobody may append to it meanwhile.

    Raises:
        CorruptError: a record is malformed.
        KafkaError: the log cannot be read.
    """
    shard = GroupShard(log.topic_partition.partition, clock)
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        data = log.read(offset, _READ_BYTES, isolation=Isolation.LOG_END).read()
        next_offset = offset
        for _, batch in iter_batches(data):
            _replay_batch(shard, batch)
            next_offset = batch.next_offset
        if next_offset == offset:
            break
        offset = next_offset
    return shard


def _replay_batch(shard: GroupShard, batch: RecordBatch | LegacyBatch) -> None:
    if isinstance(batch, LegacyBatch):
        for record in batch.records():
            shard.replay(record.offset, -1, record.key, record.value)
        return
    header = batch.header
    for record in batch.iter_records():
        if not header.is_control:
            shard.replay(record.offset, header.producer_id, record.key, record.value)
            continue
        control = parse_control_key(record.key)
        if control in {ControlType.COMMIT, ControlType.ABORT}:
            shard.offsets.end_transaction(header.producer_id, commit=control is ControlType.COMMIT)
