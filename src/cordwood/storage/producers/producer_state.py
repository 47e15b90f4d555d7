"""The producer state of a log: last batches, and open transactions.

An appender holds the log's lock; `has_late_transaction`, `producer_count` and snapshots by
offset may be asked for without it.

A snapshot holds the producers in the order of the java.util.HashMap that Kafka has them in, so
that its bytes are Kafka's.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager, UnifiedLog.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from cordwood.format.batch_header import BatchHeader
from cordwood.format.control_record import EndTxnMarker
from cordwood.format.java_map import JavaHashMap
from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import InvalidTxnStateError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.producers.producer_append import ProducerAppendInfo
from cordwood.storage.producers.producer_entry import (
    AttemptedSequence,
    BatchMetadata,
    CompletedTransaction,
    OngoingTransaction,
    ProducerStateEntry,
)
from cordwood.storage.producers.producer_snapshots import ProducerSnapshots
from cordwood.storage.producers.verifications import Verifications, newer_than

_log = logging.getLogger(__name__)

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000


class _Transactions:
    """Transactions by their first offset, ascending."""

    __slots__ = ("_by_offset", "_offsets")

    def __init__(self) -> None:
        self._by_offset: dict[int, OngoingTransaction] = {}
        # Invariant: the keys, sorted.
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def check_invariants(self) -> None:
        assert self._offsets == sorted(self._by_offset), f"{self._offsets}, {self._by_offset}"

    def __iter__(self) -> Iterator[OngoingTransaction]:
        return map(self._by_offset.__getitem__, self._offsets)

    @property
    def first_offset(self) -> int | None:
        for offset in self._offsets[:1]:
            return offset
        return None

    def first(self) -> OngoingTransaction | None:
        for offset in self._offsets[:1]:
            return self._by_offset.get(offset)
        return None

    def put(self, transaction: OngoingTransaction) -> None:
        offset = transaction.first_offset
        if offset not in self._by_offset:
            insort(self._offsets, offset)
        self._by_offset[offset] = transaction

    def pop(self, first_offset: int) -> OngoingTransaction | None:
        found = self._by_offset.pop(first_offset, None)
        if found is not None:
            del self._offsets[bisect_left(self._offsets, first_offset)]
        return found

    def clear(self) -> None:
        self._offsets = []
        self._by_offset = {}


class ProducerStateManager:
    """The producers of one log.

    `snapshots` are those on disk. `map_end_offset` is the log's end as far as it has been taken
    note of, exclusive.
    `producer_id_expiration_ms` may be set at any time.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        *,
        fs: FileSystem = OS,
        max_transaction_timeout_ms: int = 900_000,
        producer_id_expiration_ms: int = 86_400_000,
        verify_transactions: bool = False,
        on_warning: Callable[[str], None] = _log.warning,
    ) -> None:
        """Knows of no producer yet; `truncate_and_reload` reads a snapshot.

        Args:
            topic_partition: of the log.
            directory: the log's; there are no snapshots where it does not exist.
            fs: where it lies.
            max_transaction_timeout_ms: transaction.max.timeout.ms.
            producer_id_expiration_ms: producer.id.expiration.ms.
            verify_transactions: transaction.partition.verification.enable.
            on_warning: called for damaged snapshots, and for batches that a leader would have
                refused.

        Raises:
            CorruptError: a snapshot's name does not begin with an offset.
        """
        self.topic_partition = topic_partition
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._warn = on_warning
        self._producers: JavaHashMap[int, ProducerStateEntry] = JavaHashMap()
        self.verifications = Verifications(self.last_entry, is_required=verify_transactions)
        self._refused: dict[int, AttemptedSequence] = {}
        self._ongoing = _Transactions()
        # Those whose markers are not known to be below the high watermark.
        self._unreplicated = _Transactions()
        self.snapshots = ProducerSnapshots(directory, fs=fs)
        self._map_end_offset = 0
        self._last_snapshot_offset = 0

    def check_invariants(self) -> None:
        """Asserts that transactions are in order, and that what is not replicated has ended."""
        self._ongoing.check_invariants()
        self._unreplicated.check_invariants()
        assert all(each.last_offset is None for each in self._ongoing)
        assert all(each.last_offset is not None for each in self._unreplicated)
        for producer_id, entry in self._producers.items():
            assert entry.producer_id == producer_id, f"{entry!r} listed as {producer_id}"
            entry.check_invariants()
        open_since = [each.current_txn_first_offset for each in self._producers.values()]
        for each in self._ongoing:
            assert each.first_offset in open_since, f"no producer has {each.first_offset} open"
        assert self._last_snapshot_offset >= 0, f"a snapshot at {self._last_snapshot_offset}"

    # ---- producers

    @property
    def active_producers(self) -> Mapping[int, ProducerStateEntry]:
        """The producers known, by id; changes as the log does."""
        return self._producers

    @property
    def producer_count(self) -> int:
        """The number of producers."""
        return len(self._producers)

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a producer nor a transaction that is not replicated."""
        return not self._producers and not self._unreplicated

    @property
    def map_end_offset(self) -> int:
        """The offset, exclusive, up to which batches have been applied."""
        return self._map_end_offset

    def update_map_end_offset(self, offset: int) -> None:
        """Sets the offset, exclusive, up to which batches have been applied."""
        self._map_end_offset = offset

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        """The state of a producer."""
        return self._producers.get(producer_id)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """One of the last five batches of the header's producer, with the very same sequences."""
        entry = self._producers.get(header.producer_id)
        return None if entry is None else entry.find_duplicate(header)

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Begins the change of one producer by an append; nothing changes yet."""
        current = self._producers.get(producer_id)
        if current is None:
            current = ProducerStateEntry(producer_id)
        return ProducerAppendInfo(
            self.topic_partition,
            current,
            origin,
            self.verifications.get(producer_id) if self.verifications else None,
            refused=self._refused.get(producer_id) if self._refused else None,
            on_warning=self._warn,
        )

    def note_refused(self, header: BatchHeader, now_ms: int) -> None:
        """Records that a client's batch did not fit on the disk: those behind it are refused, too.

        A producer without state may begin with any sequence. If the batch behind the refused one
        were taken as its beginning, the refused one could never be written: clients would fail, or,
        like librdkafka, report it as delivered. To a producer with state the batch behind would be
        out of order: librdkafka then takes another epoch, and sends again under it what other
        partitions may have already. Kafka takes the log directory offline instead, and answers
        KAFKA_STORAGE_ERROR to all of them.

        Args:
            header: as the client sent it.
            now_ms: for the expiry.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return
        refused = self._refused.get(producer_id)
        if refused is None:
            self._refused[producer_id] = AttemptedSequence(
                now_ms, header.base_sequence, header.producer_epoch
            )
        else:
            refused.note(header.base_sequence, header.producer_epoch)

    def update(self, info: ProducerAppendInfo) -> None:
        """Applies an append, and the transactions that it begins."""
        producer_id = info.producer_id
        assert producer_id >= 0, f"producer id {producer_id} in {self.topic_partition}"
        if self._refused:
            self._refused.pop(producer_id, None)
        current = self._producers.get(producer_id)
        if current is None:
            self._producers.put(producer_id, info.entry)
        else:
            current.update(info.entry)
        for transaction in info.started_transactions:
            self._ongoing.put(transaction)
        if info.ends_verification:
            self.verifications.remove(producer_id)

    def replay(
        self, header: BatchHeader, marker: EndTxnMarker | None = None
    ) -> CompletedTransaction | None:
        """Applies a batch on disk; returns the transaction that it ends, not yet completed.

        Args:
            header: of any batch; one without producer id moves `map_end_offset` alone.
            marker: as for `ProducerAppendInfo.append`.

        Source: LogSegment.updateProducerState.
        """
        completed = None
        if header.producer_id >= 0:
            info = self.prepare_update(header.producer_id, AppendOrigin.REPLICATION)
            completed = info.append(header, marker)
            self.update(info)
        self._map_end_offset = header.base_offset + header.last_offset_delta + 1
        return completed

    def replay_all(self, batches: Iterable[tuple[BatchHeader, EndTxnMarker | None]]) -> None:
        """Applies the batches of a segment; the transactions that they end are completed.

        New producers come in the order in which Kafka's loader adds them.

        Source: UnifiedLog.loadProducersFromRecords.
        """
        infos: JavaHashMap[int, ProducerAppendInfo] = JavaHashMap()
        ended: list[CompletedTransaction] = []
        for header, marker in batches:
            producer_id = header.producer_id
            if producer_id < 0:
                continue
            info = infos.compute_if_absent(
                producer_id, partial(self.prepare_update, producer_id, AppendOrigin.REPLICATION)
            )
            completed = info.append(header, marker)
            if completed is not None:
                ended.append(completed)
        for info in infos.values():
            self.update(info)
        for completed in ended:
            self.complete_transaction(completed)

    def load_entry(self, entry: ProducerEntry) -> None:
        """Adds a producer as a snapshot knows it."""
        self._producers.put(entry.producer_id, ProducerStateEntry.from_snapshot(entry))
        if entry.current_txn_first_offset >= 0:
            self._ongoing.put(OngoingTransaction(entry.producer_id, entry.current_txn_first_offset))

    def entries(self) -> list[ProducerEntry]:
        """The entries of a snapshot at this moment."""
        return [entry.to_snapshot() for entry in self._producers.values()]

    def remove_expired(self, now_ms: int) -> None:
        """Forgets producers, verifications and refused batches that are too old.

        A producer with an open transaction stays. It is its records' time that counts.
        """
        for entry in list(self._producers.values()):
            if self._is_expired(entry.current_txn_first_offset, entry.last_timestamp, now_ms):
                self._producers.remove(entry.producer_id)
        oldest_ms = now_ms - self.producer_id_expiration_ms
        self.verifications.remove_older(oldest_ms)
        self._refused = newer_than(oldest_ms, self._refused)

    def _is_expired(self, open_since: int | None, last_timestamp: int, now_ms: int) -> bool:
        return open_since is None and now_ms - last_timestamp >= self.producer_id_expiration_ms

    # ---- transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or not yet replicated."""
        ongoing, unreplicated = self._ongoing.first_offset, self._unreplicated.first_offset
        if ongoing is None or unreplicated is None:
            return unreplicated if ongoing is None else ongoing
        return min(ongoing, unreplicated)

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open."""
        first = self._ongoing.first()
        return None if first is None else first.first_offset

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset after that transaction, for the transaction index.

        The first offset of the earliest open transaction of another producer, or where its marker
        ends. Ask before `complete_transaction`.
        """
        for transaction in self._ongoing:
            if transaction.producer_id != completed.producer_id:
                return transaction.first_offset
        return completed.last_offset + 1

    def complete_transaction(self, completed: CompletedTransaction) -> None:
        """Ends a transaction; it stays unstable until the high watermark has passed its marker.

        Raises:
            InvalidTxnStateError: no such transaction is open.
        """
        transaction = self._ongoing.pop(completed.first_offset)
        if transaction is None:
            raise InvalidTxnStateError(
                f"Attempted to complete transaction {completed} on partition "
                f"{self.topic_partition} which was not started"
            )
        transaction.last_offset = completed.last_offset
        self._unreplicated.put(transaction)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forgets transactions whose markers lie below the high watermark."""
        if self._unreplicated:
            for transaction in list(self._unreplicated):
                last_offset = transaction.last_offset
                if last_offset is not None and last_offset < high_watermark:
                    self._unreplicated.pop(transaction.first_offset)

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the earliest open transaction is five minutes over the longest time allowed.

        It is counted from the last record of its producer.
        """
        first = self._ongoing.first()
        entry = None if first is None else self._producers.get(first.producer_id)
        if entry is None or entry.last_timestamp <= 0:
            return False
        allowed = self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        return now_ms - entry.last_timestamp > allowed

    # ---- snapshots

    def take_snapshot(self, *, sync: bool = True) -> Path | None:
        """Writes a snapshot at `map_end_offset`; its path, or None if there is one already.

        Args:
            sync: return when it is on disk; else `snapshots.sync` sees to that.

        Raises:
            NoSpaceError: the file system is full; there is no such snapshot.
        """
        offset = self._map_end_offset
        if offset <= self._last_snapshot_offset:
            return None
        path = self.snapshots.write(offset, self.entries(), sync=sync)
        self._last_snapshot_offset = offset
        return path

    # ---- truncation

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Goes back to the newest good snapshot above the log's start and up to its end.

        Snapshots outside of these bounds are removed, and so are damaged ones. Where the state is
        that of the log's end already, it stays as it is.

        Args:
            log_start_offset: inclusive.
            log_end_offset: exclusive.
            now_ms: producers that have expired by then are not loaded.
        """
        self.snapshots.remove_outside(log_start_offset, log_end_offset)
        if log_end_offset == self._map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._clear()
        self._load_newest(log_start_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Clears all state and removes every snapshot; the log starts again at `offset`."""
        self._clear()
        for found in self.snapshots.offsets:
            self.snapshots.remove(found)
        self._last_snapshot_offset = 0
        self._map_end_offset = offset

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """The log begins at `log_start_offset` now; producers whose records are gone stay."""
        self.on_high_watermark_updated(log_start_offset)
        self._map_end_offset = max(self._map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def _clear(self) -> None:
        self._producers.clear()
        self._refused.clear()
        self._ongoing.clear()
        # The log is never cut below its high watermark but where these go too.
        self._unreplicated.clear()

    def _load_newest(self, log_start_offset: int, now_ms: int) -> None:
        while (offset := self.snapshots.latest) is not None:
            path = self.snapshots.path(offset)
            try:
                loaded = self.snapshots.read(offset)
            except CorruptError as error:
                self._warn(f"Failed to load producer snapshot from '{path}': {error.reason}")
                self.snapshots.remove(offset)
                continue
            _log.info("Loading producer state from snapshot file '%s'", path)
            for entry in loaded:
                open_since = entry.current_txn_first_offset
                if not self._is_expired(
                    open_since if open_since >= 0 else None, entry.timestamp, now_ms
                ):
                    self.load_entry(entry)
            self._last_snapshot_offset = self._map_end_offset = offset
            return
        self._last_snapshot_offset = self._map_end_offset = log_start_offset
