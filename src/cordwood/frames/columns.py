"""Columns that several tables have."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from cordwood.format.batch_header import CREATE_TIME, LOG_APPEND_TIME
from cordwood.format.legacy import NO_TIMESTAMP_TYPE
from cordwood.frames.rows import MS_MAX, TIMESTAMP
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.reading.block import Block, Flags, Ints

_TIMESTAMP_TYPES: Final = {NO_TIMESTAMP_TYPE: -1, CREATE_TIME: 0, LOG_APPEND_TIME: 1}


def timestamps(ms: Ints) -> pa.Array:
    """Times in ms as `TIMESTAMP`."""
    # A producer may give any number; Spark's timestamps end a thousand times earlier.
    return pa.array(np.clip(ms, -MS_MAX, MS_MAX) * 1000).cast(TIMESTAMP)


def timestamp_types(are_append_times: Flags, block: Block) -> pa.Array:
    """Types of timestamps in a block by their numbers: 0 CreateTime, 1 LogAppendTime, -1 magic 0.

    Source: org.apache.kafka.common.record.TimestampType.
    """
    if block.legacy is not None:
        number = _TIMESTAMP_TYPES[block.legacy.timestamp_type]
        return pa.repeat(pa.scalar(number, pa.int32()), len(are_append_times))
    return pa.array(are_append_times.astype(np.int32))


def topics(partition: TopicPartition, rows: int) -> pa.Array:
    """The topic of a partition, in each row."""
    return pa.repeat(partition.topic, rows)


def partitions(partition: TopicPartition, rows: int) -> pa.Array:
    """The number of a partition, in each row."""
    return pa.repeat(pa.scalar(partition.partition, pa.int32()), rows)
