from __future__ import annotations

import struct

import pytest

from cordwood.format.control_record import ControlType, build_control_key
from cordwood.format.record import Record
from cordwood.model.errors import CorruptError
from cordwood.surfaces.dump.control import control_text


def test_every_kind_of_control_record() -> None:
    leader = bytes.fromhex("0000000000010200000001000100")
    for kind, value, text in [
        (ControlType.COMMIT, struct.pack(">hi", 0, 3), " endTxnMarker: COMMIT coordinatorEpoch: 3"),
        (
            ControlType.LEADER_CHANGE,
            leader,
            (
                ' LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],'
                '"grantingVoters":[]}'
            ),
        ),
        (
            ControlType.SNAPSHOT_HEADER,
            bytes(11),
            ' SnapshotHeader {"version":0,"lastContainedLogTimestamp":0}',
        ),
        (ControlType.SNAPSHOT_FOOTER, bytes(3), ' SnapshotFooter {"version":0}'),
        (ControlType.KRAFT_VERSION, bytes(5), ' KRaftVersion {"version":0,"kRaftVersion":0}'),
        (ControlType.KRAFT_VOTERS, b"\0\0\1\0", ' KRaftVoters {"version":0,"voters":[]}'),
    ]:
        assert control_text(Record(0, 0, build_control_key(kind), value)) == text
    unknown = Record(0, 0, struct.pack(">hh", 0, 9), None)
    assert control_text(unknown) == " controlType: UNKNOWN(9)"


def test_malformed_control_records_are_corrupt() -> None:
    with pytest.raises(CorruptError):
        control_text(Record(0, 0, None, None))
