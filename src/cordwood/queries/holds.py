"""Legal holds, of a stopped broker's log directories or a running broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from cordwood.model.documents import ABSENT
from cordwood.queries.brokers import Asked
from cordwood.storage.holds import HoldRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldAnswer:
    """A hold, and the directories that note it; `partition` is None for a whole topic.

    `node_id` is the broker of a cluster that has it.
    """

    id: str
    topic: str
    partition: int | None
    reason: str
    by: str
    created_ms: int
    target: str
    log_dirs: Sequence[str]
    node_id: int | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """The holds, the oldest first, and by directory why its holds cannot be read."""

    holds: Sequence[HoldAnswer]
    unreadable: Mapping[str, str]


def holds_of(registry: HoldRegistry) -> Holds:
    """The holds of log directories."""
    return Holds(
        holds=[
            HoldAnswer(**asdict(hold), target=hold.target, log_dirs=[*map(str, log_dirs)])
            for hold, log_dirs in registry.all()
        ],
        unreadable={str(path): text for path, text in registry.damage().items()},
    )


def merged(asked: Sequence[Asked[Holds]]) -> Holds:
    """The holds of brokers; with several each hold names its broker."""
    if len(asked) == 1:
        return asked[0].answer
    holds = [
        replace(hold, node_id=each.broker.node_id) for each in asked for hold in each.answer.holds
    ]
    return Holds(
        holds=sorted(holds, key=lambda hold: hold.created_ms),
        unreadable={path: why for each in asked for path, why in each.answer.unreadable.items()},
    )
