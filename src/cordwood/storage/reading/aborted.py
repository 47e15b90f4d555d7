"""Finds the aborted transaction that a batch belongs to.

Source: org.apache.kafka.storage.internals.log.CleanedTransactionMetadata.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

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
