"""The answer of `cordwood whatif`, as values for tables or a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cordwood.insight.compared_cleanings import Compared, Comparison
from cordwood.insight.whatif import Cost, Outcome, Unread

#: The settings in force, and the changed ones.
SIDES: Final = ("now", "then")
_SUMMED: Final = (
    "segments",
    "bytes",
    "bytes_freed",
    "segments_gone",
    "records_discarded",
    "tombstones_discarded",
    "offsets_gone",
)


@dataclass(slots=True, kw_only=True)
class Answer:
    """The answer.

    `costs` are those of partitions of which a side compacts, by side and name. `forecasts` are
    bytes after each day, by side and name. `unread` is None if groups were not looked at.
    """

    now_ms: int
    days: int
    comparison: Comparison
    warnings: list[str]
    costs: dict[str, dict[str, Cost]] = field(default_factory=dict)
    forecasts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    unread: list[Unread] | None = None

    def to_json(self) -> dict[str, Any]:
        """The document that --json prints."""
        comparison = self.comparison
        return {
            "now_ms": self.now_ms,
            "changes": {
                topic: {key: {"now": a, "then": b} for key, (a, b) in changed.items()}
                for topic, changed in comparison.changes.items()
            },
            "partitions": [self._partition(each) for each in comparison.partitions],
            "total": {side: total_of(comparison.partitions, side) for side in SIDES},
            "left_alone": [
                {"topic": each.topic, "partition": each.partition, "reason": each.reason}
                for each in comparison.left_alone
            ],
            "groups": None if self.unread is None else [each.to_json() for each in self.unread],
            "warnings": self.warnings,
            "in_use": comparison.in_use,
            "measured_s": round(comparison.seconds, 3),
        }

    def _partition(self, compared: Compared) -> dict[str, Any]:
        document: dict[str, Any] = {
            "topic": compared.topic,
            "partition": compared.partition,
            "log_dir": compared.log_dir,
            "segments": len(compared.view.segments),
            "bytes": compared.view.size_bytes,
            "log_start_offset": compared.view.log_start_offset,
            "reason": compared.reason,
        }
        for side in SIDES:
            outcome: Outcome | None = getattr(compared, side)
            cost = self.costs.get(side, {}).get(compared.name)
            document[side] = (
                None
                if outcome is None
                else outcome.to_json()
                | {
                    "cost": None if cost is None else cost.to_json(),
                    "bytes_after_days": self.forecasts.get(side, {}).get(compared.name),
                }
            )
        document["difference"] = _difference(compared)
        return document


def total_of(partitions: Sequence[Compared], side: str) -> dict[str, int]:
    """The sums of one side, over the partitions of which both sides are known."""
    known = [each for each in partitions if each.now is not None and each.then is not None]
    return {name: sum(getattr(getattr(each, side), name) for each in known) for name in _SUMMED}


def _difference(compared: Compared) -> dict[str, int] | None:
    now, then = compared.now, compared.then
    if now is None or then is None:
        return None
    return {name: getattr(then, name) - getattr(now, name) for name in _SUMMED}
