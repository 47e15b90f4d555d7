"""The text of control records: transaction markers, and KRaft's own records.

Source: DumpLogSegments.printControlRecord.
"""

from __future__ import annotations

from cordwood.format.control_record import (
    ControlType,
    parse_control_key,
    parse_control_type_id,
    parse_end_txn_marker,
    parse_kraft_control_value,
)
from cordwood.format.message_schema import message_json
from cordwood.format.record import Record
from cordwood.surfaces.dump.java_text import json_text

_KRAFT_LABELS = {
    ControlType.LEADER_CHANGE: " LeaderChange: ",
    ControlType.SNAPSHOT_HEADER: " SnapshotHeader ",
    ControlType.SNAPSHOT_FOOTER: " SnapshotFooter ",
    ControlType.KRAFT_VERSION: " KRaftVersion ",
    ControlType.KRAFT_VOTERS: " KRaftVoters ",
}


def control_text(record: Record) -> str:
    """The text of a control record, with the space before it.

    Raises:
        CorruptError: its key or value is malformed.
    """
    control_type = parse_control_key(record.key)
    if control_type in {ControlType.ABORT, ControlType.COMMIT}:
        marker = parse_end_txn_marker(record.key, record.value)
        return f" endTxnMarker: {control_type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    if control_type is ControlType.UNKNOWN:
        return f" controlType: UNKNOWN({parse_control_type_id(record.key)})"
    message = parse_kraft_control_value(control_type, record.value)
    return _KRAFT_LABELS[control_type] + json_text(message_json(message))
