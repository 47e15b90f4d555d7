"""The leader epochs of a log: the checkpoint against the epochs in the batches.

Source: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from cordwood.cleanup.verification.batches import Piece
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.format.leader_epoch_checkpoint import parse_leader_epoch_checkpoint
from cordwood.format.native import batches as rows_of
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.block import Ints


class EpochCheck:
    """Compares the epochs of batches with the checkpoint; one finding for each wrong epoch."""

    def __init__(
        self, path: Path, data: bytes | None, findings: Findings, *, log_start_offset: int | None
    ) -> None:
        """Parses the checkpoint, None where there is none.

        Batches below the log start offset have no epoch any more. Where it is not known, or a
        broker may have forgotten it, it is where the first epoch begins.
        """
        self._path = path
        self._findings = findings
        self._noted: set[tuple[int, int]] = set()
        self._is_missing = data is None
        self._is_usable = True
        entries: list[tuple[int, int]] = []
        try:
            entries = parse_leader_epoch_checkpoint(data) if data is not None else []
        except CorruptError as error:
            self._findings.add(Rule.EPOCHS_FORMAT, path, error.reason, position=error.position)
            self._is_usable = False
        for before, after in pairwise(entries):
            if after[0] <= before[0] or after[1] <= before[1]:
                self._findings.add(
                    Rule.EPOCHS_ORDER,
                    path,
                    f"epoch {after[0]} from offset {after[1]} follows epoch {before[0]} from "
                    f"offset {before[1]}",
                    offset=after[1],
                )
                self._is_usable = False
        self._epochs = np.array([epoch for epoch, _ in entries], dtype=np.int64)
        self._starts = np.array([start for _, start in entries], dtype=np.int64)
        # A broker that is killed forgets a new log start offset, and not where the epochs begin
        # by that; it comes back in a new epoch.
        if entries and (log_start_offset is None or len(entries) > 1):
            log_start_offset = max(entries[0][1], log_start_offset or 0)
        self._log_start_offset = log_start_offset or 0

    def take(self, piece: Piece) -> None:
        """Compares some batches."""
        if not self._is_usable:
            return
        table = piece.block.table
        epochs, bases = table[:, rows_of.LEADER_EPOCH], table[:, rows_of.BASE_OFFSET]
        if piece.block.legacy is not None:
            return
        place = np.searchsorted(self._starts, bases, side="right") - 1
        known = np.full(len(epochs), -1, dtype=np.int64)
        if len(self._epochs):
            known = np.where(place >= 0, self._epochs[np.maximum(place, 0)], -1)
        wrong = (epochs >= 0) & (epochs != known) & (bases >= self._log_start_offset)
        for row in np.flatnonzero(wrong).tolist():
            pair = int(epochs[row]), int(known[row])
            if pair in self._noted:
                continue
            self._noted.add(pair)
            says = f"epoch {pair[1]}" if pair[1] >= 0 else "no epoch"
            if self._is_missing:
                says = "nothing: there is no such file"
            self._findings.add(
                Rule.EPOCHS_CONTENT,
                self._path,
                f"the batch of offset {bases[row]} was written in leader epoch {pair[0]}, and the "
                f"checkpoint says {says}",
                offset=int(bases[row]),
            )

        if not self._noted:
            self._check_starts(bases, piece.lasts)

    def _check_starts(self, bases: Ints, lasts: Ints) -> None:
        """Checks that no batch lies on both sides of an epoch's start."""
        first, end = np.searchsorted(self._starts, (bases[0] + 1, int(lasts[-1]) + 1))
        for number in range(int(first), int(end)):
            start = int(self._starts[number])
            row = int(np.searchsorted(lasts, start))
            # The first begins where the log does, which may be inside a batch.
            if number and int(bases[row]) < start:
                self._findings.add(
                    Rule.EPOCHS_CONTENT,
                    self._path,
                    f"epoch {self._epochs[number]} begins at offset {start}, inside the batch of "
                    f"offsets {bases[row]} to {lasts[row]}",
                    offset=start,
                )

    def check_start(self, base_offset: int) -> int | None:
        """The offset of the first epoch if it is below what is left of the log, else None.

        A broker moves it along when it removes segments, or records below a log start offset.

        Source: LeaderEpochFileCache.truncateFromStart.
        """
        start = max(base_offset, self._log_start_offset)
        if not self._is_usable or not len(self._starts) or int(self._starts[0]) >= start:
            return None
        return int(self._starts[0])

    def finish(self, log_end_offset: int) -> None:
        """Says which epochs begin beyond the end of the log."""
        if not self._is_usable:
            return
        for epoch, start in zip(self._epochs.tolist(), self._starts.tolist(), strict=True):
            if start > log_end_offset:
                self._findings.add(
                    Rule.EPOCHS_CONTENT,
                    self._path,
                    f"epoch {epoch} begins at offset {start}, and the log ends at {log_end_offset}",
                    offset=start,
                )
