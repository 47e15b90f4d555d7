"""Records of `__remote_log_metadata`, printed as Kafka's classes print themselves.

Source: toString of RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
RemotePartitionDeleteMetadata and RemoteLogSegmentMetadataSnapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cordwood.format.remote_log_metadata import SCHEMA_OF_API_KEY
from cordwood.model.errors import CorruptError
from cordwood.model.uuids import uuid_text
from cordwood.surfaces.dump.frame import read_framed_message
from cordwood.surfaces.dump.java_text import java_boolean

_SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)
_NULL_VALUE = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


def remote_metadata_text(value: bytes | None) -> str:
    """The text of a record's value.

    Raises:
        CorruptError: it cannot be read, or is invalid for a remote segment.
    """
    if value is None:
        raise CorruptError(_NULL_VALUE)
    message = read_framed_message(SCHEMA_OF_API_KEY, value)
    return _TEXTS[message.schema.key](message.fields)


def _segment_text(fields: Mapping[str, Any]) -> str:
    _require_offsets(fields)
    segment_id = _segment_id_text(fields["remoteLogSegmentId"])
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={segment_id}, "
        f"startOffset={fields['startOffset']}, endOffset={fields['endOffset']}, "
        f"brokerId={fields['brokerId']}, maxTimestampMs={fields['maxTimestampMs']}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, {_common_text(fields)}}}"
    )


def _update_text(fields: Mapping[str, Any]) -> str:
    segment_id = _segment_id_text(fields["remoteLogSegmentId"])
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={segment_id}, "
        f"customMetadata={_custom_text(fields['customMetadata'])}, "
        f"state={_segment_state(fields['remoteLogSegmentState'])}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, brokerId={fields['brokerId']}}}"
    )


def _partition_delete_text(fields: Mapping[str, Any]) -> str:
    return (
        "RemotePartitionDeleteMetadata{"
        f"topicPartition={_partition_text(fields['topicIdPartition'])}, "
        f"state={_partition_state(fields['remotePartitionDeleteState'])}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, brokerId={fields['brokerId']}}}"
    )


def _snapshot_text(fields: Mapping[str, Any]) -> str:
    _segment_state(fields["remoteLogSegmentState"])  # its errors take precedence
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={uuid_text(fields['segmentId'])}, "
        f"startOffset={fields['startOffset']}, endOffset={fields['endOffset']}, "
        f"maxTimestampMs={fields['maxTimestampMs']}, {_common_text(fields)}}}"
    )


_TEXTS: Mapping[int, Callable[[Mapping[str, Any]], str]] = {
    0: _segment_text,
    1: _update_text,
    2: _partition_delete_text,
    3: _snapshot_text,
}


def _common_text(fields: Mapping[str, Any]) -> str:
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in fields["segmentLeaderEpochs"]}
    if not epochs:
        raise CorruptError("segmentLeaderEpochs can not be null or empty")
    epochs_text = ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(epochs.items()))
    return (
        f"segmentLeaderEpochs={{{epochs_text}}}, "
        f"segmentSizeInBytes={fields['segmentSizeInBytes']}, "
        f"customMetadata={_custom_text(fields['customMetadata'])}, "
        f"state={_segment_state(fields['remoteLogSegmentState'])}, "
        f"txnIdxEmpty={java_boolean(fields['txnIndexEmpty'])}"
    )


def _require_offsets(fields: Mapping[str, Any]) -> None:
    start, end = fields["startOffset"], fields["endOffset"]
    if start < 0:
        raise CorruptError(
            f"Unexpected start offset = {start}. "
            "StartOffset for a remote segment cannot be negative"
        )
    if end < start:
        raise CorruptError(
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than "
            f"startOffset = {start}"
        )


def _segment_id_text(fields: Mapping[str, Any]) -> str:
    partition = _partition_text(fields["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={uuid_text(fields['id'])}}}"


def _partition_text(fields: Mapping[str, Any]) -> str:
    return f"{uuid_text(fields['id'])}:{fields['name']}-{fields['partition']}"


def _custom_text(data: bytes | None) -> str:
    if data is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _segment_state(number: int) -> str:
    if not 0 <= number < len(_SEGMENT_STATES):
        raise CorruptError("state can not be null")
    return _SEGMENT_STATES[number]


def _partition_state(number: int) -> str:
    if not 0 <= number < len(_PARTITION_STATES):
        raise CorruptError("null")  # Kafka's exception has no message here
    return _PARTITION_STATES[number]
