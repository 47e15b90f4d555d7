"""Parts of a table put together into tasks."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from cordwood.frames.tasks import tasks_of


class Sized(NamedTuple):
    """A part of a size."""

    size_bytes: int


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([], []),
        ([10], [[10]]),
        ([4, 6], [[4, 6]]),
        ([4, 7], [[4], [7]]),
        ([1, 25, 1, 1], [[1], [25], [1, 1]]),
        ([0, 10, 0, 0, 3, 8], [[0, 10, 0, 0], [3], [8]]),
    ],
)
def test_parts_are_together_up_to_a_size_in_their_order(
    sizes: list[int], tasks: list[list[int]]
) -> None:
    found = tasks_of([Sized(each) for each in sizes], 10)
    assert [[part.size_bytes for part in task] for task in found] == tasks
