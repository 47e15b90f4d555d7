"""Limits over several logs: of a whole topic, and of a log directory; a pure function.

Kafka limits each partition alone, so what a topic or a disk may take follows from the number of its
partitions. These limits are Cordwood's own. Each log comes as its own retention has left it; then
inactive segments go, over all logs of a limit the one with the oldest newest record first, of two
with the same the larger, until the limit is met. In a log the older segment always goes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cordwood.cleanup.log_view import LogView
from cordwood.cleanup.retention import Expired, RetentionPlan, age_from_ms
from cordwood.model.config import BrokerConfig, LogConfig

TOPIC_BYTES = "topic size"
DIRECTORY_BYTES = "log directory size"
FREE_BYTES = "free space"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLimits:
    """Limits of each log directory, in bytes; -1 for none.

    `size_bytes_max` is cordwood.log.dir.retention.bytes, `free_bytes_min`
    cordwood.log.dir.free.bytes.min.
    """

    size_bytes_max: int = -1
    free_bytes_min: int = -1

    @classmethod
    def of(cls, broker: BrokerConfig) -> DirectoryLimits:
        """Those of a broker's settings."""
        return cls(
            size_bytes_max=broker.cordwood_log_dir_retention_bytes,
            free_bytes_min=broker.cordwood_log_dir_free_bytes_min,
        )

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.size_bytes_max >= 0 or self.free_bytes_min >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLog:
    """One log that shares a limit with others.

    `log_dir` names its directory. A log that is not `is_deletable` counts, but nothing of it goes:
    another thread works on it. A future log, to which a partition is being moved, counts for its
    directory only.
    """

    view: LogView
    log_dir: str
    is_deletable: bool = True
    is_future: bool = False


def shares_limits(configs: Iterable[LogConfig], limits: DirectoryLimits) -> bool:
    """Whether any limit of several logs is set, for logs with these settings."""
    return limits.is_set or any(each.cordwood_retention_topic_bytes >= 0 for each in configs)


def plan_shared_retention(
    logs: Sequence[SharedLog], limits: DirectoryLimits, *, free_bytes: Mapping[str, int]
) -> list[RetentionPlan]:
    """For each of `logs`, in their order, what goes for a limit that it shares.

    Topics first, then directories by size, then by free space; each limit sees what the ones before
    it have left.

    Args:
        logs: as their own retention has left them.
        limits: of each log directory.
        free_bytes: by directory, the free space of its file system, with what removed files that
            wait for file.delete.delay.ms will give; needed where `limits.free_bytes_min` is set.
    """
    rests = [_Rest(log=log) for log in logs]
    by_topic: dict[str, list[_Rest]] = {}
    by_directory: dict[str, list[_Rest]] = {}
    for rest in rests:
        if not rest.log.is_future:
            by_topic.setdefault(rest.log.view.topic_partition.topic, []).append(rest)
        by_directory.setdefault(rest.log.log_dir, []).append(rest)
    for topic, group in sorted(by_topic.items()):
        limit = group[0].log.view.config.cordwood_retention_topic_bytes
        if limit >= 0:
            text = f"cordwood.retention.topic.bytes {limit} breach of topic {topic}"
            _take(group, sum(each.size_bytes for each in group) - limit, TOPIC_BYTES, text)
    for log_dir, group in sorted(by_directory.items()):
        limit = limits.size_bytes_max
        if limit >= 0:
            text = f"cordwood.log.dir.retention.bytes {limit} breach of log directory {log_dir}"
            _take(group, sum(each.size_bytes for each in group) - limit, DIRECTORY_BYTES, text)
        if limits.free_bytes_min >= 0:
            text = (
                f"cordwood.log.dir.free.bytes.min {limits.free_bytes_min} breach of log directory "
                f"{log_dir}"
            )
            free = free_bytes[log_dir] + sum(each.bytes_gone for each in group)
            _take(group, limits.free_bytes_min - free, FREE_BYTES, text)
    return [rest.plan() for rest in rests]


@dataclass(slots=True, kw_only=True)
class _Rest:
    """What limits have left of a log so far."""

    log: SharedLog
    expired: list[Expired] = field(default_factory=list)
    bytes_gone: int = 0

    @property
    def size_bytes(self) -> int:
        return self.log.view.size_bytes - self.bytes_gone

    def oldest(self) -> tuple[int, int] | None:
        """The age and the size of the segment that could go next, as a key that sorts; or None."""
        view, number = self.log.view, len(self.expired)
        if (
            not self.log.is_deletable
            or not view.config.delete
            or view.holds
            or number >= len(view.segments) - 1
            or view.next_base(number) > view.high_watermark
        ):
            return None
        segment = view.segments[number]
        return age_from_ms(segment, view.config), -segment.size_bytes

    def take(self, rule: str, text: str) -> int:
        """Removes the oldest segment; how many bytes it has."""
        segment = self.log.view.segments[len(self.expired)]
        size = segment.size_bytes
        self.expired.append(
            Expired(base_offset=segment.base_offset, size_bytes=size, rule=rule, text=text)
        )
        self.bytes_gone += size
        return size

    def plan(self) -> RetentionPlan:
        view = self.log.view
        first = view.segments[len(self.expired)].base_offset
        return RetentionPlan(
            expired=tuple(self.expired),
            roll=False,
            log_start_offset=max(view.log_start_offset, first)
            if self.expired
            else view.log_start_offset,
        )


def _take(rests: Sequence[_Rest], excess_bytes: int, rule: str, text: str) -> None:
    """Removes the oldest segments over all of `rests` until `excess_bytes` are gone."""
    if excess_bytes <= 0:
        return
    heap = [(key, number) for number, rest in enumerate(rests) if (key := rest.oldest())]
    heapq.heapify(heap)
    while excess_bytes > 0 and heap:
        _, number = heapq.heappop(heap)
        excess_bytes -= rests[number].take(rule, text)
        key = rests[number].oldest()
        if key is not None:
            heapq.heappush(heap, (key, number))


def joined(first: RetentionPlan, then: RetentionPlan) -> RetentionPlan:
    """The plan that does both, one after the other."""
    return replace(
        first,
        expired=(*first.expired, *then.expired),
        log_start_offset=then.log_start_offset,
    )
