"""Refusals of reads and appends at damaged bytes and offsets, with their places."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from cordwood.model.clock import Clock
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    InvalidRecordError,
    OffsetsOutOfOrderError,
)
from cordwood.model.offsets import LEADERS_END_MAX, OFFSET_MAX
from cordwood.model.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_LOG_PERIOD_S: Final = 60.0


class DamageReports:
    """The damage in one log that readers meet: logged at most once a minute."""

    def __init__(self, partition: TopicPartition, clock: Clock) -> None:
        """Nothing is logged yet."""
        self._partition = partition
        self._clock = clock
        self._next_s = float("-inf")

    def answer(self, error: CorruptError) -> CorruptMessageError:
        """The error of a read of damaged bytes.

        Differs: Kafka continues with the next segment where a file ends in part of a batch, and the
        records of that batch are missing silently.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self._next_s:
            self._next_s = now_s + _LOG_PERIOD_S
            _log.error(
                "Records of %s are damaged and cannot be read: %s. Readers get CORRUPT_MESSAGE "
                "there, and can continue behind the damage; `cordwood verify` shows all of it",
                self._partition,
                error,
            )
        return CorruptMessageError(str(error))


def require_offsets_left(partition: TopicPartition, log_end_offset: int) -> None:
    """Checks that a leader has offsets left for a request.

    Raises:
        InvalidRecordError: it has not.
    """
    if log_end_offset > LEADERS_END_MAX:
        raise InvalidRecordError(
            f"{partition} ends at offset {log_end_offset}, above {LEADERS_END_MAX}, the highest at "
            "which a leader appends: an offset in its directory is damaged. Restore it from a "
            "copy, or delete the topic"
        )


def require_ascending(partition: TopicPartition, last_offsets: Sequence[int]) -> None:
    """Checks the last offsets of batches that a leader has sent.

    Raises:
        OffsetsOutOfOrderError: they do not ascend.
        CorruptMessageError: no record can follow one.
    """
    last = -1
    for offset in last_offsets:
        if offset >= OFFSET_MAX:
            raise CorruptMessageError(
                f"A batch for {partition} ends at offset {offset}, behind which no record can "
                "follow"
            )
        if offset <= last:
            raise OffsetsOutOfOrderError(
                f"Out of order offsets found in append to {partition}: {list(last_offsets)}"
            )
        last = offset
