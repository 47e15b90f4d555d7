from __future__ import annotations

import pytest

from cordwood.format.compression import Codec
from cordwood.format.legacy import LegacyBatch, build_legacy_wrapper
from cordwood.format.record_batch import Record
from cordwood.model.errors import CorruptError
from cordwood.surfaces.dump.log import GapFinder, messages_of, snapshot_id
from cordwood.surfaces.dump.output import Findings


def test_names_of_metadata_snapshots() -> None:
    assert snapshot_id("00000000000000000933-0000000002.checkpoint") == (933, 2)
    assert snapshot_id("00000000000000000933-0000000002.checkpoint.deleted") == (933, 2)
    with pytest.raises(CorruptError):
        snapshot_id("933-2.checkpoint")


def test_a_log_is_expected_to_begin_at_zero_and_leave_nothing_out() -> None:
    findings = Findings()
    gaps = GapFinder("f", findings)
    for offset in (3, 4, 6):
        gaps.saw(offset)
    assert dict(findings.gaps.items()) == {"f": {-1: 3, 4: 6}}


def test_old_messages_come_with_what_holds_them() -> None:
    records = [Record(5, 1, b"a", None), Record(6, 2, None, b"b")]
    batch = LegacyBatch.parse(build_legacy_wrapper(records, magic=1, codec=Codec.GZIP))
    found = list(messages_of(batch))
    assert [record for record, _ in found] == records
    assert all(message is not None and message.is_valid() for _, message in found)
