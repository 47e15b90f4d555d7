from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition

PARTITIONS = st.builds(
    TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 1 << 20)
)


def test_a_file_of_kafka_keeps_its_order() -> None:
    data = b"0\n3\nb 1 5\na 0 7\n__x 12 0\n"
    offsets = parse_offset_checkpoint(data)
    assert [str(name) for name in offsets] == ["b-1", "a-0", "__x-12"]
    assert build_offset_checkpoint(offsets) == data


@given(st.dictionaries(PARTITIONS, st.integers(-1, 1 << 62), max_size=8))
def test_round_trip(offsets: dict[TopicPartition, int]) -> None:
    parsed = parse_offset_checkpoint(build_offset_checkpoint(offsets))
    assert list(parsed.items()) == list(offsets.items())


def test_malformed_numbers_are_corrupt() -> None:
    for line in ("a x 1", "a 1 x", "a 1", "a b c d"):
        with pytest.raises(CorruptError):
            parse_offset_checkpoint(f"0\n1\n{line}\n")
