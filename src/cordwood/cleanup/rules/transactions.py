"""Decides which transactional batches a cleaning may discard, batch by batch.

`TransactionTracker` walks batches in offset order and says, for each, whether it may go: the data
of an aborted transaction may go at once; a marker may go once none of its transaction's batches was
seen since the marker before it. A tracker can start in the middle of a log from the summaries of
the segments before, which tasks make side by side.

Source: org.apache.kafka.storage.internals.log.CleanedTransactionMetadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cordwood.format.control_record import ControlType
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.reading.aborted import AbortedTransactions


@dataclass(slots=True)
class TransactionSummary:
    """The change that a sequence of batches makes to the tracker's state.

    `committed` says, per producer, whether a committed batch was seen after the last COMMIT marker
    of the stretch; a producer without batch or marker is absent. `observed` holds (producer id,
    offset of the ABORT marker) of each aborted transaction that a batch was seen of.
    """

    committed: dict[int, bool] = field(default_factory=dict)
    observed: set[tuple[int, int]] = field(default_factory=set)

    def followed_by(self, later: TransactionSummary) -> TransactionSummary:
        """The summary of this stretch and the one after it."""
        return TransactionSummary(self.committed | later.committed, self.observed | later.observed)

    def to_json(self) -> list[object]:
        """Plain lists, as tasks send them."""
        return [sorted(self.committed.items()), sorted(self.observed)]

    @classmethod
    def from_json(cls, value: list[list[list[int]]]) -> TransactionSummary:
        """The inverse of `to_json`."""
        return cls({p: bool(c) for p, c in value[0]}, {(p, o) for p, o in value[1]})


class TransactionTracker:
    """Verdicts on transactional and control batches, in offset order."""

    def __init__(
        self, aborted: AbortedTransactions, before: TransactionSummary | None = None
    ) -> None:
        self._aborted = aborted
        self.summary = TransactionSummary()
        if before is not None:
            self.summary = before.followed_by(self.summary)
        #: Aborted transactions whose marker was kept because batches of theirs were seen.
        self.kept_aborted: list[AbortedTransaction] = []

    def data_batch(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional data batch may be discarded: it was aborted."""
        entry = self._aborted.covering(producer_id, base_offset, last_offset)
        if entry is None:
            self.summary.committed[producer_id] = True
            return False
        self.summary.observed.add((producer_id, entry.last_offset))
        return True

    def control_batch(self, producer_id: int, offset: int, control: int | None) -> bool:
        """Whether a control batch may be discarded; `control` is None when it has no record."""
        if control is None:
            return True
        if control == ControlType.ABORT:
            entry = self._aborted.ended_by(producer_id, offset)
            if entry is not None and (producer_id, entry.last_offset) in self.summary.observed:
                self.kept_aborted.append(entry)
                return False
            return True
        if control == ControlType.COMMIT:
            seen = self.summary.committed.get(producer_id, False)
            self.summary.committed[producer_id] = False
            return not seen
        return False
