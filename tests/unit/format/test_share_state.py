from __future__ import annotations

from cordwood.format.share_state import SHARE_STATE_RECORDS
from cordwood.model.uuids import ZERO_UUID


def test_snapshots_and_updates_round_trip() -> None:
    for record_type in (0, 1):
        key = SHARE_STATE_RECORDS.encode_key(record_type, {"groupId": "g", "partition": 3})
        assert SHARE_STATE_RECORDS.decode_key(key).fields == {
            "groupId": "g",
            "topicId": ZERO_UUID,
            "partition": 3,
        }
        batch = {"firstOffset": 1, "lastOffset": 2, "deliveryState": 0, "deliveryCount": 1}
        data = SHARE_STATE_RECORDS.encode_value(record_type, 0, {"stateBatches": [batch]})
        value = SHARE_STATE_RECORDS.decode_value(record_type, data)
        assert value is not None
        assert value.fields["stateBatches"] == [batch]
        assert value.fields["deliveryCompleteCount"] == -1
