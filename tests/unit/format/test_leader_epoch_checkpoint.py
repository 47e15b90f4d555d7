from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.leader_epoch_checkpoint import (
    build_leader_epoch_checkpoint,
    parse_leader_epoch_checkpoint,
)
from cordwood.model.errors import CorruptError


def test_a_file_of_kafka() -> None:
    data = b"0\n2\n0 0\n3 41\n"
    assert parse_leader_epoch_checkpoint(data) == [(0, 0), (3, 41)]
    assert build_leader_epoch_checkpoint([(0, 0), (3, 41)]) == data


@given(st.lists(st.tuples(st.integers(0, 1 << 31), st.integers(0, 1 << 62))))
def test_round_trip(entries: list[tuple[int, int]]) -> None:
    assert parse_leader_epoch_checkpoint(build_leader_epoch_checkpoint(entries)) == entries


def test_words_are_corrupt() -> None:
    with pytest.raises(CorruptError, match="not a number"):
        parse_leader_epoch_checkpoint("0\n1\na b\n")
