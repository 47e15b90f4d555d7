"""Cleanings with the settings in force and with changed ones, side by side: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cordwood.cleanup.log_view import LogView
from cordwood.insight.whatif import Outcome

#: The settings in force, and the changed ones.
NOW, THEN = "now", "then"
SIDES: Final = (NOW, THEN)


@dataclass(slots=True, kw_only=True)
class Compared:
    """One partition; `now` and `then` are None if a side could not be found out: see `reason`."""

    topic: str
    partition: int
    log_dir: str
    view: LogView
    then_view: LogView
    now: Outcome | None = None
    then: Outcome | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}-{self.partition}"

    def outcome(self, side: str) -> Outcome | None:
        """That of one of `SIDES`."""
        return self.now if side == NOW else self.then

    def view_of(self, side: str) -> LogView:
        """The log with the settings of one of `SIDES`."""
        return self.view if side == NOW else self.then_view


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftAlone:
    """A partition that was not compared, and why."""

    topic: str
    partition: int
    reason: str


@dataclass(slots=True, kw_only=True)
class Comparison:
    """Partitions whose settings change, the changes by topic, and the others with the reason.

    `seconds` is how long measuring took, of which each side is one run.
    """

    changes: Mapping[str, Mapping[str, tuple[str, str]]]
    partitions: list[Compared] = field(default_factory=list)
    left_alone: list[LeftAlone] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    in_use: list[dict[str, Any]] = field(default_factory=list)
    unchanged_topics: int = 0
    seconds: float = 0.0
