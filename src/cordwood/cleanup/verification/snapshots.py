"""Contradictions in entries of producer snapshots, whatever batches are missing from the log.

A compaction takes batches and markers of a producer, but not one behind the last of them that is
left, unless the producer has written more since.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager, Cleaner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cordwood.cleanup.verification.sequences import SEQUENCES
from cordwood.format.producer_snapshot import ProducerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInLog:
    """A producer as far as the log has it.

    Args:
        known: its state as replayed; None if it has no batch.
        is_seen: no batch of the log is missing behind its last one.
        open_since: where the data of its open transaction begins; None without one.
        ended_at: the offset of its last marker; -1 without one.
    """

    known: ProducerEntry | None
    is_seen: bool
    open_since: int | None
    ended_at: int


def contradiction(
    entry: ProducerEntry, log: ProducerInLog, is_there: Callable[[int], bool]
) -> str | None:
    """A contradiction in an entry; `is_there` says whether the log has a batch with an offset."""
    first, last = entry.current_txn_first_offset, entry.last_offset
    known_last = -1 if log.known is None else log.known.last_offset
    if first < 0 and log.open_since is not None:
        return f"the log has data of an open transaction at offset {log.open_since}"
    if last > known_last and is_there(last):
        return f"the log has no batch of the producer that ends at offset {last}"
    if 0 <= last < known_last:
        return f"the log has a batch of the producer up to offset {known_last}"
    if 0 <= first <= log.ended_at:
        return f"the log has a marker of the producer at offset {log.ended_at}"
    if log.known is None:
        return None
    if first >= 0 and is_there(first) and first != log.known.current_txn_first_offset:
        return f"the log has no transaction that is open since offset {first}"
    return _wrong_batch(entry, log.known, is_seen=log.is_seen)


def _wrong_batch(entry: ProducerEntry, known: ProducerEntry, *, is_seen: bool) -> str | None:
    if entry.producer_epoch < known.producer_epoch:
        return f"the log has epoch {known.producer_epoch}"
    if 0 <= entry.coordinator_epoch < known.coordinator_epoch:
        return f"the log has coordinator epoch {known.coordinator_epoch}"
    is_same_epoch = entry.producer_epoch == known.producer_epoch
    if entry.last_offset == known.last_offset >= 0:
        same = (
            is_same_epoch
            and entry.last_sequence == known.last_sequence
            and entry.offset_delta == known.offset_delta
            and (not is_seen or entry.timestamp == known.timestamp)
        )
        return None if same else f"the log has {known}"
    if entry.last_offset > known.last_offset >= 0 and is_same_epoch:
        ahead = (entry.last_sequence - known.last_sequence) % SEQUENCES
        if ahead > entry.last_offset - known.last_offset:
            return f"the log has sequence {known.last_sequence} at offset {known.last_offset}"
    return None
