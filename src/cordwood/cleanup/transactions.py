"""Which transactional batches a cleaning may discard, batch by batch.

`TransactionTracker` walks batches in offset order and says, for each, whether it may go: the data
of an aborted transaction may go at once; a marker may go once none of its transaction's batches was
seen since the marker before it. A tracker can start in the middle of a log from the summaries of
the segments before, which tasks make side by side.

Source: org.apache.kafka.storage.internals.log.CleanedTransactionMetadata.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from cordwood.format.control_record import ControlType
from cordwood.format.transaction_index import AbortedTransaction


class AbortedTransactions:
    """The aborted transactions of a partition, found by producer and offset."""

    def __init__(self, entries: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for entry in sorted(set(entries), key=lambda e: e.last_offset):
            self._by_producer.setdefault(entry.producer_id, []).append(entry)
        self._markers = {p: [e.last_offset for e in es] for p, es in self._by_producer.items()}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def covering(
        self, producer_id: int, base_offset: int, last_offset: int
    ) -> AbortedTransaction | None:
        """The aborted transaction that a transactional data batch belongs to."""
        entries = self._by_producer.get(producer_id)
        if entries is None:
            return None
        at = bisect_left(self._markers[producer_id], base_offset + 1)
        if at < len(entries) and entries[at].first_offset <= last_offset:
            return entries[at]
        return None

    def ended_by(self, producer_id: int, marker_offset: int) -> AbortedTransaction | None:
        """The aborted transaction whose marker stands at `marker_offset`."""
        entries = self._by_producer.get(producer_id, [])
        at = bisect_left(self._markers.get(producer_id, []), marker_offset)
        if at < len(entries) and entries[at].first_offset <= marker_offset:
            return entries[at]
        return None


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
