"""The time of a running broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from cordwood.model.clock import Clock, MovableClock
from cordwood.model.documents import ABSENT
from cordwood.queries.identity import NodeIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAnswer:
    """A node's time, how far it is ahead of the machine's, and whether it can be advanced."""

    now_ms: int
    ahead_ms: int
    movable: bool
    broker: NodeIdentity | None = field(default=None, metadata=ABSENT)


def clock_answer(clock: Clock) -> ClockAnswer:
    """The time of a clock."""
    is_movable = isinstance(clock, MovableClock)
    ahead_ms = clock.ahead_ms if isinstance(clock, MovableClock) else 0
    return ClockAnswer(now_ms=clock.now_ms(), ahead_ms=ahead_ms, movable=is_movable)
