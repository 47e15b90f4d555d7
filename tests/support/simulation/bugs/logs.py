"""Bugs in the log: its flushes, producers, epochs and starts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from cordwood.format.batch_header import TRANSACTIONAL_BIT
from cordwood.format.file_names import CLEAN_SHUTDOWN
from cordwood.storage.loaded_log_directory import LoadedLogDirectory
from cordwood.storage.log import truncation
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.producers.append_producers import AppendProducers
from cordwood.storage.segment.log_segment import LogSegment
from support.simulation.bugs.planting import replaced


def skipped_fsync() -> AbstractContextManager[None]:
    """A flush does not sync the records, and the recovery point moves all the same."""
    return replaced(LogSegment, "flush_log", lambda _self: None)


def duplicates_appended() -> AbstractContextManager[None]:
    """Plants a bug: writes of idempotent producers are forgotten, and duplicates appended."""
    real = AppendProducers.analyze

    def analyze(self: AppendProducers, batches: Any) -> Any:
        if any(batch.header.attributes & TRANSACTIONAL_BIT for batch in batches):
            return real(self, batches)
        return None

    return replaced(AppendProducers, "analyze", analyze)


def producers_survive_truncation() -> AbstractContextManager[None]:
    """A log that is cut off keeps what it knows of the producers of what is gone."""
    return replaced(truncation, "_rebuild_producers", lambda _log: None)


def epochs_survive_truncation() -> AbstractContextManager[None]:
    """A log that is cut off keeps the leader epochs of what is gone."""
    return replaced(
        LeaderEpochCache, "truncate_from_end", lambda _self, _end, *, durably=True: None
    )


def aborted_transactions_not_replicated() -> AbstractContextManager[None]:
    """A follower does not index the aborted transactions whose markers it fetches."""
    real = PartitionLog.append_as_follower

    def append(self: PartitionLog, *arguments: Any, **options: Any) -> Any:
        with replaced(LogSegment, "note_completed", lambda _self, _completed, _stable: None):
            return real(self, *arguments, **options)

    return replaced(PartitionLog, "append_as_follower", append)


def unclean_start_taken_for_clean() -> AbstractContextManager[None]:
    """Logs are opened as after a stop in order, whatever came before: nothing is recovered."""
    real = LoadedLogDirectory.load

    def load(self: LoadedLogDirectory, *arguments: Any, **options: Any) -> Any:
        if not self.had_clean_shutdown:
            self.fs.create(self.path / CLEAN_SHUTDOWN).close()
            self.had_clean_shutdown = True
        return real(self, *arguments, **options)

    return replaced(LoadedLogDirectory, "load", load)
