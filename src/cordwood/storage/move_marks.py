"""Marks a log that takes the place of another one, which lies in another log directory.

A move ends with a rename in either directory, and a crash may come between. Two live logs of one
partition are found then; Kafka leaves the choice to people. The mark is a file beside the segments,
which Kafka ignores: the log that has it is the new one, complete and on disk.

Source: org.apache.kafka.storage.internals.log.LogManager.replaceCurrentWithFutureLog.
"""

from __future__ import annotations

from cordwood.storage.log.partition_log import LEADER_OFFSET_INCREMENT, PartitionLog

MARK_NAME = "cordwood.moved"


def hand_over(current: PartitionLog, future: PartitionLog) -> None:
    """Copies the state of the current log, other than records, to a log that has all its records.

    Raises:
        StorageError: the disk refused.
    """
    latest = current.leader_epochs.latest_entry
    if latest is not None:
        future.assign_epoch(latest.epoch, latest.start_offset)
    future.update_high_watermark(current.high_watermark)
    future.maybe_increment_log_start_offset(current.log_start_offset, LEADER_OFFSET_INCREMENT)


def set_mark(log: PartitionLog) -> None:
    """Marks a log, durably.

    Raises:
        StorageError: the disk refused.
    """
    with log.guard("marking"):
        log.context.fs.write_durably(log.directory / MARK_NAME, b"")


def remove_mark(log: PartitionLog) -> None:
    """Removes the mark durably, if there is one.

    Raises:
        StorageError: the disk refused.
    """
    with log.guard("unmarking"):
        if has_mark(log):
            log.context.fs.remove(log.directory / MARK_NAME)
            log.context.fs.sync_directory(log.directory)


def has_mark(log: PartitionLog) -> bool:
    """Whether a log took, or was about to take, the place of another."""
    return log.context.fs.exists(log.directory / MARK_NAME)
