"""The notes of a deleted topic."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.format.trash_notes import (
    RemovedOffset,
    RemovedPartition,
    RemovedTopic,
    build_closed_partitions,
    build_removed_offsets,
    build_removed_topic,
    parse_removed_topic,
)
from cordwood.model.errors import CorruptError

PARTITION = RemovedPartition(
    partition=0,
    log_dir="/data",
    leader_epoch=3,
    partition_epoch=4,
    log_start_offset=1,
    log_end_offset=9,
    high_watermark=9,
    recovery_point=5,
)
TOPIC = RemovedTopic(
    at_ms=1,
    expires_ms=2,
    name="orders",
    topic_id=UUID(int=7 << 80),
    settings={"retention.ms": "-1"},
    replicas=1,
    partitions=(PARTITION, replace(PARTITION, partition=1)),
)
OFFSET = RemovedOffset(group="g", partition=1, offset=4, leader_epoch=-1, metadata="m")


def test_later_lines_add_to_a_topic() -> None:
    data = build_removed_topic(TOPIC)
    assert parse_removed_topic(data) == TOPIC
    data += build_removed_offsets([OFFSET]) + build_closed_partitions([1])
    closed = (PARTITION, replace(PARTITION, partition=1, is_closed=True))
    found = replace(TOPIC, offsets=(OFFSET,), partitions=closed)
    assert parse_removed_topic(data) == found
    cut = build_removed_offsets([OFFSET])[:-5]
    assert parse_removed_topic(data + cut) == found


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]\n",
        b"{}\n",
        build_removed_offsets([OFFSET]),
        build_removed_topic(TOPIC)[:-1],
        build_removed_topic(TOPIC).replace(b'"at_ms": 1', b'"at_ms": "1"'),
        build_removed_topic(TOPIC).replace(b'"orders"', json.dumps(["orders"]).encode()),
        build_removed_topic(TOPIC).replace(b'"partition": 1', b'"partition": null'),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_removed_topic(data)
