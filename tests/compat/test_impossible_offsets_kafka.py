"""A bit flipped in a batch's offsets, opened by Kafka's own loader and by this one."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from support.offset_damage import (
    BASE_OFFSET,
    BATCHES,
    RECORDS,
    SEGMENTS,
    Case,
    Opened,
    cases,
    contents,
    damage,
    open_by_kafka,
    open_by_us,
    write_log,
)

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

END = SEGMENTS * BATCHES * RECORDS
SOME_BITS = (2, 4, 20, 31, 62, 63)
REFUSES_TO_SPLIT = "Split operation is only permitted for segments with overflow"


def copies(root: Path, wanted: list[Case]) -> list[Path]:
    model = root / "model" / "t-0"
    if not model.exists():
        write_log(model)
    found = []
    for case in wanted:
        directory = root / f"{len(list(root.iterdir()))}-{case.name}" / "t-0"
        shutil.copytree(model, directory)
        damage(directory, case)
        found.append(directory)
    return found


def compare(root: Path, wanted: list[Case]) -> Counter[str]:
    """Checks every case; how many ended how."""
    ours, theirs = copies(root, wanted), copies(root, wanted)
    before = [contents(directory) for directory in theirs]
    by_kafka = open_by_kafka(list(zip(theirs, wanted, strict=True)))
    outcomes: Counter[str] = Counter()
    for case, mine, its, was, kafka in zip(wanted, ours, theirs, before, by_kafka, strict=True):
        found = open_by_us(mine, case)
        outcomes[require_no_worse(case, found, kafka)] += 1
        if kafka.refused:
            assert contents(its) == was, f"Kafka refuses and leaves the files: {case.name}"
        assert contents(mine) == was, case.name
    return outcomes


def require_no_worse(case: Case, found: Opened, kafka: Opened) -> str:
    if kafka.refused:
        assert found.refused, f"{case.name}: Kafka refuses it: {kafka.refused}"
        return "both refuse"
    if found.refused:
        return "refused here alone"
    if found.log_end_offset != kafka.log_end_offset:
        # Kafka takes an index entry that does not fit its batch as it is; Cordwood rebuilds it.
        assert kafka.log_end_offset < found.log_end_offset < END, case.name
        return "more of it is kept here"
    return "both open it, with the same log end offset"


def test_what_kafka_refuses_to_open_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    wanted = [case for case in cases(SOME_BITS) if case.field == BASE_OFFSET]
    outcomes = compare(tmp_path, wanted)
    assert outcomes["both refuse"] > 60
    middle = next(c for c in wanted if c.bit == 62 and c.segment == SEGMENTS - 1 and c.batch)
    (kafka,) = open_by_kafka([(copies(tmp_path, [middle])[0], middle)])
    assert REFUSES_TO_SPLIT in kafka.refused or kafka.log_end_offset == END


@pytest.mark.nightly
def test_every_flipped_bit_ends_no_worse_than_in_kafka(tmp_path: Path) -> None:
    outcomes = compare(tmp_path, [case for case in cases() if case.field == BASE_OFFSET])
    for outcome, count in outcomes.most_common():
        print(f"{count:5} {outcome}")
