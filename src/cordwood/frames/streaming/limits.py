"""Divides what a stream may read at once among partitions.

Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream.rateLimit.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def shares(sizes: Mapping[K, int], at_most: int) -> dict[K, int]:
    """The share of each in `at_most`, in proportion to its size, and at least 1 of what is not 0.

    A share is no larger than the size: all of it, where all sizes are within `at_most`.
    """
    total = sum(sizes.values())
    if total <= at_most:
        return dict(sizes)
    return {key: max(at_most * size // total, min(size, 1)) for key, size in sizes.items()}
