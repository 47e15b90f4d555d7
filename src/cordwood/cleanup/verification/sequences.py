"""The sequences of idempotent producers, from batch to batch.

A broker takes a batch only if it continues what the producer wrote before, or begins a new epoch
with sequence 0. A compaction keeps the headers of what it keeps, so as many sequences may be left
out as offsets are missing. Between two batches of a transaction's producer that have different
epochs is the marker that ended the first transaction: it stays for as long as its data does.

Source: org.apache.kafka.storage.internals.log.ProducerAppendInfo.checkProducerEpoch, checkSequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.verification.batches import Piece
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.format.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT
from cordwood.format.native import batches as rows_of
from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.format.record import SEQUENCE_MAX
from cordwood.storage.reading.block import Ints

SEQUENCES = SEQUENCE_MAX + 1


@dataclass(frozen=True, slots=True)
class _Last:
    """The last data batch of a producer; `missing` offsets were before it in the log."""

    epoch: int
    sequence: int
    offset: int
    missing: int


class SequenceCheck:
    """Follows the producers of one log; remembers the last batch of each."""

    def __init__(self, findings: Findings, seed: Iterable[ProducerEntry] = ()) -> None:
        """Begins with the producers of a snapshot at the first segment."""
        self._findings = findings
        self._last = {
            entry.producer_id: _Last(
                entry.producer_epoch, entry.last_sequence, entry.last_offset, 0
            )
            for entry in seed
            if entry.last_offset >= 0
        }
        #: By producer: the epoch of its last batch, if that is data of a transaction.
        self._open: dict[int, int] = {}

    def take(self, piece: Piece, missing: Ints, log: Path) -> bool:
        """Follows some batches of `log`; whether each continues its producer's.

        `missing` is how many offsets are missing in the log in front of each batch.
        """
        table = piece.block.table
        rows = np.flatnonzero(table[:, rows_of.PRODUCER_ID] >= 0)
        if not len(rows):
            return True
        rows = rows[np.argsort(table[rows, rows_of.PRODUCER_ID], kind="stable")]
        is_data = (table[rows, rows_of.ATTRIBUTES] & CONTROL_BIT) == 0
        lost = self._lost_markers(table, rows, is_data)
        for row in sorted(lost):
            self._add(
                Rule.MARKER_MISSING,
                log,
                piece,
                row,
                f"a batch of epoch {table[row, rows_of.PRODUCER_EPOCH]} of producer "
                f"{table[row, rows_of.PRODUCER_ID]}, whose transaction of epoch {lost[row]} no "
                "marker has ended",
            )
        data = rows[is_data & (table[rows, rows_of.BASE_SEQUENCE] >= 0)]
        wrong = self._wrong_sequences(table, data, missing) if len(data) else {}
        for row in sorted(wrong):
            self._add(Rule.SEQUENCE, log, piece, row, wrong[row])
        return not lost and not wrong

    def _add(self, rule: Rule, log: Path, piece: Piece, row: int, reason: str) -> None:
        self._findings.add(
            rule,
            log,
            reason,
            position=int(piece.positions[row]),
            offset=int(piece.block.table[row, rows_of.BASE_OFFSET]),
        )

    def _lost_markers(
        self, table: Ints, rows: Ints, is_data: npt.NDArray[np.bool_]
    ) -> dict[int, int]:
        """Rows of transactions that begin while another is open, with the epoch of that."""
        producers, epochs = table[rows, rows_of.PRODUCER_ID], table[rows, rows_of.PRODUCER_EPOCH]
        is_open = is_data & ((table[rows, rows_of.ATTRIBUTES] & TRANSACTIONAL_BIT) != 0)
        same = producers[1:] == producers[:-1]
        follows = same & is_open[1:] & is_open[:-1] & (epochs[1:] > epochs[:-1])
        lost = {int(rows[n + 1]): int(epochs[n]) for n in np.flatnonzero(follows).tolist()}
        firsts = np.concatenate(([0], np.flatnonzero(~same) + 1))
        lasts = np.append(firsts[1:], len(rows)) - 1
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            producer_id = int(producers[first])
            before = self._open.pop(producer_id, None)
            if before is not None and is_open[first] and int(epochs[first]) > before:
                lost[int(rows[first])] = before
            if is_open[last]:
                self._open[producer_id] = int(epochs[last])
        return lost

    def _wrong_sequences(self, table: Ints, rows: Ints, missing: Ints) -> dict[int, str]:
        """Reports the rows that do not continue their producer's sequence."""
        producers = table[rows, rows_of.PRODUCER_ID]
        epochs, bases = table[rows, rows_of.PRODUCER_EPOCH], table[rows, rows_of.BASE_SEQUENCE]
        offsets = table[rows, rows_of.LAST_OFFSET]
        ends = (bases + offsets - table[rows, rows_of.BASE_OFFSET]) % SEQUENCES
        own = np.column_stack((epochs, ends, offsets, missing[rows]))
        before = np.concatenate((own[:1], own[:-1]))
        is_known = np.ones(len(rows), dtype=np.bool_)
        firsts = np.concatenate(([0], np.flatnonzero(producers[1:] != producers[:-1]) + 1))
        for first in firsts.tolist():
            last = self._last.get(int(producers[first]))
            is_known[first] = last is not None
            if last is not None:
                before[first] = last.epoch, last.sequence, last.offset, last.missing
        for end in (np.append(firsts[1:], len(rows)) - 1).tolist():
            self._last[int(producers[end])] = _Last(*own[end].tolist())
        wanted = np.where(epochs > before[:, 0], 0, (before[:, 1] + 1) % SEQUENCES)
        missing_between = own[:, 3] - before[:, 3]
        is_older = epochs < before[:, 0]
        wrong = is_known & (is_older | ((bases - wanted) % SEQUENCES > missing_between))
        found = {}
        for n in np.flatnonzero(wrong).tolist():
            what = f"a batch of producer {producers[n]} with "
            if is_older[n]:
                what += f"epoch {epochs[n]} behind one of epoch {before[n, 0]}"
            else:
                what += (
                    f"sequence {bases[n]} where {wanted[n]} is next, behind the batch that ends at "
                    f"offset {before[n, 2]}"
                )
                if missing_between[n]:
                    what += f": no more than {missing_between[n]} offsets are missing between them"
            found[int(rows[n])] = what
        return found
