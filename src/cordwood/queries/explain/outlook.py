"""What goes of logs by retention, when, and why the rest stays: sums over explained logs.

Pure functions of the document that `cordwood explain --json` prints, of directories and of running
brokers alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from cordwood.cleanup.plan.check_plan import DAY_MS
from cordwood.cleanup.rules.blockers import Code

Value = Mapping[str, Any]

#: What retention waits for, whatever compaction does.
_RETENTION: Final = frozenset(
    {Code.TIME, Code.SIZE, Code.OLDER_SEGMENT, Code.GROUP_GUARD, Code.FUTURE_TIMESTAMP}
)
COMPACTION_DUE: Final = "compaction due"


class When(StrEnum):
    """When retention removes a segment, if nothing is appended; the names are part of the JSON."""

    NOW = "now"
    DAY = "next_24h"
    LATER = "later"
    STAYS = "stays"


@dataclass(slots=True)
class Part:
    """Some segments of logs."""

    segments: int = 0
    bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """Counts one more segment."""
        self.segments += 1
        self.bytes += size_bytes

    def __iadd__(self, other: Part) -> Self:
        self.segments += other.segments
        self.bytes += other.bytes
        return self

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"segments": self.segments, "bytes": self.bytes}


@dataclass(slots=True)
class Outlook:
    """The segments of some logs by when they go, and by the reason; every segment is in one."""

    partitions: int = 0
    reasons: dict[When, dict[str, Part]] = field(
        default_factory=lambda: {each: {} for each in When}
    )

    def part(self, when: When) -> Part:
        """All that goes then."""
        found = Part()
        for each in self.reasons[when].values():
            found += each
        return found

    @property
    def total(self) -> Part:
        """All segments."""
        found = Part()
        for when in When:
            found += self.part(when)
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain values: the `summary` of the document."""
        parts = {
            str(when): self.part(when).to_json()
            | {"reasons": {name: part.to_json() for name, part in reasons.items()}}
            for when, reasons in self.reasons.items()
        }
        return {"partitions": self.partitions, **self.total.to_json(), **parts}


def outlook(partitions: Iterable[Value], *, now_ms: int) -> Outlook:
    """The outlook of logs, each as its document."""
    found = Outlook()
    for partition in partitions:
        found.partitions += 1
        compaction = partition["compaction"]
        is_due = compaction is not None and compaction["due"]
        for segment in partition["segments"]:
            when = _when(segment, now_ms)
            reason = _reason(segment, when, is_compaction_due=is_due)
            found.reasons[when].setdefault(reason, Part()).add(segment["size_bytes"])
    return found


def _when(segment: Value, now_ms: int) -> When:
    if segment["deletable"]:
        return When.NOW
    if segment["goes_ms"] is None:
        return When.STAYS
    return When.DAY if segment["goes_ms"] - now_ms <= DAY_MS else When.LATER


def _reason(segment: Value, when: When, *, is_compaction_due: bool) -> str:
    if when is When.NOW:
        return str(segment["rule"])
    codes = [each["code"] for each in segment["blockers"]]
    if when is not When.STAYS:
        return next((code for code in codes if code in _RETENTION), codes[0] if codes else "")
    if is_compaction_due and segment["section"] in {"dirty", "clean"}:
        return COMPACTION_DUE
    return next((code for code in codes if code != Code.POLICY), str(Code.POLICY))
