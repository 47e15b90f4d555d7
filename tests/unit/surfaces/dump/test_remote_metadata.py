from __future__ import annotations

from typing import Any

import pytest

from cordwood.format.message_schema import encode_message
from cordwood.format.remote_log_metadata import SCHEMA_OF_API_KEY
from cordwood.model.errors import CorruptError
from cordwood.surfaces.dump.remote_metadata import remote_metadata_text

ZERO = "AAAAAAAAAAAAAAAAAAAAAA"
PARTITION = {"name": "t", "partition": 3}
SEGMENT: dict[str, Any] = {
    "remoteLogSegmentId": {"topicIdPartition": PARTITION},
    "endOffset": 9,
    "segmentLeaderEpochs": [{"leaderEpoch": 4, "offset": 5}, {"leaderEpoch": 0, "offset": 0}],
    "customMetadata": b"abc",
}


def text(api_key: int, fields: dict[str, Any]) -> str:
    body = encode_message(SCHEMA_OF_API_KEY[api_key], 0, fields)
    return remote_metadata_text(bytes([1, api_key, 0]) + body)


def test_every_kind() -> None:
    segment_id = f"RemoteLogSegmentId{{topicIdPartition={ZERO}:t-3, id={ZERO}}}"
    assert text(0, SEGMENT) == (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={segment_id}, startOffset=0, endOffset=9, "
        "brokerId=0, maxTimestampMs=0, eventTimestampMs=0, segmentLeaderEpochs={0=0, 4=5}, "
        "segmentSizeInBytes=0, customMetadata=Optional[CustomMetadata{3 bytes}], "
        "state=COPY_SEGMENT_STARTED, txnIdxEmpty=false}"
    )
    assert text(1, {**SEGMENT, "customMetadata": None}) == (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={segment_id}, "
        "customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED, eventTimestampMs=0, "
        "brokerId=0}"
    )
    assert text(2, {"topicIdPartition": PARTITION, "remotePartitionDeleteState": 2}) == (
        f"RemotePartitionDeleteMetadata{{topicPartition={ZERO}:t-3, "
        "state=DELETE_PARTITION_FINISHED, eventTimestampMs=0, brokerId=0}"
    )
    assert text(3, {**SEGMENT, "txnIndexEmpty": True}).endswith("txnIdxEmpty=true}")


@pytest.mark.parametrize(
    ("api_key", "fields", "words"),
    [
        (0, {"startOffset": -1}, "Unexpected start offset = -1"),
        (0, {"startOffset": 10}, "Unexpected end offset = 9"),
        (0, {"segmentLeaderEpochs": []}, "can not be null or empty"),
        (3, {"remoteLogSegmentState": 9, "segmentLeaderEpochs": []}, "state can not be null"),
        (2, {"remotePartitionDeleteState": 9}, "null"),
    ],
)
def test_what_cannot_be_is_told(api_key: int, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CorruptError, match=words):
        text(api_key, SEGMENT | fields)


def test_null_is_told() -> None:
    with pytest.raises(CorruptError, match="Cannot invoke"):
        remote_metadata_text(None)
