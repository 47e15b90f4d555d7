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
from cordwood.format.control_record import ControlType, EndTxnMarker
from cordwood.format.file_names import PRODUCER_SNAPSHOT_SUFFIX, TXN_INDEX_SUFFIX, segment_file_name
from cordwood.format.native import batches as rows_of
from cordwood.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from cordwood.format.record_batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from cordwood.format.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    parse_transaction_index,
)
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.producers.producer_state import ProducerStateManager
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
        self._aborts: dict[int, int] = {}
        #: The markers of transactions without data, by their offsets.
        self._bare: set[int] = set()
        self._expected: dict[int, tuple[AbortedTransaction, bool]] = {}

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

    def take(self, piece: Piece) -> None:
        """Follows some batches, which come behind those before."""
        table = piece.block.table
        self._check_gaps(piece)
        for row in rows_for_producers(table).tolist():
            header = parse_header(piece.block.buffer.data, int(table[row, rows_of.POSITION]))
            at = int(piece.positions[row])
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

    def _check_gaps(self, piece: Piece) -> None:
        table = piece.block.table
        bases, lasts = table[:, rows_of.BASE_OFFSET], table[:, rows_of.LAST_OFFSET]
        if self._is_exact:
            before = np.concatenate(([self._next_offset - 1], lasts[:-1]))
            dense = (bases == before + 1) & (table[:, rows_of.COUNT] == lasts - bases + 1)
            self._is_exact = bool(dense.all())
        self._next_offset = int(lasts[-1]) + 1

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
            self._is_exact = False
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
            self._is_exact = False
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
            self._is_exact = False
        self._markers[producer_id] = header.base_offset, marker.coordinator_epoch
        if marker.control_type is ControlType.ABORT:
            self._aborts[header.last_offset] = producer_id
            if ended is not None and not ended.has_data:
                self._bare.add(header.last_offset)

    # ---- segments

    def begin_segment(self, log: Path, base_offset: int) -> None:
        """A segment begins; the snapshot there is compared."""
        self._log = log
        self._aborts, self._expected = {}, {}
        self.check_snapshot(base_offset)

    def lose_sight(self) -> None:
        """A batch is damaged: the replay is not what a broker had."""
        self._is_exact = False

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
        if self._aborts.get(entry.last_offset) != entry.producer_id:
            return "there is no ABORT marker of that producer"
        if entry.first_offset > entry.last_offset:
            return "it ends before it begins"
        if entry.last_stable_offset > entry.last_offset + 1:
            return f"its last stable offset is {entry.last_stable_offset}"
        expected, is_exact = self._expected.get(entry.last_offset, (None, False))
        if expected is None:
            return None
        if is_exact and expected != replace(entry, version=expected.version):
            return (
                f"the log gives offsets {expected.first_offset} to {expected.last_offset}, and the "
                f"last stable offset {expected.last_stable_offset} instead of "
                f"{entry.last_stable_offset}"
            )
        if entry.first_offset > expected.first_offset:
            return f"the log has data of the transaction at offset {expected.first_offset}"
        return None

    def _check_missing(self, path: Path, entries: Sequence[AbortedTransaction]) -> None:
        """A cleaning leaves no entry for data below the log start, nor for data that is gone."""
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
        entries = self._snapshots.get(offset)
        if entries is None or not self._is_exact or offset != self._next_offset:
            return
        replayed = {entry.producer_id: entry for entry in self._state.entries()}
        for entry in entries:
            known = replayed.pop(entry.producer_id, None)
            if known is None:
                self._bad_snapshot(offset, f"the log has no producer {entry.producer_id}")
            elif not _is_state_of(entry, known):
                self._bad_snapshot(offset, f"it has {entry}, and the log {known}")
        for entry in replayed.values():
            # Those without a transaction may have expired.
            if entry.current_txn_first_offset >= 0:
                self._bad_snapshot(
                    offset,
                    f"it lacks producer {entry.producer_id}, whose transaction is open since "
                    f"offset {entry.current_txn_first_offset}",
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
