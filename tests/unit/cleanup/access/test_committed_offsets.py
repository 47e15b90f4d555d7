"""Committed offsets as the coordinator would have them, from the files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.cleanup.access.committed_offsets import Committed, read_committed
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.offset_commit import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from cordwood.model.errors import CorruptError
from cordwood.model.uuids import ZERO_UUID
from support.log_builder import LogBuilder

PRODUCER = (7, 0)


def commit(group: str, offset: int | None, *, expires: int = -1) -> tuple[bytes, bytes | None]:
    """A record for partition 3 of topic t; None removes the offset."""
    key = encode_offset_commit_key(OffsetCommitKey(group, "t", 3))
    if offset is None:
        return key, None
    return key, encode_offset_commit_value(OffsetCommitValue(offset, -1, "", 1, expires, ZERO_UUID))


def read(log: LogBuilder, directory: Path) -> Committed:
    log.write(directory)
    return read_committed(log.capture(directory, LogConfig()).sources)


def test_the_last_commit_counts_and_a_tombstone_removes_it(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-0")
    log.batch([commit("a", 1), commit("b", 5)], codec=Codec.ZSTD)
    log.roll()
    log.batch([commit("a", 2), commit("c", 9, expires=10), (b"\x00\x02\x00\x01g", b"other")])
    log.batch([commit("b", None)])
    assert read(log, tmp_path / "p") == {("a", "t-3"): 2, ("c", "t-3"): 9}


def test_commits_of_a_transaction_count_when_it_is_committed(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-0")
    log.batch([commit("a", 1)])
    log.batch([commit("a", 2)], producer=PRODUCER, transactional=True)
    log.marker(PRODUCER, commit=False)
    log.batch([commit("b", 3)], producer=PRODUCER, transactional=True)
    log.marker(PRODUCER, commit=True)
    log.batch([commit("c", 4)], producer=PRODUCER, transactional=True)
    assert read(log, tmp_path / "p") == {("a", "t-3"): 1, ("b", "t-3"): 3}


def test_a_damaged_batch_names_the_file(tmp_path: Path) -> None:
    log = LogBuilder("__consumer_offsets-0")
    log.batch([commit("a", 1)])
    log.batch([commit("a", 2)])
    log.write(tmp_path / "p")
    sources = log.capture(tmp_path / "p", LogConfig()).sources
    path = Path(sources[0].path)
    data = bytearray(path.read_bytes())
    data[16] = 9  # the magic
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=r"00000000000000000000\.log"):
        read_committed(sources)
