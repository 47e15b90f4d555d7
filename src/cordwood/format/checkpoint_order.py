"""The order in which Kafka 4.3 writes the lines of its offset checkpoints.

Kafka writes the entries of a map as the map yields them, and each file has a map of its own:

    recovery-point-offset-checkpoint    scala.collection.mutable.HashMap, made for its size
    log-start-offset-checkpoint         scala.collection.mutable.HashMap that grows
    replication-offset-checkpoint       scala.collection.mutable.AnyRefMap
    cleaner-offset-checkpoint           java.util.HashMap, read from the file and copied

The order follows from the hash codes of the partitions, with these exceptions, in which it depends
on the order in which a broker loaded or created its logs, and Kafka itself may write another order
after a restart: partitions of equal hash codes in the first two files, partitions that compete for
a slot in the third. A cleaner-offset-checkpoint depends on its lines before the change too.

Source: kafka.log.LogManager.checkpointRecoveryOffsetsInDir, checkpointLogStartOffsetsInDir,
kafka.server.ReplicaManager.checkpointHighWatermarks, LogCleanerManager.updateCheckpoints,
OffsetCheckpointFile.read; scala.collection.mutable.HashMap, AnyRefMap (Scala 2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence

from cordwood.format.file_names import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from cordwood.format.java_map import concurrent_hash_map_order, spread_hash
from cordwood.model.topic_partition import TopicPartition

_BUCKETS_FIRST = 16
_SLOT_MASK_MIN = 7
_MAX_INT = 0x7FFFFFFF


def recovery_point_order(partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Partitions in the order of the lines of `recovery-point-offset-checkpoint`."""
    wanted = (len(partitions) + 1) * 4 // 3 if partitions else _BUCKETS_FIRST
    return _scala_hash_map_order(partitions, buckets=_power_of_two(wanted))


def log_start_order(partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Partitions in the order of the lines of `log-start-offset-checkpoint`."""
    return _scala_hash_map_order(partitions, buckets=_BUCKETS_FIRST)


def high_watermark_order(partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Partitions in the order of the lines of `replication-offset-checkpoint`.

    `partitions` are in the order in which the broker added them, which decides the order of
    partitions that collide in a slot.
    """
    slots = _Slots()
    for partition in concurrent_hash_map_order(partitions):
        slots.put(partition)
    return slots.partitions()


def cleaner_offset_order(
    lines: Sequence[TopicPartition],
    *,
    update: TopicPartition | None = None,
    gone: Container[TopicPartition] = (),
) -> list[TopicPartition]:
    """Partitions in the order of the lines of `cleaner-offset-checkpoint` after a change.

    Args:
        lines: all lines before it, in the order of the file.
        update: the partition whose line is set.
        gone: the partitions whose lines are removed.
    """
    kept = [partition for partition in truncated_cleaner_order(lines) if partition not in gone]
    collected = _hash_map_order(kept, buckets=_BUCKETS_FIRST)
    buckets = _power_of_two(len(collected) * 4 // 3 + 1) if collected else _BUCKETS_FIRST
    if update is not None and update not in collected:
        collected.append(update)
    return _hash_map_order(collected, buckets=buckets)


def truncated_cleaner_order(lines: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The order of the lines of `cleaner-offset-checkpoint` after one of them was lowered.

    Source: LogCleanerManager.maybeTruncateCheckpoint.
    """
    return _hash_map_order(lines, buckets=_power_of_two(max(len(lines), 1)))


def _power_of_two(count: int) -> int:
    """The lowest power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()


def _hash_map_order(partitions: Sequence[TopicPartition], *, buckets: int) -> list[TopicPartition]:
    """The order of a java.util.HashMap with `buckets` buckets after inserting the partitions."""
    while len(partitions) > buckets * 3 // 4:
        buckets *= 2
    return sorted(partitions, key=lambda each: spread_hash(each) & (buckets - 1))


def _scala_hash_map_order(
    partitions: Collection[TopicPartition], *, buckets: int
) -> list[TopicPartition]:
    """The order of a scala.collection.mutable.HashMap: a bucket is sorted by the signed hash."""
    while len(partitions) >= buckets * 3 // 4:
        buckets *= 2

    def place(partition: TopicPartition) -> tuple[int, int]:
        spread = spread_hash(partition)
        return spread & (buckets - 1), spread - (1 << 32) if spread > _MAX_INT else spread

    return sorted(partitions, key=place)


class _Slots:
    """The slots of a scala.collection.mutable.AnyRefMap: one key each, found by probing."""

    def __init__(self) -> None:
        self._resize(_BUCKETS_FIRST - 1)
        self._size = 0

    def put(self, partition: TopicPartition) -> None:
        """Adds a partition that is not there."""
        self._place(self._finished_hash(partition), partition)
        self._size += 1
        if 2 * self._size > self._mask:
            held = [each for each in self._held if each is not None]
            self._resize(2 * self._mask + 1)
            for hash_code, each in held:
                self._place(hash_code, each)

    def partitions(self) -> list[TopicPartition]:
        """The partitions, in the order of their slots."""
        return [each[1] for each in self._held if each is not None]

    def _resize(self, mask: int) -> None:
        assert mask >= _SLOT_MASK_MIN, mask
        self._mask = mask
        self._held: list[tuple[int, TopicPartition] | None] = [None] * (mask + 1)

    def _place(self, hash_code: int, partition: TopicPartition) -> None:
        slot = hash_code & self._mask
        step = 0
        while self._held[slot] is not None:
            step += 1
            slot = (slot + 2 * (step + 1) * step - 3) & self._mask
        self._held[slot] = (hash_code, partition)

    @staticmethod
    def _finished_hash(partition: TopicPartition) -> int:
        # Half of the finalizer of MurmurHash3, with one of its constants.
        mixed = (spread_hash(partition) * 0x85EBCA6B) & 0xFFFFFFFF
        found = (mixed ^ (mixed >> 13)) & _MAX_INT
        return found or 0x41081989


LINE_ORDERS: Mapping[str, Callable[[Collection[TopicPartition]], list[TopicPartition]]] = {
    RECOVERY_POINT_CHECKPOINT: recovery_point_order,
    LOG_START_OFFSET_CHECKPOINT: log_start_order,
    REPLICATION_OFFSET_CHECKPOINT: high_watermark_order,
}
"""The order of the lines by the name of the file, where it depends on the partitions alone."""
