"""Legal holds of the brokers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cordwood.queries.brokers import Asked
from cordwood.storage.holds import Holds


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
