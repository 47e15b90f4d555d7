"""Which segments go by log start offset, size or age: a pure function of view, settings and time.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments and the functions it
calls; KAFKA-2136, KIP-32 for record timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cordwood.cleanup.log_view import LogView, SegmentView

LOG_START = "log start offset"
SIZE = "size"
TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """A segment that goes, by which rule, and Kafka's words for it."""

    base_offset: int
    size_bytes: int
    rule: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What retention removes.

    `roll` says that every segment goes and an empty one at the log end offset takes their place;
    `replaces_empty_active` that the active segment was empty and is made anew.
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


def plan_retention(view: LogView, *, now_ms: int) -> RetentionPlan:
    """The segments of `view` that Kafka would delete at `now_ms`.

    The rules run in Kafka's order, each over what the one before it left: log start offset for any
    policy, size and time where the policy has `delete`.
    """
    config = view.config
    expired: list[Expired] = []
    warnings: list[str] = []
    rules: list[Callable[[LogView], Callable[[int], str | None] | None]] = [_log_start_rule]
    names = [LOG_START]
    if config.delete:
        rules += [_size_rule, lambda rest: _time_rule(rest, now_ms, warnings)]
        names += [SIZE, TIME]
    rest = view
    rolled = False
    for name, rule in zip(names, rules, strict=True):
        goes = rule(rest)
        found = _scan(rest, goes) if goes else []
        if not found:
            continue
        expired += [
            Expired(base_offset=s.base_offset, size_bytes=s.size_bytes, rule=name, text=text)
            for s, text in found
        ]
        remaining = rest.segments[len(found) :]
        if not remaining:
            # Kafka rolls first, so that one segment always remains.
            rolled = True
            remaining = (_empty_segment(view.log_end_offset, now_ms),)
        rest = replace(
            rest,
            segments=remaining,
            log_start_offset=max(rest.log_start_offset, remaining[0].base_offset),
        )
    return RetentionPlan(
        expired=tuple(expired),
        roll=rolled,
        log_start_offset=rest.log_start_offset,
        warnings=tuple(warnings),
    )


def _scan(view: LogView, goes: Callable[[int], str | None]) -> list[tuple[SegmentView, str]]:
    """The oldest segments for which `goes` gives a text, up to the first for which it does not.

    A segment with an offset at or above the high watermark never goes, nor does an empty last one.

    Source: UnifiedLog.deletableSegments.
    """
    found: list[tuple[SegmentView, str]] = []
    for number, segment in enumerate(view.segments):
        is_last = number == len(view.segments) - 1
        if view.high_watermark < view.next_base(number) or (is_last and not segment.size_bytes):
            break
        text = goes(number)
        if text is None:
            break
        found.append((segment, text))
    return found


def _log_start_rule(view: LogView) -> Callable[[int], str | None]:
    def goes(number: int) -> str | None:
        is_last = number == len(view.segments) - 1
        if is_last or view.next_base(number) > view.log_start_offset:
            return None
        return f"log start offset {view.log_start_offset} breach"

    return goes


def _size_rule(view: LogView) -> Callable[[int], str | None] | None:
    limit = view.config.retention_bytes
    size = view.size_bytes
    if limit < 0 or size < limit:
        return None

    def goes(number: int) -> str | None:
        nonlocal size
        segment = view.segments[number]
        if size - limit - segment.size_bytes < 0:
            return None
        size -= segment.size_bytes
        return f"log retention size {limit} breach. Log size after deletion will be {size}"

    return goes


def _time_rule(
    view: LogView, now_ms: int, warnings: list[str]
) -> Callable[[int], str | None] | None:
    limit = view.config.retention_ms
    if limit < 0:
        return None

    def goes(number: int) -> str | None:
        segment = view.segments[number]
        if now_ms < segment.largest_timestamp:
            warnings.append(
                f"{view.topic_partition}: the segment at {segment.base_offset} contains future "
                "timestamp(s), making it ineligible to be deleted"
            )
        if now_ms - segment.largest_timestamp <= limit:
            return None
        basis = (
            "the largest record timestamp in the segment"
            if segment.largest_record_timestamp >= 0
            else "the last modified time of the segment"
        )
        return f"log retention time {limit}ms breach based on {basis}"

    return goes


def _empty_segment(base_offset: int, now_ms: int) -> SegmentView:
    return SegmentView(
        base_offset=base_offset,
        size_bytes=0,
        index_bytes=0,
        time_index_bytes=0,
        largest_record_timestamp=-1,
        first_batch_timestamp=-1,
        modified_ms=now_ms,
    )
