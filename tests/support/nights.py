"""Tests with the mark `rotated` that a night leaves out: each runs in one of `NIGHTS`.

`make nightly` takes the number of the day, so that all of them have run after so many nights in a
row; `make nightly NIGHT=all` runs them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

NIGHTS: Final = 4
EVERY_NIGHT: Final = "all"


def left_out_at(night: str, node_ids: Sequence[str]) -> Iterator[str]:
    """The node ids that do not run at `night`, a number or `EVERY_NIGHT`.

    The parameters of a test are dealt out to the nights in their order.

    Raises:
        ValueError: `night` is neither.
    """
    if night == EVERY_NIGHT:
        return
    turn = int(night) % NIGHTS
    dealt: Counter[str] = Counter()
    for node_id in node_ids:
        function = node_id.partition("[")[0]
        if dealt[function] % NIGHTS != turn:
            yield node_id
        dealt[function] += 1
