"""Which segments go by log start offset, size or age: a pure function of log, settings and time.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments and the functions it
calls; KAFKA-2136, KIP-32 for record timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cordwood.cleanup.log_view import RetainedLog, RetainedSegment

LOG_START = "log start offset"
SIZE = "size"
TIME = "time"

#: A rule: the reason why a segment, given with its number, goes; None where it does not.
Goes = Callable[[int, RetainedSegment], str | None]


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
    `log_start_offset` is the log start offset afterwards.
    """

    expired: tuple[Expired, ...]
    roll: bool
    log_start_offset: int
    warnings: tuple[str, ...] = ()

    @property
    def bytes_freed(self) -> int:
        """How many bytes of logs go."""
        return sum(segment.size_bytes for segment in self.expired)


def plan_retention(log: RetainedLog, *, now_ms: int) -> RetentionPlan:
    """The segments of `log` that Kafka would delete at `now_ms`.

    The rules run in Kafka's order, each over what the one before it left: log start offset for any
    policy, size and time where the policy has `delete`. Only segments that go, and the first that
    does not, are looked at. None applies to a log with a legal hold.
    """
    rest = _Rest(log, now_ms)
    rules: list[tuple[str, Callable[[], Goes | None]]] = []
    if not log.holds:
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
    )


class _Rest:
    """The part of a log that the previous rules have retained."""

    def __init__(self, log: RetainedLog, now_ms: int) -> None:
        self._log = log
        self._now_ms = now_ms
        self.expired: list[Expired] = []
        self.warnings: list[str] = []
        self.log_start_offset = log.log_start_offset

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
            if log.high_watermark < following or (is_last and not segment.size_bytes):
                return
            text = goes(number, segment)
            if text is None:
                return
            self.expired.append(
                Expired(
                    base_offset=segment.base_offset,
                    size_bytes=segment.size_bytes,
                    rule=rule,
                    text=text,
                )
            )
            self.log_start_offset = max(self.log_start_offset, following)

    def _next_base(self, number: int) -> int:
        segments = self._log.segments
        if number + 1 < len(segments):
            return segments[number + 1].base_offset
        return self._log.log_end_offset

    def log_start_rule(self) -> Goes:
        limit = self.log_start_offset

        def goes(number: int, _: RetainedSegment) -> str | None:
            is_last = number == len(self._log.segments) - 1
            if is_last or self._next_base(number) > limit:
                return None
            return f"log start offset {limit} breach"

        return goes

    def size_rule(self) -> Goes | None:
        limit = self._log.config.retention_bytes
        if limit < 0:
            return None
        size = self._log.size_bytes - sum(segment.size_bytes for segment in self.expired)
        if size < limit:
            return None

        def goes(_: int, segment: RetainedSegment) -> str | None:
            nonlocal size
            if size - limit - segment.size_bytes < 0:
                return None
            size -= segment.size_bytes
            return f"log retention size {limit} breach. Log size after deletion will be {size}"

        return goes

    def time_rule(self) -> Goes | None:
        limit = self._log.config.retention_ms
        if limit < 0:
            return None

        def goes(_: int, segment: RetainedSegment) -> str | None:
            largest = segment.largest_timestamp
            if self._now_ms < largest:
                self.warnings.append(
                    f"{self._log.topic_partition}: the segment at {segment.base_offset} contains "
                    "future timestamp(s), making it ineligible to be deleted"
                )
            if self._now_ms - largest <= limit:
                return None
            basis = (
                "the largest record timestamp in the segment"
                if segment.largest_record_timestamp >= 0
                else "the last modified time of the segment"
            )
            return f"log retention time {limit}ms breach based on {basis}"

        return goes
