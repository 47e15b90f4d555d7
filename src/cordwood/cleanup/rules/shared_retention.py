"""Limits over several logs: of a whole topic, and of a log directory; a pure function.

Kafka limits each partition alone, so what a topic or a disk may take follows from the number of its
partitions. These limits are Cordwood's own. Each log comes as its own retention has left it; then
inactive segments go, over all logs of a limit the one with the oldest newest record first, of two
with the same the larger, until the limit is met. In a log the older segment always goes first.

The limit of a topic takes no segment that waits for a group. Those of a log directory do, where
nothing else is left to go: a full disk stops everything. So to groups they are hard limits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cordwood.cleanup.rules.group_guard import GroupGuard, GroupLoss
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.retention import Expired, RetentionPlan, age_from_ms
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig

TOPIC_LIMIT = "cordwood.retention.topic.bytes"
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
        """The limits of a broker's settings."""
        return cls(
            size_bytes_max=broker.cordwood_log_dir_retention_bytes,
            free_bytes_min=broker.cordwood_log_dir_free_bytes_min,
        )

    @property
    def settings(self) -> dict[str, int]:
        """The limits by the names of their settings."""
        return {
            "cordwood.log.dir.retention.bytes": self.size_bytes_max,
            "cordwood.log.dir.free.bytes.min": self.free_bytes_min,
        }

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.size_bytes_max >= 0 or self.free_bytes_min >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLog:
    """One log that shares a limit with others.

    `log_dir` names its directory. A log that is not `is_deletable` counts, but nothing of it goes:
    another thread works on it. A future log, to which a partition is being moved, counts for its
    directory only. `may_roll` is false for a log that was not closed in good order: its end may not
    be whole, so it is not rolled while idle.
    """

    view: LogView
    log_dir: str
    is_deletable: bool = True
    is_future: bool = False
    may_roll: bool = True


def shares_limits(configs: Iterable[LogConfig], limits: DirectoryLimits) -> bool:
    """Whether any limit of several logs is set, for logs with these settings."""
    return limits.is_set or any(each.cordwood_retention_topic_bytes >= 0 for each in configs)


def plan_shared_retention(
    logs: Sequence[SharedLog],
    limits: DirectoryLimits,
    *,
    free_bytes: Mapping[str, int],
    now_ms: int,
) -> list[RetentionPlan]:
    """Plans, for each of `logs` in their order, the segments that go for a limit that it shares.

    Topics first, then directories by size, then by free space; each limit sees what the ones before
    it have left.

    Args:
        logs: as their own retention has left them.
        limits: of each log directory.
        free_bytes: by directory, the free space of its file system, with what removed files that
            wait for file.delete.delay.ms will give; needed where `limits.free_bytes_min` is set.
        now_ms: the time, for how long segments wait for groups.
    """
    rests = [_Rest(log=log, guard=_guard_of(log.view)) for log in logs]
    by_topic: dict[str, list[_Rest]] = {}
    by_directory: dict[str, list[_Rest]] = {}
    for rest in rests:
        if not rest.log.is_future:
            by_topic.setdefault(rest.log.view.topic_partition.topic, []).append(rest)
        by_directory.setdefault(rest.log.log_dir, []).append(rest)
    for topic, group in sorted(by_topic.items()):
        limit = group[0].log.view.config.cordwood_retention_topic_bytes
        if limit >= 0:
            text = f"{TOPIC_LIMIT} {limit} breach of topic {topic}"
            excess = sum(each.size_bytes for each in group) - limit
            _take(group, excess, TOPIC_BYTES, text, now_ms=now_ms)
    for log_dir, group in sorted(by_directory.items()):
        limit = limits.size_bytes_max
        if limit >= 0:
            text = f"cordwood.log.dir.retention.bytes {limit} breach of log directory {log_dir}"
            excess = sum(each.size_bytes for each in group) - limit
            left = _take(group, excess, DIRECTORY_BYTES, text, now_ms=now_ms)
            _take_unread(group, left, DIRECTORY_BYTES, text, "cordwood.log.dir.retention.bytes")
        if limits.free_bytes_min >= 0:
            text = (
                f"cordwood.log.dir.free.bytes.min {limits.free_bytes_min} breach of log directory "
                f"{log_dir}"
            )
            free = free_bytes[log_dir] + sum(each.bytes_gone for each in group)
            left = _take(group, limits.free_bytes_min - free, FREE_BYTES, text, now_ms=now_ms)
            _take_unread(group, left, FREE_BYTES, text, "cordwood.log.dir.free.bytes.min")
    return [rest.plan() for rest in rests]


@dataclass(slots=True, kw_only=True)
class _Rest:
    """The rest of a log after the limits so far."""

    log: SharedLog
    guard: GroupGuard
    expired: list[Expired] = field(default_factory=list)
    caps: list[str] = field(default_factory=list)
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

    @property
    def is_unread(self) -> bool:
        """Whether a group has not consumed the oldest segment."""
        end = self.log.view.next_base(len(self.expired))
        return self.guard.slowest_behind(end) is not None

    def cap(self, now_ms: int) -> str | None:
        """The setting by which the oldest segment does not wait for groups any more, if any."""
        view = self.log.view
        segment = view.segments[len(self.expired)]
        left_bytes = self.size_bytes - segment.size_bytes
        return self.guard.cap(age_from_ms(segment, view.config), left_bytes, now_ms)

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
        start = view.log_start_offset
        if self.expired:
            start = max(start, view.segments[len(self.expired)].base_offset)
        return RetentionPlan(
            expired=tuple(self.expired),
            roll=False,
            log_start_offset=start,
            losses=self.guard.losses(view.log_start_offset, start, self.caps),
        )


def _guard_of(view: LogView) -> GroupGuard:
    return GroupGuard(view.config, view.consumed, view.high_watermark)


def _take(rests: Sequence[_Rest], excess_bytes: int, rule: str, text: str, *, now_ms: int) -> int:
    """Removes the oldest segments over all of `rests` until `excess_bytes` are gone.

    Of a log no segment goes that waits for a group, and none behind it. Returns how many bytes are
    still to go.
    """

    def next_of(rest: _Rest) -> tuple[int, int] | None:
        key = rest.oldest()
        return None if key is not None and rest.is_unread and not rest.cap(now_ms) else key

    def take(rest: _Rest) -> int:
        cap = rest.cap(now_ms) if rest.is_unread else None
        rest.caps += [] if cap is None else [cap]
        return rest.take(rule, text)

    return _take_oldest(rests, excess_bytes, next_of, take)


def _take_unread(
    rests: Sequence[_Rest], excess_bytes: int, rule: str, text: str, setting: str
) -> None:
    """The same for segments that wait for groups, too; `setting` is that of the limit."""

    def take(rest: _Rest) -> int:
        rest.caps += [setting] if rest.is_unread else []
        return rest.take(rule, text)

    _take_oldest(rests, excess_bytes, _Rest.oldest, take)


def _take_oldest(
    rests: Sequence[_Rest],
    excess_bytes: int,
    next_of: Callable[[_Rest], tuple[int, int] | None],
    take: Callable[[_Rest], int],
) -> int:
    if excess_bytes <= 0:
        return 0
    heap = [(key, number) for number, rest in enumerate(rests) if (key := next_of(rest))]
    heapq.heapify(heap)
    while excess_bytes > 0 and heap:
        _, number = heapq.heappop(heap)
        excess_bytes -= take(rests[number])
        key = next_of(rests[number])
        if key is not None:
            heapq.heappush(heap, (key, number))
    return max(0, excess_bytes)


def joined(first: RetentionPlan, then: RetentionPlan) -> RetentionPlan:
    """The plan that does both, one after the other."""
    return replace(
        first,
        expired=(*first.expired, *then.expired),
        roll=first.roll or then.roll,
        log_start_offset=then.log_start_offset,
        warnings=tuple(dict.fromkeys((*first.warnings, *then.warnings))),
        blockers=then.blockers or first.blockers,
        losses=_continued(first.losses, then.losses),
    )


def _continued(first: Sequence[GroupLoss], then: Sequence[GroupLoss]) -> tuple[GroupLoss, ...]:
    """The losses of both plans, one for each group: the second begins where the first ends."""
    by_group = {loss.group: loss for loss in first}
    for loss in then:
        before = by_group.get(loss.group)
        if before is not None:
            settings = dict.fromkeys([*before.setting.split(", "), *loss.setting.split(", ")])
            loss = replace(  # noqa: PLW2901
                loss, first_offset=before.first_offset, setting=", ".join(settings)
            )
        by_group[loss.group] = loss
    return tuple(by_group.values())
