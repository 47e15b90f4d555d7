"""The producers of one append: checked before the write, recorded after it.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.analyzeAndValidateProducerState.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from cordwood.format.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT
from cordwood.format.java_map import JavaHashMap
from cordwood.model.append_origin import AppendOrigin
from cordwood.storage.append.validator import ValidatedBatch
from cordwood.storage.producers.producer_append import ProducerAppendInfo
from cordwood.storage.producers.producer_entry import BatchMetadata, CompletedTransaction
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment.log_segment import LogSegment


class AppendProducers:
    """The changes that an append makes to the producers of its log."""

    __slots__ = (
        "_completed",
        "_guard",
        "_infos",
        "_origin",
        "_producer_ids",
        "_state",
        "_version",
        "touched",
    )

    def __init__(
        self,
        state: ProducerStateManager,
        origin: AppendOrigin,
        guard: object | None,
        version: int,
    ) -> None:
        """Begins without producers.

        Args:
            state: the producers of the log that is appended to.
            origin: whose the records are.
            guard: what the verification of a transaction's first batch gave (KIP-890).
            version: transaction.version, which markers are written under.
        """
        self._state = state
        self._origin = origin
        self._guard = guard
        self._version = version
        self._infos: dict[int, ProducerAppendInfo] = {}
        self._producer_ids: list[int] = []
        self._completed: list[CompletedTransaction] = []
        self.touched = False

    def analyze(self, batches: Sequence[ValidatedBatch]) -> BatchMetadata | None:
        """Checks sequences, epochs and transactions; the first time a client's batch came, if any.

        Raises:
            KafkaError: a batch does not follow its producer's last one.
        """
        state = self._state
        client = self._origin is AppendOrigin.CLIENT
        for batch in batches:
            header = batch.header
            if header.producer_id < 0:
                continue
            self.touched = True
            if client and not header.attributes & CONTROL_BIT:
                duplicate = state.find_duplicate(header)
                if duplicate is not None:
                    return duplicate
            if header.attributes & TRANSACTIONAL_BIT:
                state.verifications.require_verified(header, self._origin, self._guard)
            producer_id = header.producer_id
            self._producer_ids.append(producer_id)
            info = self._infos.get(producer_id)
            if info is None:
                info = state.prepare_update(producer_id, self._origin)
                self._infos[producer_id] = info
            completed = info.append(header, batch.marker, transaction_version=self._version)
            if completed is not None:
                self._completed.append(completed)
        return None

    def commit(self, segment: LogSegment) -> None:
        """Records what was written to a segment, and aborted transactions in its index."""
        if not self.touched:
            return
        state = self._state
        for info in self._in_order():
            state.update(info)
        for completed in self._completed:
            last_stable = state.last_stable_offset(completed)
            segment.indexes.note_completed(completed, last_stable)
            state.complete_transaction(completed)

    def _in_order(self) -> Iterable[ProducerAppendInfo]:
        """The changes in the order of Kafka's map: snapshots show in which order producers came."""
        if len(self._infos) == 1:
            return self._infos.values()
        ordered: JavaHashMap[int, ProducerAppendInfo] = JavaHashMap()
        for producer_id in self._producer_ids:
            ordered.compute_if_absent(producer_id, partial(self._infos.__getitem__, producer_id))
        return ordered.values()
