from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.file_names import (
    FileKind,
    FileName,
    base_offset_of,
    classify,
    is_index_file,
    is_log_file,
    log_file_name,
    metadata_snapshot_name,
    segment_file_name,
)
from cordwood.model.errors import CorruptError

OFFSETS = st.integers(0, (1 << 63) - 1)


@given(OFFSETS)
def test_base_offsets_round_trip(offset: int) -> None:
    name = log_file_name(offset)
    assert len(name) == 24
    assert base_offset_of(name) == offset
    assert base_offset_of(name + ".deleted") == offset
    assert is_log_file(name)


@given(
    OFFSETS,
    st.sampled_from(
        [
            FileKind.LOG,
            FileKind.INDEX,
            FileKind.TIME_INDEX,
            FileKind.TXN_INDEX,
            FileKind.PRODUCER_SNAPSHOT,
        ]
    ),
    st.sampled_from(["", ".deleted", ".cleaned", ".swap"]),
)
def test_segment_files_are_told_apart(offset: int, kind: FileKind, state: str) -> None:
    name = segment_file_name(offset, kind.value) + state
    assert classify(name) == FileName(kind=kind, base_offset=offset, state=state)


def test_other_files_of_a_partition() -> None:
    snapshot = metadata_snapshot_name(933, 2)
    assert snapshot == "00000000000000000933-0000000002.checkpoint"
    assert classify(snapshot).kind is FileKind.METADATA_SNAPSHOT
    assert classify(snapshot + ".part").state == ".part"
    assert classify("leader-epoch-checkpoint").kind is FileKind.LEADER_EPOCHS
    assert classify("partition.metadata.tmp") == FileName(
        kind=FileKind.PARTITION_METADATA, base_offset=None, state=".tmp"
    )
    assert classify("quorum-state").kind is FileKind.QUORUM_STATE


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x.log",
        "1.log",
        "00000000000000000000.log.bak",
        "00000000000000000000.checkpoint",
        "00000000000000000000-0000000001.log",
        "99999999999999999999.log",
        "\u0660" * 20 + ".log",
    ],
)
def test_foreign_names_are_of_no_kind(name: str) -> None:
    assert classify(name).kind is FileKind.OTHER


def test_names_without_an_offset_are_corrupt() -> None:
    for name in ("x.log", ".log", "-1.log", "99999999999999999999.log", "\u0660.log"):
        with pytest.raises(CorruptError):
            base_offset_of(name)


def test_index_files() -> None:
    assert is_index_file("1.index")
    assert is_index_file("1.timeindex")
    assert is_index_file("1.txnindex")
    assert not is_index_file("1.index.deleted")
