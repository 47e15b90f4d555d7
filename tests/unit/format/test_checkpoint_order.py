"""The order of the lines of checkpoints: those that a Kafka 4.3 wrote, and those of golden data.

Recorded from a broker with 55 partitions in one directory, of which 14 had a log start offset
inside a segment and 15 were compacted; again after a topic of 7 was deleted, one of 30 created, and
the broker stopped.
"""

from __future__ import annotations

import random
import tarfile
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from cordwood.format.checkpoint_order import (
    LINE_ORDERS,
    cleaner_offset_order,
    high_watermark_order,
    log_start_order,
    recovery_point_order,
    truncated_cleaner_order,
)
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.model.topic_partition import TopicPartition

TOPICS = {
    "a": "alpha",
    "b": "beta.x",
    "g": "gamma_long-name",
    "c": "comp",
    "k": "kompakt",
    "d": "delta",
}
GOLDEN = Path(__file__).parents[2] / "golden" / "golden-a.tar.xz"
Order = Callable[[Collection[TopicPartition]], list[TopicPartition]]
LIVE_RECOVERY_POINT = """
g1 c3 g5 c7 b11 g14 a4 b7 g18 a0 b3 k3 g6 g10 c2 c6 g2 k5 b12 g15 b8 a5 g19 b4 a1 g7 k4 b0 g11
k0 c1 g3 c5 a6 b9 g16 a2 b5 b1 k1 g8 g12 c4 g0 c8 g4 b10 g17 b6 a3 b2 g9 k2 g13 c0
"""
LIVE_LOG_START = """
b12 b11 a6 b9 b8 a5 a2 b6 a3 b5 a0 b3 b2 b0
"""
LIVE_REPLICATION = """
a4 c2 g5 k5 b10 c6 g12 k1 b9 g7 a0 a2 b7 g14 a6 a1 b11 k3 b8 k4 c7 g15 c8 g13 g16 g9 c4 g19 g18
g10 b12 a3 b4 b3 b5 g11 c1 c5 g17 g8 b2 b0 k2 g1 g4 g3 b6 g2 c3 c0 g6 k0 g0 b1 a5
"""
LIVE_CLEANER = """
c2 c1 c4 c3 c6 c5 k5 c8 c7 k3 k4 k1 k2 k0 c0
"""
STOPPED_RECOVERY_POINT = """
g1 c3 d6 g5 c7 d2 d27 b11 g14 d22 b7 g18 d18 b3 k3 g6 d14 g10 d10 c2 d9 c6 d5 g2 k5 d1 b12 d26
g15 d25 b8 g19 d21 b4 g7 d17 k4 b0 g11 d13 k0 c1 d8 g3 c5 d4 d0 d29 d24 b9 g16 d20 b5 d16 b1 k1
g8 d12 g12 c4 d7 g0 c8 d3 g4 d28 b10 g17 d23 b6 d19 b2 g9 d15 k2 g13 c0 d11
"""
STOPPED_LOG_START = """
b11 b9 b8 b6 b5 b3 b2 b0 b12
"""
STOPPED_REPLICATION = """
d13 d3 d22 g5 d9 c6 d24 g12 d15 k1 d8 b9 d0 b7 g14 d6 d20 k3 d12 g6 g16 d26 g10 c1 b4 b3 d2 d23
d18 c5 g17 g1 g3 b6 c3 d1 c0 g0 b1 c2 k5 b10 d29 g7 d17 d19 d5 d7 d21 d14 d11 d27 d4 b11 b8 k4
c7 g15 g13 g9 c4 g19 g18 b12 b5 g11 g8 b2 b0 k2 g4 d25 g2 d16 c8 k0 d10 d28
"""
STOPPED_CLEANER = """
c2 c1 c4 c3 c6 c5 k5 c8 c7 k3 k4 k1 k2 k0 c0
"""


def partitions(text: str) -> list[TopicPartition]:
    return [TopicPartition(TOPICS[each[0]], int(each[1:])) for each in text.split()]


def shuffled(lines: list[TopicPartition]) -> list[TopicPartition]:
    return random.Random(3).sample(lines, len(lines))


@pytest.mark.parametrize(
    ("order", "recorded"),
    [
        (recovery_point_order, LIVE_RECOVERY_POINT),
        (recovery_point_order, STOPPED_RECOVERY_POINT),
        (log_start_order, LIVE_LOG_START),
        (log_start_order, STOPPED_LOG_START),
        (high_watermark_order, LIVE_REPLICATION),
        (high_watermark_order, STOPPED_REPLICATION),
    ],
)
def test_lines_are_in_the_order_of_kafka(order: Order, recorded: str) -> None:
    lines = partitions(recorded)
    assert order(shuffled(lines)) == lines


@pytest.mark.parametrize("recorded", [LIVE_CLEANER, STOPPED_CLEANER])
def test_lines_of_the_cleaner_are_in_the_order_of_kafka(recorded: str) -> None:
    lines = partitions(recorded)
    for each in lines:
        assert cleaner_offset_order(lines, update=each) == lines
    assert truncated_cleaner_order(lines) == lines


def test_lines_that_the_cleaner_adds_one_by_one_end_in_the_order_of_kafka() -> None:
    wanted = partitions(LIVE_CLEANER)
    lines: list[TopicPartition] = []
    for each in sorted(wanted, key=lambda each: (each.topic, each.partition)):
        lines = cleaner_offset_order(lines, update=each)
    assert set(lines) == set(wanted)
    moved = [each for each, other in zip(lines, wanted, strict=True) if each != other]
    assert len(moved) <= 2  # those that share a bucket are in the order of their first cleaning
    assert cleaner_offset_order(wanted, gone=set(wanted[:14])) == wanted[14:]


def test_no_line_has_no_order() -> None:
    for order in LINE_ORDERS.values():
        assert order([]) == []
    assert cleaner_offset_order([]) == []
    one = TopicPartition("one", 0)
    assert cleaner_offset_order([], update=one) == [one]
    assert cleaner_offset_order([one], gone={one}) == []


def test_many_partitions_keep_their_number() -> None:
    many = [TopicPartition(f"t{number % 97}", number) for number in range(3000)]
    for order in LINE_ORDERS.values():
        assert sorted(order(many)) == sorted(many)


def test_checkpoints_of_golden_data_are_in_this_order() -> None:
    seen = 0
    with tarfile.open(GOLDEN) as archive:
        for member in archive:
            order = LINE_ORDERS.get(Path(member.name).name)
            file = archive.extractfile(member) if order is not None else None
            if order is None or file is None:
                continue
            lines = list(parse_offset_checkpoint(file.read()))
            assert order(shuffled(lines)) == lines, member.name
            seen += len(lines) > 1
    assert seen
