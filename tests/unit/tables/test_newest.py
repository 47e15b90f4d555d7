"""The newest record of each key in slices of a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.frames.slices import Slice, slices_of
from cordwood.frames.wanted import Isolation, Wanted
from cordwood.model.errors import CorruptError
from cordwood.tables import newest
from cordwood.tables.newest import newest_offsets, newest_records
from support.log_builder import LogBuilder


def slices(root: Path, keys: Sequence[bytes | None]) -> list[Slice]:
    log = LogBuilder("orders-0")
    for number, key in enumerate(keys):
        if number and number % 7 == 0:
            log.roll()
        log.put(key, b"%d" % number)
    captured = log.capture(log.write(root / "orders-0"), LogConfig())
    return [*slices_of(captured, Wanted(), Isolation.READ_COMMITTED)]


@pytest.mark.parametrize("folded_rows", [0, 3, 1000])
def test_each_key_has_its_last_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folded_rows: int
) -> None:
    monkeypatch.setattr(newest, "_FOLDED_ROWS", folded_rows)
    keys = [b"a", b"b", b"a", None, b"", b"c", b"b", b"d", b"a", None, b"e", b"", b"b", b"f", b"d"]
    parts = slices(tmp_path, keys)
    last = {key: offset for offset, key in enumerate(keys) if key is not None}
    assert newest_offsets(parts).tolist() == sorted(last.values())
    found = [row for batch in newest_records(parts, ("offset", "key")) for row in batch.to_pylist()]
    assert found == [{"offset": offset, "key": keys[offset]} for offset in sorted(last.values())]


def test_a_log_without_keys_has_none(tmp_path: Path) -> None:
    assert [*newest_records(slices(tmp_path, [None, None]), ("offset",))] == []
    assert [*newest_records([], ("offset",))] == []


def test_a_compaction_between_both_passes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = slices(tmp_path, [b"a", b"b", b"a"])
    # As if the first pass had found a record that the second one does not.
    monkeypatch.setattr(newest, "newest_offsets", lambda _: np.array([1, 2, 7]))
    with pytest.raises(CorruptError, match=r"orders-0: 1 records .* start the run again"):
        list(newest_records(parts, ("offset", "key")))
