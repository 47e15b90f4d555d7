"""The producers and transactions of a log: replayed, and compared with what its files say of them.

The replay is that of the loader, `ProducerStateManager`. It gives what a broker's files must say as
long as no record is missing: up to the first gap that a cleaning, or damage, has left. It begins at
offset 0, or with the producer snapshot at the first segment's base. Behind a gap, only what holds
for any log is checked.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager, UnifiedLog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cordwood.cleanup.verification.batches import Piece
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.cleanup.verification.sequences import SequenceCheck
from cordwood.cleanup.verification.snapshots import ProducerInLog, contradiction
from cordwood.format.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, parse_header
from cordwood.format.control_record import ControlType, EndTxnMarker
from cordwood.format.file_names import PRODUCER_SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX, segment_file_name
from cordwood.format.native import batches as rows_of
from cordwood.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from cordwood.format.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    parse_transaction_index,
)
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.reading.block import Ints
from cordwood.storage.segment.native_recovery import rows_for_producers


@dataclass(slots=True)
class _Open:
    """A transaction whose marker is still to come; `epoch` is the largest of its batches.

    `has_data` says whether a batch of it is in the log, and not only below its first segment.
    """

    first_offset: int
    epoch: int
    has_data: bool = True


class ProducerCheck:
    """Follows the producers of one log, batch by batch."""

    def __init__(
        self,
        partition: TopicPartition,
        directory: Path,
        snapshots: dict[int, bytes],
        findings: Findings,
        *,
        base_offset: int,
        log_start_offset: int,
    ) -> None:
        """Reads the snapshots.

        Args:
            partition: the log's.
            directory: the log's.
            snapshots: the contents of its producer snapshots, by offset.
            findings: where findings go.
            base_offset: of its first segment.
            log_start_offset: a broker replays from there on, so what is below is not compared.
        """
        self._directory = directory
        self._findings = findings
        self._log = directory
        self._state = ProducerStateManager(partition, directory, on_warning=lambda _: None)
        self._snapshots = self._read(snapshots)
        self._open: dict[int, _Open] = {}
        self._markers: dict[int, tuple[int, int]] = {}
        self._next_offset = base_offset
        seed = self._snapshots.get(base_offset)
        #: Whether the state is what a broker had at this offset.
        self._is_exact = log_start_offset <= base_offset and (base_offset == 0 or seed is not None)
        for entry in seed or ():
            self._state.load_entry(entry)
            if entry.current_txn_first_offset >= 0:
                self._open[entry.producer_id] = _Open(
                    entry.current_txn_first_offset, entry.producer_epoch, has_data=False
                )
        self._log_start_offset = log_start_offset
        #: By the offset of an ABORT marker: its producer, and where the marker before it is.
        self._aborts: dict[int, tuple[int, int]] = {}
        #: The markers of transactions without data, by their offsets.
        self._bare: set[int] = set()
        #: Those that are known to have ended none.
        self._empty: set[int] = set()
        self._expected: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._base_offset = base_offset
        self._pending = sorted(self._snapshots)
        self._sequences = SequenceCheck(findings, seed or ())
        #: By producer: where its last batch or marker ends.
        self._touched: dict[int, int] = {}
        #: From here on no batch is missing or emptied, as far as the log has been followed.
        self._clear_from = base_offset
        self._is_blind = False
        #: The offsets that snapshots name, and whether a batch has them.
        named = {
            offset
            for entries in self._snapshots.values()
            for entry in entries
            for offset in (entry.last_offset, entry.current_txn_first_offset)
        }
        self._named = np.array(sorted(named), dtype=np.int64)
        self._covered = np.zeros(len(named), dtype=np.bool_)

    def _path(self, offset: int) -> Path:
        return self._directory / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)

    def _read(self, snapshots: dict[int, bytes]) -> dict[int, list[ProducerEntry]]:
        parsed = {}
        for offset, data in sorted(snapshots.items()):
            try:
                entries = parse_producer_snapshot(data)
            except CorruptError as error:
                self._findings.add(
                    Rule.SNAPSHOT_FORMAT, self._path(offset), error.reason, position=error.position
                )
                continue
            parsed[offset] = entries
            for entry in entries:
                if max(entry.last_offset, entry.current_txn_first_offset) >= offset:
                    self._bad_snapshot(
                        offset,
                        f"producer {entry.producer_id} has written up to offset "
                        f"{max(entry.last_offset, entry.current_txn_first_offset)}, which is not "
                        f"below the snapshot's",
                    )
        return parsed

    # ---- batches

    def take(self, piece: Piece, missing: Ints) -> None:
        """Follows some batches, which come behind those before.

        `missing` is how many offsets are missing in the log in front of each.
        """
        table = piece.block.table
        self._note_covered(piece)
        self._check_gaps(piece)
        if not self._sequences.take(piece, missing, self._log):
            self.lose_sight()
        for row in rows_for_producers(table).tolist():
            header = parse_header(piece.block.buffer.data, int(table[row, rows_of.POSITION]))
            at = int(piece.positions[row])
            if self._pending and self._pending[0] <= header.base_offset:
                self._check_pending(header.base_offset)
            marker = piece.markers.get(row)
            if header.attributes & CONTROL_BIT:
                if marker is not None:
                    self._marker(header, marker, at)
            elif header.attributes & TRANSACTIONAL_BIT:
                known = self._open.setdefault(
                    header.producer_id, _Open(header.base_offset, header.producer_epoch)
                )
                known.epoch = max(known.epoch, header.producer_epoch)
                known.has_data = True
            self._replay(header, marker, at)
            self._touched[header.producer_id] = header.last_offset
        self._next_offset = int(piece.lasts[-1]) + 1

    def _check_pending(self, base_offset: int) -> None:
        """Compares the snapshots that were made inside a segment, before it was appended to."""
        while self._pending and self._pending[0] <= base_offset:
            self.check_snapshot(self._pending[0])

    def _note_covered(self, piece: Piece) -> None:
        bases, lasts = piece.block.table[:, rows_of.BASE_OFFSET], piece.lasts
        first = int(np.searchsorted(self._named, bases[0]))
        end = int(np.searchsorted(self._named, lasts[-1], side="right"))
        if first < end:
            named = self._named[first:end]
            self._covered[first:end] |= bases[np.searchsorted(lasts, named)] <= named

    def _check_gaps(self, piece: Piece) -> None:
        table = piece.block.table
        bases, lasts = table[:, rows_of.BASE_OFFSET], table[:, rows_of.LAST_OFFSET]
        before = np.concatenate(([self._next_offset - 1], lasts[:-1]))
        dense = (bases == before + 1) & (table[:, rows_of.COUNT] == lasts - bases + 1)
        broken = np.flatnonzero(~dense)
        if len(broken):
            self._is_exact = False
            self._clear_from = int(lasts[broken[-1]]) + 1

    def _replay(self, header: BatchHeader, marker: EndTxnMarker | None, position: int) -> None:
        try:
            completed = self._state.replay(header, marker)
        except KafkaError as error:
            self._findings.add(
                Rule.MARKER_ORDER,
                self._log,
                str(error),
                position=position,
                offset=header.base_offset,
            )
            self.lose_sight()
            return
        if completed is None:
            return
        if completed.is_aborted:
            stable = self._state.last_stable_offset(completed)
            self._expect(
                AbortedTransaction(
                    producer_id=completed.producer_id,
                    first_offset=completed.first_offset,
                    last_offset=completed.last_offset,
                    last_stable_offset=stable,
                )
            )
        self._state.complete_transaction(completed)

    def _expect(self, entry: AbortedTransaction) -> None:
        self._expected[entry.last_offset] = entry, self._is_exact

    def _marker(self, header: BatchHeader, marker: EndTxnMarker, position: int) -> None:
        producer_id = header.producer_id
        ended = self._open.pop(producer_id, None)
        if ended is not None and header.producer_epoch < ended.epoch:
            self._findings.add(
                Rule.MARKER_ORDER,
                self._log,
                f"a marker of epoch {header.producer_epoch} ends a transaction of producer "
                f"{producer_id} with epoch {ended.epoch}",
                position=position,
                offset=header.base_offset,
            )
            self.lose_sight()
        before = self._markers.get(producer_id)
        if before is not None and marker.coordinator_epoch < before[1]:
            self._findings.add(
                Rule.MARKER_ORDER,
                self._log,
                f"a marker of coordinator epoch {marker.coordinator_epoch} for producer "
                f"{producer_id} behind one of {before[1]} at offset {before[0]}",
                position=position,
                offset=header.base_offset,
            )
            self.lose_sight()
        self._markers[producer_id] = header.base_offset, marker.coordinator_epoch
        if marker.control_type is ControlType.ABORT:
            self._aborts[header.last_offset] = producer_id, before[0] if before else -1
            if ended is None and self._is_exact:
                self._empty.add(header.last_offset)
            elif ended is not None and not ended.has_data:
                self._bare.add(header.last_offset)

    # ---- segments

    def begin_segment(self, log: Path, base_offset: int) -> None:
        """A segment begins; the snapshot there is compared."""
        self._log = log
        self._aborts, self._expected = {}, {}
        self.check_snapshot(base_offset)

    def lose_sight(self) -> None:
        """Ends exact checks: a batch is damaged, and others may be missing."""
        self._is_exact, self._is_blind = False, True

    def end_segment(self, data: bytes | None, *, is_sound: bool) -> None:
        """A segment ends; its transaction index is compared, if its batches are sound."""
        path = self._log.with_suffix(TXN_INDEX_SUFFIX)
        try:
            entries = parse_transaction_index(data or b"")
        except CorruptError as error:
            self._findings.add(Rule.TXN_INDEX_FORMAT, path, error.reason, position=error.position)
            return
        if not is_sound:
            return
        for number, entry in enumerate(entries):
            why = self._wrong_entry(entry)
            if why is not None:
                self._findings.add(
                    Rule.TXN_INDEX_ENTRY,
                    path,
                    f"an entry for producer {entry.producer_id} with offsets {entry.first_offset} "
                    f"to {entry.last_offset}: {why}",
                    position=number * ENTRY_BYTES,
                    offset=entry.last_offset,
                )
        self._check_missing(path, entries)

    def _wrong_entry(self, entry: AbortedTransaction) -> str | None:
        producer_id, previous = self._aborts.get(entry.last_offset, (-1, -1))
        expected, is_exact = self._expected.get(entry.last_offset, (None, False))
        # Without a gap, what is not in the log is below it.
        is_dense = self._clear_from == self._base_offset and not self._is_blind
        why = None
        if producer_id != entry.producer_id:
            why = "there is no ABORT marker of that producer"
        elif entry.last_offset in self._empty:
            why = "no transaction of that producer was open"
        elif entry.first_offset > entry.last_offset:
            why = "it ends before it begins"
        elif entry.first_offset <= previous:
            why = f"a marker of that producer is at offset {previous}"
        elif entry.last_stable_offset > entry.last_offset + 1:
            why = f"its last stable offset is {entry.last_stable_offset}"
        elif expected is None:
            why = None
        elif is_exact and expected != replace(entry, version=expected.version):
            why = (
                f"the log gives offsets {expected.first_offset} to {expected.last_offset}, and the "
                f"last stable offset {expected.last_stable_offset} instead of "
                f"{entry.last_stable_offset}"
            )
        elif entry.first_offset > expected.first_offset:
            why = f"the log has data of the transaction at offset {expected.first_offset}"
        elif entry.last_stable_offset > expected.last_stable_offset:
            why = f"a transaction was open since offset {expected.last_stable_offset}"
        elif is_dense and self._base_offset <= entry.first_offset < expected.first_offset:
            why = f"the log has its first data at offset {expected.first_offset}"
        return why

    def _check_missing(self, path: Path, entries: Sequence[AbortedTransaction]) -> None:
        """Checks missing entries: none is left for data that is gone or below the log start."""
        known = self._bare.union(entry.last_offset for entry in entries)
        for offset, (expected, _) in self._expected.items():
            if offset not in known and offset >= self._log_start_offset:
                self._findings.add(
                    Rule.TXN_INDEX_MISSING,
                    path,
                    f"no entry for the transaction of producer {expected.producer_id} with offsets "
                    f"{expected.first_offset} to {offset}, which was aborted",
                    offset=offset,
                )

    # ---- snapshots

    def check_snapshot(self, offset: int) -> None:
        """Compares the snapshot at `offset`, up to where the log has been followed, if any."""
        while self._pending and self._pending[0] < offset:
            self._pending.pop(0)
        if not self._pending or self._pending[0] != offset:
            return
        entries = self._snapshots[self._pending.pop(0)]
        if self._is_blind:
            return
        is_exact = self._is_exact and offset == self._next_offset
        replayed = {entry.producer_id: entry for entry in self._state.entries()}
        for entry in entries:
            known = replayed.pop(entry.producer_id, None)
            is_seen = is_exact or self._touched.get(entry.producer_id, -1) >= self._clear_from
            if known is None and is_exact:
                self._bad_snapshot(offset, f"the log has no producer {entry.producer_id}")
            elif known is not None and is_exact and not _is_state_of(entry, known):
                self._bad_snapshot(offset, f"it has {entry}, and the log {known}")
            elif not is_exact:
                what = ProducerInLog(
                    known=known,
                    is_seen=is_seen,
                    open_since=self._open_in_log(entry.producer_id),
                    ended_at=self._markers.get(entry.producer_id, (-1, -1))[0],
                )
                why = contradiction(entry, what, self._is_there)
                if why is not None:
                    self._bad_snapshot(offset, f"it has {entry}, but {why}")
        for producer_id in replayed:
            # Those without a transaction may have expired.
            first = self._open_in_log(producer_id)
            if first is not None:
                self._bad_snapshot(
                    offset,
                    f"it lacks producer {producer_id}, whose transaction is open since offset "
                    f"{first}",
                )

    def _open_in_log(self, producer_id: int) -> int | None:
        """The first offset of a producer's open transaction, if a broker's replay has seen it."""
        known = self._open.get(producer_id)
        if known is None or known.first_offset < self._log_start_offset:
            return None
        return known.first_offset if known.has_data or self._is_exact else None

    def _is_there(self, offset: int) -> bool:
        """Whether a batch that was seen has an offset that a snapshot names."""
        if offset < self._base_offset:
            return False
        at = int(np.searchsorted(self._named, offset))
        return at < len(self._named) and self._named[at] == offset and bool(self._covered[at])

    def check_last_batches(self, end: int, kept_from_ms: int | None) -> None:
        """Checks that the last batches of producers are there, by the snapshot at the log's end.

        A compaction keeps them for as long as the producer has not expired.

        Args:
            end: the log's.
            kept_from_ms: producers with a younger timestamp were known to the last compaction;
                None if there was none.

        Source: Cleaner.cleanInto, ProducerStateManager.isProducerExpired.
        """
        if kept_from_ms is None or self._is_blind:
            return
        for entry in self._snapshots.get(end, ()):
            last = entry.last_offset
            if last < max(self._base_offset, self._log_start_offset) or self._is_there(last):
                continue
            if entry.timestamp > kept_from_ms:
                self._findings.add(
                    Rule.PRODUCER_MISSING,
                    self._log,
                    f"the batch that ends at offset {last} is missing, the last of producer "
                    f"{entry.producer_id} by the snapshot at offset {end}: a compaction keeps it",
                    offset=last,
                )

    def _bad_snapshot(self, offset: int, reason: str) -> None:
        self._findings.add(Rule.SNAPSHOT_CONTENT, self._path(offset), reason, offset=offset)


def _is_state_of(entry: ProducerEntry, replayed: ProducerEntry) -> bool:
    """Whether a snapshot's entry is the replayed one, or that of a producer that had expired.

    One that came back after that has neither a batch nor a marker of its earlier life.
    """
    if entry.coordinator_epoch < 0:
        replayed = replace(replayed, coordinator_epoch=entry.coordinator_epoch)
    if entry.last_offset < 0:
        replayed = replace(replayed, last_sequence=-1, last_offset=-1, offset_delta=0)
    return entry == replayed
