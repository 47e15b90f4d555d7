"""A bit flipped in a batch's offsets: what was flushed is not cut off, and no append goes far away.

The CRC of a batch does not cover its base offset. It covers the last offset delta, so that a batch
with a wrong one is damaged like any other.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cordwood.model.errors import ImpossibleOffsetError
from cordwood.model.kafka_errors import CorruptMessageError, InvalidRecordError
from cordwood.storage.log.truncation import truncate_fully_and_start_at
from support.offset_damage import (
    BASE_OFFSET,
    BATCHES,
    LAST_OFFSET_DELTA,
    RECORDS,
    SEGMENTS,
    Case,
    Opened,
    cases,
    contents,
    damage,
    open_by_us,
    write_log,
)
from support.stored_log import StoredLog, batch_of

END = SEGMENTS * BATCHES * RECORDS
#: Of the base offset: in reach of an index, the first out of reach, a high one, the sign.
SOME_BITS = (0, 2, 4, 5, 6, 20, 30, 31, 62, 63)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "t-0"
    write_log(directory)
    return directory


def opened(model: Path, root: Path, case: Case) -> tuple[Opened, bool]:
    """The loader's result, and whether the logs are as they were."""
    directory = root / case.name / "t-0"
    shutil.copytree(model, directory)
    damage(directory, case)
    before = contents(directory)
    found = open_by_us(directory, case)
    is_same = contents(directory) == before
    shutil.rmtree(directory.parent)
    return found, is_same


def require_sound(model: Path, root: Path, case: Case) -> None:
    found, is_same = opened(model, root, case)
    if case.field == LAST_OFFSET_DELTA:
        # An ordinary damage; where it is looked at, the log is cut.
        assert found.refused == "" or "InvalidOffset" not in found.refused
        assert found.log_end_offset <= END or is_same
        return
    assert is_same, f"{case.name}: {found}"
    if found.refused:
        assert found.refused.startswith("ImpossibleOffsetError: "), found
        return
    if found.log_end_offset != END:
        # Nothing lies behind the last batch that would tell: as in Kafka.
        assert (case.segment, case.batch) == (SEGMENTS - 1, BATCHES - 1)
        assert abs(found.log_end_offset - END) < 1 << 31


def test_a_flipped_bit_of_an_offset_cuts_nothing_off(model: Path, tmp_path: Path) -> None:
    for case in cases(SOME_BITS):
        require_sound(model, tmp_path, case)


@pytest.mark.nightly
def test_any_flipped_bit_of_an_offset_cuts_nothing_off(model: Path, tmp_path: Path) -> None:
    for case in cases():
        require_sound(model, tmp_path, case)


def case_of(*, bit: int, segment: int, batch: int) -> Case:
    return Case(
        field=BASE_OFFSET,
        bit=bit,
        segment=segment,
        batch=batch,
        has_indexes=True,
        is_clean=False,
        recovery_point=0,
    )


@pytest.mark.parametrize("batch", [0, BATCHES // 2, BATCHES - 1])
@pytest.mark.parametrize("bit", [31, 62, 63])
def test_an_offset_out_of_reach_in_the_active_segment_is_refused_with_its_place(
    model: Path, tmp_path: Path, bit: int, batch: int
) -> None:
    case = case_of(bit=bit, segment=SEGMENTS - 1, batch=batch)
    found, is_same = opened(model, tmp_path, case)
    assert is_same
    assert "00000000000000000070.log" in found.refused
    assert "a batch whose CRC is right has impossible offsets" in found.refused
    assert " at byte " in found.refused
    assert "Restore the partition's directory" in found.refused


OFFSET_MAX = 2**63 - 1


@pytest.mark.parametrize("end", [OFFSET_MAX, OFFSET_MAX - 1, OFFSET_MAX - 2**31])
def test_a_leader_appends_nothing_where_offsets_end(tmp_path: Path, end: int) -> None:
    log = StoredLog(tmp_path).open()
    truncate_fully_and_start_at(log, end)
    before = log.active.size_bytes
    with pytest.raises(InvalidRecordError, match="the highest at which a leader appends"):
        log.append_as_leader(batch_of(b"v"))
    assert (log.log_end_offset, log.active.size_bytes) == (end, before)


def test_a_follower_takes_no_batch_behind_which_no_record_can_follow(tmp_path: Path) -> None:
    log = StoredLog(tmp_path).open()
    truncate_fully_and_start_at(log, OFFSET_MAX - 1)
    with pytest.raises(CorruptMessageError, match="ends at offset 9223372036854775807"):
        log.append_as_follower(batch_of(b"a", b"b", base_offset=OFFSET_MAX - 1))
    assert log.log_end_offset == OFFSET_MAX - 1
    log.append_as_follower(batch_of(b"a", base_offset=OFFSET_MAX - 1))
    assert log.log_end_offset == OFFSET_MAX


def test_a_log_whose_last_batch_has_the_last_offset_there_is_is_not_opened(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    stored.open().close()
    (path,) = stored.directory.glob("*.log")
    path.unlink()
    (stored.directory / f"{OFFSET_MAX}.log".zfill(24)).write_bytes(
        batch_of(b"v", base_offset=OFFSET_MAX)
    )
    before = stored.files()
    with pytest.raises(ImpossibleOffsetError, match="behind which no record can follow"):
        stored.open(clean=True)
    assert {n: d for n, d in stored.files().items() if n.endswith(".log")} == {
        n: d for n, d in before.items() if n.endswith(".log")
    }
