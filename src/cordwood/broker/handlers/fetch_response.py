"""A Fetch response's bytes, in which the records stay in their files.

Source: FetchResponse.json, versions 4 to 18.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.reading import PartitionRead
from cordwood.format.messages.primitives import write_uvarint
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.serving.api import Encoded, Part
from cordwood.serving.handlers.cluster_facts import current_leader, endpoints_of

_FLEXIBLE_SINCE = 12
_TOPIC_IDS_SINCE = 13
_SESSIONS_SINCE = 7
_LOG_START_SINCE = 5
_READ_REPLICA_SINCE = 11
_LEADERS_SINCE = 16
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
# Kafka finds these before it reads, and then writes no null for aborted transactions.
_NOT_THERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)

_THROTTLE_ERROR_SESSION = struct.Struct(">ihi")
_INT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
# index, error code, high watermark, last stable offset, log start offset
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_AND_END = struct.Struct(">iq")
_LEADER_AND_EPOCH = struct.Struct(">ii")
_NO_REPLICA = _INT.pack(-1)


def build_response(
    context: BrokerContext,
    *,
    error_code: int,
    session_id: int,
    partitions: Sequence[PartitionRead],
) -> Encoded:
    """The body, with a range of a file for each partition that has records."""
    version = context.api_version
    flexible = version >= _FLEXIBLE_SINCE
    parts: list[Part] = []
    out = bytearray()
    if version >= _SESSIONS_SINCE:
        out += _THROTTLE_ERROR_SESSION.pack(0, error_code, session_id)
    else:
        out += _INT.pack(0)
    leaders: list[int] = []
    topics = _by_topic(partitions)
    _write_count(out, len(topics), flexible=flexible)
    for topic in in_steps(topics):
        _write_topic(out, topic[0], version)
        _write_count(out, len(topic), flexible=flexible)
        for one in in_steps(topic, every=16):
            _write_partition(out, one, version)
            if one.records is not None:
                parts += (bytes(out), one.records)
                out.clear()
            if flexible:
                leader = None
                if version >= _LEADERS_SINCE and one.error_code in _MOVED:
                    key, image = one.wanted.key, context.broker.metadata.image
                    leader = current_leader(image, key.topic, key.partition)
                    leaders.append(leader[0])
                _write_tags(out, one, leader)
        if flexible:
            out.append(0)
    endpoints = endpoints_of(context, leaders) if leaders else ()
    if endpoints:
        data = _encoded_endpoints(endpoints)
        out += b"\x01\0"  # one tag: number 0
        write_uvarint(out, len(data))
        out += data
    elif flexible:
        out.append(0)
    if out:
        parts.append(bytes(out))
    return Encoded(parts)


def _by_topic(partitions: Sequence[PartitionRead]) -> list[list[PartitionRead]]:
    """Runs of partitions of one topic, in the order given."""
    topics: list[list[PartitionRead]] = []
    last: object = None
    for one in in_steps(partitions, every=64):
        key = one.wanted.key
        topic = (key.topic_id, key.topic)
        if topic == last:
            topics[-1].append(one)
        else:
            topics.append([one])
            last = topic
    return topics


def _write_count(out: bytearray, count: int, *, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += _INT.pack(count)


def _write_topic(out: bytearray, one: PartitionRead, version: int) -> None:
    key = one.wanted.key
    if version >= _TOPIC_IDS_SINCE:
        out += b"\0" * 16 if key.topic_id is None else key.topic_id.bytes
        return
    name = key.topic.encode()
    if version >= _FLEXIBLE_SINCE:
        write_uvarint(out, len(name) + 1)
    else:
        out += _LENGTH.pack(len(name))
    out += name


def _write_partition(out: bytearray, one: PartitionRead, version: int) -> None:
    """All up to the length of the records, and where there are none that too."""
    flexible = version >= _FLEXIBLE_SINCE
    head = _PARTITION.pack(
        one.wanted.key.partition,
        one.error_code,
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset,
    )
    out += head if version >= _LOG_START_SINCE else head[:-8]
    aborted = () if one.error_code in _NOT_THERE else one.aborted
    if aborted is None:
        out += b"\0" if flexible else _NO_REPLICA  # null
    else:
        _write_count(out, len(aborted), flexible=flexible)
        for transaction in aborted:
            out += _ABORTED.pack(transaction.producer_id, transaction.first_offset)
            if flexible:
                out.append(0)
    if version >= _READ_REPLICA_SINCE:
        out += _INT.pack(one.preferred_replica)
    if flexible:
        write_uvarint(out, one.size_bytes + 1)
    else:
        out += _INT.pack(one.size_bytes)


def _write_tags(out: bytearray, one: PartitionRead, leader: tuple[int, int] | None) -> None:
    out.append((one.diverging is not None) + (leader is not None))
    if one.diverging is not None:
        # number 0, 13 bytes: epoch, end offset, no tags
        out += b"\x00\x0d" + _EPOCH_AND_END.pack(*one.diverging) + b"\0"
    if leader is not None:
        # number 1, 9 bytes: id, epoch, no tags
        out += b"\x01\x09" + _LEADER_AND_EPOCH.pack(*leader) + b"\0"


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
