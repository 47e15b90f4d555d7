"""Plans deletions by log start offset, size or age: a pure function of log, settings and time.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments and the functions it
calls; KAFKA-2136, KIP-32 for record timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cordwood.cleanup.rules.blockers import Blocker, Code, hold_blocker
from cordwood.cleanup.rules.group_guard import GroupGuard, GroupLoss
from cordwood.cleanup.rules.log_view import RetainedLog, RetainedSegment
from cordwood.configs.log_config import LogConfig

LOG_START = "log start offset"
SIZE = "size"
TIME = "time"

APPEND_TIME = "append-time"

#: A rule: the reason why a segment, given with its number, goes, or what is in the way.
Goes = Callable[[int, RetainedSegment], "str | Blocker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """A segment that goes, by which rule, and Kafka's words for it."""

    base_offset: int
    size_bytes: int
    rule: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The segments that retention removes.

    `roll` says that every segment goes and an empty one at the log end offset takes their place.
    `log_start_offset` is the log start offset afterwards. `blockers` has, for each rule that was
    asked, what is in the way of the oldest segment that stays. `losses` are the offsets that groups
    of cordwood.retention.groups have not consumed.
    """

    expired: tuple[Expired, ...]
    roll: bool
    log_start_offset: int
    warnings: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    losses: tuple[GroupLoss, ...] = ()

    @property
    def bytes_freed(self) -> int:
        """The number of bytes of logs that go."""
        return sum(segment.size_bytes for segment in self.expired)


def plan_retention(log: RetainedLog, *, now_ms: int) -> RetentionPlan:
    """The segments of `log` that Kafka would delete at `now_ms`.

    The rules run in Kafka's order, each over what the one before it left: log start offset for any
    policy, size and time where the policy has `delete`. Only segments that go, and the first that
    does not, are looked at. None applies to a log with a legal hold. Differs: size and time remove
    no segment that waits for a group (`GroupGuard`).
    """
    rest = _Rest(log, now_ms)
    rules: list[tuple[str, Callable[[], Goes | None]]] = []
    if log.holds:
        rest.blockers.append(hold_blocker(log.holds))
    else:
        rules += [(LOG_START, rest.log_start_rule)]
    if not log.holds and log.config.delete:
        rules += [(SIZE, rest.size_rule), (TIME, rest.time_rule)]
    for name, rule in rules:
        goes = rule()
        if goes is not None:
            rest.take_while(name, goes)
    return RetentionPlan(
        expired=tuple(rest.expired),
        roll=len(rest.expired) == len(log.segments),
        log_start_offset=rest.log_start_offset,
        warnings=tuple(rest.warnings),
        blockers=tuple(rest.blockers),
        losses=rest.losses(),
    )


def age_from_ms(segment: RetainedSegment, config: LogConfig) -> int:
    """The moment (ms) that the age of a segment is counted from.

    Differs: with cordwood.timestamp.future.policy=append-time no record is newer than its append.
    """
    if config.cordwood_timestamp_future_policy == APPEND_TIME:
        return min(segment.largest_timestamp, segment.appended_ms)
    return segment.largest_timestamp


def expires_ms(segment: RetainedSegment, config: LogConfig) -> int:
    """The first moment (ms) at which a segment is older than retention.ms, which is not -1.

    Source: UnifiedLog.deleteRetentionMsBreachedSegments.
    """
    return age_from_ms(segment, config) + config.retention_ms + 1


def high_watermark_blocker(log: RetainedLog, next_base: int) -> Blocker:
    """A segment with an offset at or above the high watermark never goes; `next_base` is its end.

    Source: UnifiedLog.deletableSegments.
    """
    return Blocker(
        code=Code.HIGH_WATERMARK,
        offset=log.high_watermark,
        text=f"its records up to {next_base - 1} are not all below the high watermark "
        f"{log.high_watermark}",
    )


def size_blocker(left_bytes: int, retention_bytes: int) -> Blocker:
    """The obstacle of the size rule where `left_bytes` would be left without a segment."""
    return Blocker(
        code=Code.SIZE,
        setting="retention.bytes",
        text=f"without it {left_bytes} bytes are left, less than retention.bytes "
        f"{retention_bytes}: it goes when {retention_bytes - left_bytes} more are appended",
    )


def time_blocker(segment: RetainedSegment, config: LogConfig, now_ms: int) -> Blocker:
    """The obstacle of the time rule where a segment has not expired."""
    until_ms = expires_ms(segment, config)
    ahead_ms = age_from_ms(segment, config) - now_ms
    if ahead_ms > 0:
        return Blocker(
            code=Code.FUTURE_TIMESTAMP,
            setting="retention.ms",
            offset=segment.base_offset,
            until_ms=until_ms,
            text=f"it holds a record of the future, which counts from its timestamp on: "
            f"{ahead_ms} ms ahead",
        )
    return Blocker(
        code=Code.TIME,
        setting="retention.ms",
        offset=segment.base_offset,
        until_ms=until_ms,
        text=f"its newest record is younger than retention.ms {config.retention_ms}",
    )


class _Rest:
    """The part of a log that the previous rules have retained."""

    def __init__(self, log: RetainedLog, now_ms: int) -> None:
        self._log = log
        self._now_ms = now_ms
        self.expired: list[Expired] = []
        self.blockers: list[Blocker] = []
        self.warnings: list[str] = []
        self.log_start_offset = log.log_start_offset
        self._guard = GroupGuard(log.config, log.consumed, log.high_watermark)
        self._caps: list[str] = []
        self._left_bytes: int | None = None

    def losses(self) -> tuple[GroupLoss, ...]:
        """The losses of groups by the removals so far."""
        return self._guard.losses(self._log.log_start_offset, self.log_start_offset, self._caps)

    def take_while(self, rule: str, goes: Goes) -> None:
        """Removes the oldest segments while `goes` returns a text.

        A segment with an offset at or above the high watermark never goes, nor does an empty last
        one. Where all go, Kafka rolls first, so that one always remains: an empty one at the end.

        Source: UnifiedLog.deletableSegments.
        """
        log = self._log
        count = len(log.segments)
        while (number := len(self.expired)) < count:
            segment = log.segments[number]
            following = self._next_base(number)
            is_last = number == count - 1
            if log.high_watermark < following:
                self.blockers.append(high_watermark_blocker(log, following))
                return
            if is_last and not segment.size_bytes:
                text = "it is the active segment, and empty"
                self.blockers.append(Blocker(code=Code.EMPTY, text=text))
                return
            found = goes(number, segment)
            if not isinstance(found, Blocker) and rule != LOG_START:
                found = self._waiting(segment, following) or found
            if isinstance(found, Blocker):
                self.blockers.append(found)
                return
            if self._left_bytes is not None:
                self._left_bytes -= segment.size_bytes
            self.expired.append(
                Expired(
                    base_offset=segment.base_offset,
                    size_bytes=segment.size_bytes,
                    rule=rule,
                    text=found,
                )
            )
            self.log_start_offset = max(self.log_start_offset, following)

    def _waiting(self, segment: RetainedSegment, end: int) -> Blocker | None:
        """The obstacle of a segment that would go: a group that has not consumed it up to `end`."""
        guard = self._guard
        if guard.slowest_behind(end) is None:
            return None
        if self._left_bytes is None:
            gone_bytes = sum(each.size_bytes for each in self.expired)
            self._left_bytes = self._log.size_bytes - gone_bytes
        left_bytes = self._left_bytes - segment.size_bytes
        from_ms = age_from_ms(segment, self._log.config)
        cap = guard.cap(from_ms, left_bytes, self._now_ms)
        if cap is None:
            return guard.blocker(end, from_ms, left_bytes, self._now_ms)
        self._caps.append(cap)
        return None

    def _next_base(self, number: int) -> int:
        segments = self._log.segments
        if number + 1 < len(segments):
            return segments[number + 1].base_offset
        return self._log.log_end_offset

    def log_start_rule(self) -> Goes:
        limit = self.log_start_offset

        def goes(number: int, _: RetainedSegment) -> str | Blocker:
            is_last = number == len(self._log.segments) - 1
            if is_last or self._next_base(number) > limit:
                text = f"the log start offset {limit} is not above its records"
                return Blocker(code=Code.LOG_START, offset=limit, text=text)
            return f"log start offset {limit} breach"

        return goes

    def size_rule(self) -> Goes | None:
        limit = self._log.config.retention_bytes
        if limit < 0:
            return None
        size = self._log.size_bytes - sum(segment.size_bytes for segment in self.expired)

        def goes(_: int, segment: RetainedSegment) -> str | Blocker:
            nonlocal size
            if size - limit - segment.size_bytes < 0:
                return size_blocker(size - segment.size_bytes, limit)
            size -= segment.size_bytes
            return f"log retention size {limit} breach. Log size after deletion will be {size}"

        return goes

    def time_rule(self) -> Goes | None:
        config = self._log.config
        if config.retention_ms < 0:
            return None

        def goes(_: int, segment: RetainedSegment) -> str | Blocker:
            from_ms = age_from_ms(segment, config)
            if self._now_ms < from_ms:
                self.warnings.append(
                    f"{self._log.topic_partition}: the segment at {segment.base_offset} contains "
                    "future timestamp(s), making it ineligible to be deleted"
                )
            if self._now_ms < expires_ms(segment, config):
                return time_blocker(segment, config, self._now_ms)
            if from_ms < segment.largest_timestamp:
                basis = "the time of the last append to the segment"
            elif segment.largest_record_timestamp >= 0:
                basis = "the largest record timestamp in the segment"
            else:
                basis = "the last modified time of the segment"
            return f"log retention time {config.retention_ms}ms breach based on {basis}"

        return goes
