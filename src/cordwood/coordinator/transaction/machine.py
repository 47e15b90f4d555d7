"""The state machine of transactions: an event, the transactions of a partition and the time give
effects.

Requests are checked with the committed state, and refused with CONCURRENT_TRANSACTIONS while a
transition is in progress. So the answer of a request that is refused does not wait.

Source: kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager,
TransactionMarkerChannelManager (4.3.0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cordwood.coordinator.effects import Answer, Effects, ReplyTo, SetTimer
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.timeline import Timeline
from cordwood.coordinator.transaction import events
from cordwood.coordinator.transaction.ending import end_error
from cordwood.coordinator.transaction.records import TransactionRecord, value_version_of
from cordwood.coordinator.transaction.requests import EndAnswer, InitProducerIdAnswer
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.coordinator.transaction.transaction import (
    EPOCH_BUMP_VERSION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Producer,
    Transaction,
    TransactionState,
    is_epoch_exhausted,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC

COMPLETION_RETRY_MS: Final = 500
"""After this time the record of a completed transaction is written again."""
COMPLETION: Final = "completion"
"""The kind of the timers for that."""

_LOG = logging.getLogger(__name__)

_Effects = Effects[TransactionRecord]


class Prepared(NamedTuple):
    """A transaction whose outcome is committed: its markers are due."""

    partition: int
    transaction: Transaction


class _NeedsProducerIdError(Exception):
    """The event needs a producer id, and has none."""


class TransactionStateMachine:
    """The transitions of the transactions of one partition."""

    def __init__(
        self,
        settings: TransactionSettings,
        version: Callable[[], int],
        markers: ReplyTo[Prepared],
    ) -> None:
        """Nothing happens yet.

        Args:
            settings: limits and times.
            version: the finalized transaction.version.
            markers: is given each transaction whose markers are due.
        """
        self.settings = settings
        self._version = version
        self._markers = markers
        self._handlers: Mapping[
            type[events.TransactionEvent], Callable[[TransactionShard, Any, int], _Effects]
        ] = {
            events.InitProducerId: self._init_producer_id,
            events.AddPartitions: self._add_partitions,
            events.EndTransaction: self._end_transaction,
            events.TimedOut: self._timed_out,
            events.MarkersWritten: self._markers_written,
            events.ExpireIds: self._expire_ids,
            events.Loaded: self._loaded,
            events.FenceNotWritten: self._fence_not_written,
            events.CompletionNotWritten: self._completion_not_written,
        }

    # ---- as cordwood.coordinator.runtime.StateMachine

    def new_state(self, partition: int, timeline: Timeline) -> TransactionShard:
        """The state of a partition without transactions."""
        return TransactionShard(partition, timeline)

    def handle(
        self, state: TransactionShard, event: events.TransactionEvent, now_ms: int
    ) -> _Effects:
        """Returns what follows from an event."""
        try:
            return self._handlers[type(event)](state, event, now_ms)
        except _NeedsProducerIdError:
            assert event.reply_to is not None, event
            return _at_once(Answer(event.reply_to, events.NEEDS_PRODUCER_ID))

    def replay(
        self,
        state: TransactionShard,
        records: Sequence[TransactionRecord],
        _first_offset: int,
        _producer_id: int,
    ) -> None:
        """Applies records that are in the log."""
        for record in records:
            state.replay(record)

    def end_transaction(self, state: TransactionShard, producer_id: int, *, commit: bool) -> None:
        """No record of `__transaction_state` is part of a transaction."""

    def on_loaded(
        self, _state: TransactionShard, _now_ms: int
    ) -> Sequence[events.TransactionEvent]:
        """Markers are sent again: a broker may have stopped before all were written."""
        return [events.Loaded()]

    def on_unloaded(self, _state: TransactionShard) -> Sequence[Answer]:
        """No request waits in the state."""
        return ()

    # ---- InitProducerId

    def _init_producer_id(
        self, shard: TransactionShard, event: events.InitProducerId, now_ms: int
    ) -> _Effects:
        """Source: TransactionCoordinator.handleInitProducerId."""
        transactional_id, request = event.transactional_id, event.request
        timeout_ms = NO_TIMEOUT_MS if request.enables_two_phase_commit else request.timeout_ms
        if shard.is_pending(transactional_id):
            return _refused_init(event, ErrorCode.CONCURRENT_TRANSACTIONS)
        known = shard.committed(transactional_id)
        if known is None:
            known = Transaction(
                transactional_id=transactional_id,
                producer_id=_required(event.spare_producer_id),
                timeout_ms=timeout_ms,
                update_ms=now_ms,
            )
        expected = request.expected
        if expected is not None and not _may_continue(expected, known):
            return _refused_init(event, ErrorCode.PRODUCER_FENCED)
        if known.state is TransactionState.ONGOING:
            # The client asks again, and is given an epoch when the transaction is aborted.
            answer = Answer(event.reply_to, InitProducerIdAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))
            return self._fence(
                shard, known, event.spare_producer_id, now_ms, answer, InitProducerIdAnswer
            )
        try:
            if known.is_epoch_exhausted and (
                expected is None or expected.producer_epoch == known.producer_epoch
            ):
                initialized = known.with_producer_id(
                    _required(event.spare_producer_id),
                    timeout_ms=timeout_ms,
                    keeps_last_epoch=expected is not None,
                    now_ms=now_ms,
                )
            else:
                initialized = known.with_next_epoch(
                    timeout_ms=timeout_ms,
                    expected_epoch=None if expected is None else expected.producer_epoch,
                    now_ms=now_ms,
                )
        except CoordinatorRequestError as error:
            return _refused_init(event, error.code)
        given = InitProducerIdAnswer(
            ErrorCode.NONE, initialized.producer_id, initialized.producer_epoch
        )
        return self._written(initialized, Answer(event.reply_to, given))

    # ---- AddPartitionsToTxn and EndTxn

    def _add_partitions(
        self, shard: TransactionShard, event: events.AddPartitions, now_ms: int
    ) -> _Effects:
        """Source: TransactionCoordinator.handleAddPartitionsToTransaction."""
        known, reply_to = shard.committed(event.transactional_id), event.reply_to
        error = None
        if shard.is_pending(event.transactional_id):
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        elif known is None or known.producer_id != event.producer_id:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif known.producer_epoch != event.producer_epoch:
            error = ErrorCode.PRODUCER_FENCED
        elif known.state is TransactionState.ONGOING and known.contains_all(event.partitions):
            error = ErrorCode.NONE
        if error is not None or known is None:
            return _at_once(Answer(reply_to, error))
        try:
            grown = known.with_partitions(
                event.partitions, client_version=event.client_version, now_ms=now_ms
            )
        except CoordinatorRequestError as refusal:
            return _at_once(Answer(reply_to, refusal.code))
        return self._written(grown, Answer(reply_to, ErrorCode.NONE))

    def _end_transaction(
        self, shard: TransactionShard, event: events.EndTransaction, now_ms: int
    ) -> _Effects:
        """Source: TransactionCoordinator.endTransaction, endTransactionWithTV1."""
        request, reply_to = event.request, event.reply_to
        known = shard.committed(request.transactional_id)
        is_pending = shard.is_pending(request.transactional_id)
        bumps_epoch = request.client_version >= EPOCH_BUMP_VERSION
        error = end_error(known, request, is_pending=is_pending)
        if error == ErrorCode.NONE and bumps_epoch:  # a retry of a request that has succeeded
            assert known is not None, request
            answer = EndAnswer(ErrorCode.NONE, known.producer_id, known.producer_epoch)
            return _at_once(Answer(reply_to, answer))
        if error is not None or known is None:
            return _at_once(Answer(reply_to, EndAnswer(int(error or ErrorCode.NONE))))
        next_producer_id = NO_PRODUCER_ID
        if bumps_epoch and known.is_epoch_exhausted:
            next_producer_id = _required(event.spare_producer_id)
        try:
            prepared = known.prepared(
                commit=request.commit,
                client_version=request.client_version if bumps_epoch else 0,
                next_producer_id=next_producer_id,
                now_ms=now_ms,
            )
        except CoordinatorRequestError as refusal:
            return _at_once(Answer(reply_to, EndAnswer(refusal.code)))
        answer = EndAnswer(ErrorCode.NONE)
        if bumps_epoch:
            completed = prepared.completed(now_ms=now_ms)
            answer = EndAnswer(ErrorCode.NONE, completed.producer_id, completed.producer_epoch)
        return self._written(prepared, Answer(reply_to, answer), shard)

    # ---- fencing

    def _timed_out(self, shard: TransactionShard, event: events.TimedOut, now_ms: int) -> _Effects:
        """Source: TransactionCoordinator.abortTimedOutTransactions."""
        transactional_id = event.transactional_id
        known = shard.committed(transactional_id)
        if known is None:
            _LOG.error("No transaction of %s to abort after its timeout", transactional_id)
        elif known.producer_id != event.producer_id:
            _LOG.error(
                "%s has producer id %d, not %d whose transaction has timed out",
                transactional_id,
                known.producer_id,
                event.producer_id,
            )
        elif shard.is_pending(transactional_id) or not known.is_timed_out(now_ms):
            _LOG.debug("%s is changing: it is not aborted after its timeout", transactional_id)
        else:
            answer = Answer(event.reply_to, EndAnswer(ErrorCode.NONE))
            return self._fence(shard, known, event.spare_producer_id, now_ms, answer, EndAnswer)
        return Effects()

    def _fence(
        self,
        shard: TransactionShard,
        known: Transaction,
        spare_producer_id: int | None,
        now_ms: int,
        answer: Answer,
        refusal: Callable[[int], object],
    ) -> _Effects:
        """Aborts an ongoing transaction, with an epoch that fences its producer.

        Args:
            shard: has the transaction.
            known: the transaction.
            spare_producer_id: a producer id for the case that the epochs are used up.
            now_ms: the time.
            answer: when the abort is committed.
            refusal: makes the answer of an error code.
        """
        version, fenced = self._version(), None
        try:
            if version >= EPOCH_BUMP_VERSION:  # the end of the transaction bumps the epoch
                is_exhausted = known.is_epoch_exhausted
                prepared = known.prepared(
                    commit=False,
                    client_version=version,
                    next_producer_id=(
                        _required(spare_producer_id) if is_exhausted else NO_PRODUCER_ID
                    ),
                    now_ms=now_ms,
                )
            else:
                fenced = known.fenced()
                prepared = fenced.prepared(commit=False, client_version=0, now_ms=now_ms)
        except CoordinatorRequestError as error:
            return _at_once(Answer(answer.reply_to, refusal(error.code)))

        def not_written(error: KafkaError) -> events.FenceNotWritten:
            return events.FenceNotWritten(
                transactional_id=known.transactional_id,
                fenced=fenced,
                error=error,
                answer=Answer(answer.reply_to, refusal(error.code)),
            )

        return self._written(prepared, answer, shard)._replace(on_failure=not_written)

    def _fence_not_written(
        self, shard: TransactionShard, event: events.FenceNotWritten, _now_ms: int
    ) -> _Effects:
        """The producer is fenced in memory: nobody is given the epoch, and it is bumped once.

        Source: TransactionCoordinator.endTransactionWithTV1 (hasFailedEpochFence).
        """
        _LOG.warning(
            "Cannot write the abort that fences the producer of %s: %s",
            event.transactional_id,
            event.error,
        )
        if event.fenced is not None:
            shard.transactions.put(event.transactional_id, event.fenced.with_failed_fence())
        return Effects(answers=[event.answer])

    # ---- markers

    def _markers_written(
        self, shard: TransactionShard, event: events.MarkersWritten, _now_ms: int
    ) -> _Effects:
        """Source: TransactionMarkerChannelManager.writeTxnCompletion."""
        transactional_id = event.transactional_id
        known = shard.transactions.get(transactional_id)
        if (
            known is None
            or not known.state.is_prepared
            or (known.producer_id, known.producer_epoch)
            != (event.producer_id, event.producer_epoch)
        ):
            _LOG.info(
                "The transaction of %s whose markers are written has changed since: %s",
                transactional_id,
                known,
            )
            return Effects()
        completed = known.completed(now_ms=event.prepared_ms)
        return Effects(
            records=[self._record(completed)],
            on_failure=lambda error: events.CompletionNotWritten(event=event, error=error),
        )

    def _completion_not_written(
        self, _shard: TransactionShard, event: events.CompletionNotWritten, _now_ms: int
    ) -> _Effects:
        """Source: TransactionMarkerChannelManager.tryAppendToLog."""
        transactional_id, code = event.event.transactional_id, event.error.code
        if code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            _LOG.info("Cannot write the end of the transaction of %s yet", transactional_id)
            key = (COMPLETION, transactional_id)
            return Effects(timers=[SetTimer(key, COMPLETION_RETRY_MS, event.event)])
        if code == ErrorCode.NOT_COORDINATOR:
            _LOG.info(
                "No longer the coordinator of %s: the next one writes the end of its transaction",
                transactional_id,
            )
        else:
            _LOG.critical(
                "Cannot write the end of the transaction of %s: %s", transactional_id, event.error
            )
        return Effects()

    def _loaded(self, shard: TransactionShard, _event: events.Loaded, _now_ms: int) -> _Effects:
        """Source: TransactionStateManager.loadTransactionsForTxnTopicPartition."""
        prepared = {
            name: transaction
            for name, transaction in shard.transactions.items()
            if transaction.state.is_prepared
        }
        due = []
        for name in shard.ids() if prepared else ():
            if (transaction := prepared.get(name)) is None:
                continue
            _LOG.info(
                "Sending the markers of %s, which is %s, after the load of %s-%d",
                name,
                transaction.state.kafka_name,
                TRANSACTION_STATE_TOPIC,
                shard.partition,
            )
            due.append(Answer(self._markers, Prepared(shard.partition, transaction)))
        return Effects(when_committed=due)

    # ---- expiry

    def _expire_ids(
        self, shard: TransactionShard, _event: events.ExpireIds, now_ms: int
    ) -> _Effects:
        """Source: TransactionStateManager.removeExpiredTransactionalIds."""
        expired = [
            name
            for name, transaction in shard.transactions.items()
            if transaction.is_expired(now_ms, self.settings.id_expiration_ms)
            and not shard.is_pending(name)
        ]
        if not expired:
            return Effects()
        gone = set(expired)
        records = [TransactionRecord(name, None) for name in shard.ids() if name in gone]
        return Effects(records=records, is_atomic=False)

    # ---- records

    def _record(self, transaction: Transaction) -> TransactionRecord:
        version = value_version_of(self._version())
        return TransactionRecord(transaction.transactional_id, transaction, version)

    def _written(
        self, transaction: Transaction, answer: Answer, prepared_in: TransactionShard | None = None
    ) -> _Effects:
        """Writes a transaction, and answers when it is committed; then its markers are due."""
        due: list[Answer] = []
        if prepared_in is not None:
            due = [Answer(self._markers, Prepared(prepared_in.partition, transaction))]
        return Effects(
            records=[self._record(transaction)],
            answers=[answer],
            write_timeout_ms=transaction.timeout_ms,
            when_committed=due,
        )


def _at_once(answer: Answer) -> _Effects:
    """An answer that depends on committed state only."""
    return Effects(answers=[answer], answers_wait=False)


def _refused_init(event: events.InitProducerId, code: int) -> _Effects:
    return _at_once(Answer(event.reply_to, InitProducerIdAnswer(code)))


def _required(spare_producer_id: int | None) -> int:
    if spare_producer_id is None:
        raise _NeedsProducerIdError
    return spare_producer_id


def _may_continue(expected: Producer, known: Transaction) -> bool:
    """Whether the producer of a request is the current one, or may be.

    Its epoch is checked when the next one is chosen. A new transactional id has no epoch: then the
    client is one whose id has expired. The previous producer id is that of a request which is
    repeated, after the epochs were used up.

    Source: TransactionCoordinator.prepareInitProducerIdTransit (isValidProducerId).
    """
    return (
        known.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == known.producer_id
        or (
            expected.producer_id == known.prev_producer_id
            and is_epoch_exhausted(expected.producer_epoch)
        )
    )
