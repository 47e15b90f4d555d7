"""A Fetch response's bytes, in which the records stay in their files.

Source: FetchResponse.json, versions 4 to 18.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from cordwood.broker.fetch_sessions import FetchPartition
from cordwood.format.messages.primitives import write_uvarint
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.pauses import in_steps
from cordwood.serving.api import Encoded, Part
from cordwood.storage.segment.batch_walk import FileRange

_FLEXIBLE_SINCE = 12
_TOPIC_IDS_SINCE = 13
_SESSIONS_SINCE = 7
_LOG_START_SINCE = 5
_READ_REPLICA_SINCE = 11

_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
_INT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
# index, error code, high watermark, last stable offset, log start offset
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_AND_END = struct.Struct(">iq")
_LEADER_AND_EPOCH = struct.Struct(">ii")
_NO_REPLICA = _INT.pack(-1)


class PartitionAnswer:
    """What is said of one partition; -1 for offsets that are not known, as in every error."""

    __slots__ = (
        "aborted",
        "current_leader",
        "diverging",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_replica",
        "records",
        "size_bytes",
        "wanted",
    )

    def __init__(
        self,
        wanted: FetchPartition,
        *,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        records: FileRange | None = None,
        aborted: Sequence[AbortedTransaction] | None = None,
        diverging: tuple[int, int] | None = None,
        current_leader: tuple[int, int] | None = None,
        preferred_replica: int = -1,
    ) -> None:
        self.wanted = wanted
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.size_bytes = 0 if records is None else records.size_bytes
        self.aborted = aborted
        self.diverging = diverging
        self.current_leader = current_leader
        self.preferred_replica = preferred_replica


def build_response(
    version: int,
    *,
    error_code: int,
    session_id: int,
    answers: Sequence[PartitionAnswer],
    endpoints: Sequence[Mapping[str, Any]] = (),
) -> Encoded:
    """The body, with a range of a file for each partition that has records.

    `endpoints` are those of the brokers that are the current leaders of partitions (KIP-951).
    """
    flexible = version >= _FLEXIBLE_SINCE
    parts: list[Part] = []
    out = bytearray()
    if version >= _SESSIONS_SINCE:
        out += _THROTTLE_ERROR_SESSION.pack(0, error_code, session_id)
    else:
        out += _INT.pack(0)
    topics = _by_topic(answers)
    _write_count(out, len(topics), flexible=flexible)
    for topic in in_steps(topics):
        _write_topic(out, topic[0], version)
        _write_count(out, len(topic), flexible=flexible)
        for answer in in_steps(topic, every=16):
            _write_partition(out, answer, version)
            if answer.records is not None:
                parts += (bytes(out), answer.records)
                out.clear()
            if flexible:
                _write_tags(out, answer)
        if flexible:
            out.append(0)
    if flexible and endpoints:
        data = _encoded_endpoints(endpoints)
        out += b"\x01\0"  # one tag: number 0
        write_uvarint(out, len(data))
        out += data
    elif flexible:
        out.append(0)
    if out:
        parts.append(bytes(out))
    return Encoded(parts)


def _by_topic(answers: Sequence[PartitionAnswer]) -> list[list[PartitionAnswer]]:
    """Runs of partitions of one topic, in the order given."""
    topics: list[list[PartitionAnswer]] = []
    last: object = None
    for answer in in_steps(answers, every=64):
        key = answer.wanted.key
        topic = (key.topic_id, key.topic)
        if topic == last:
            topics[-1].append(answer)
        else:
            topics.append([answer])
            last = topic
    return topics


def _write_count(out: bytearray, count: int, *, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += _INT.pack(count)


def _write_topic(out: bytearray, answer: PartitionAnswer, version: int) -> None:
    key = answer.wanted.key
    if version >= _TOPIC_IDS_SINCE:
        out += b"\0" * 16 if key.topic_id is None else key.topic_id.bytes
        return
    name = key.topic.encode()
    if version >= _FLEXIBLE_SINCE:
        write_uvarint(out, len(name) + 1)
    else:
        out += _LENGTH.pack(len(name))
    out += name


def _write_partition(out: bytearray, answer: PartitionAnswer, version: int) -> None:
    """All up to the length of the records, and where there are none that too."""
    flexible = version >= _FLEXIBLE_SINCE
    head = _PARTITION.pack(
        answer.wanted.key.partition,
        answer.error_code,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
    )
    out += head if version >= _LOG_START_SINCE else head[:-8]
    if answer.aborted is None:
        out += b"\0" if flexible else _NO_REPLICA  # null
    else:
        _write_count(out, len(answer.aborted), flexible=flexible)
        for transaction in answer.aborted:
            out += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
            if flexible:
                out.append(0)
    if version >= _READ_REPLICA_SINCE:
        out += _INT.pack(answer.preferred_replica)
    if flexible:
        write_uvarint(out, answer.size_bytes + 1)
    else:
        out += _INT.pack(answer.size_bytes)


def _write_tags(out: bytearray, answer: PartitionAnswer) -> None:
    out.append((answer.diverging is not None) + (answer.current_leader is not None))
    if answer.diverging is not None:
        # number 0, 13 bytes: epoch, end offset, no tags
        out += b"\x00\x0d" + _EPOCH_AND_END.pack(*answer.diverging) + b"\0"
    if answer.current_leader is not None:
        # number 1, 9 bytes: id, epoch, no tags
        out += b"\x01\x09" + _LEADER_AND_EPOCH.pack(*answer.current_leader) + b"\0"


def _encoded_endpoints(endpoints: Sequence[Mapping[str, Any]]) -> bytes:
    out = bytearray()
    write_uvarint(out, len(endpoints) + 1)
    for each in endpoints:
        out += _INT.pack(each["node_id"])
        _write_text(out, each["host"])
        out += _INT.pack(each["port"])
        _write_text(out, each["rack"])
        out.append(0)
    return bytes(out)


def _write_text(out: bytearray, text: str | None) -> None:
    data = b"" if text is None else text.encode()
    write_uvarint(out, 0 if text is None else len(data) + 1)
    out += data
