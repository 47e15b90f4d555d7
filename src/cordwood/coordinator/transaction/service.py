"""The coordinator of all transactions whose partition of `__transaction_state` this broker leads.

It turns requests into events of the runtime, and reads the committed state. It belongs to the
thread that owns the broker's state. The path of a transaction's end:

1. The record of the Prepare state is appended. After a crash the transaction continues, or is
   aborted, as if nothing had been asked.
2. It is committed: the client is answered, and the markers are sent. After a crash they are sent
   again when the partition is loaded.
3. All markers are written: the record of the Complete state is appended.

Source: kafka.coordinator.transaction.TransactionCoordinator (4.3.0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.runtime import CoordinatorLog, CoordinatorRuntime, LoadTime, RuntimeHost
from cordwood.coordinator.transaction import events, queries
from cordwood.coordinator.transaction.errors import error_of_append
from cordwood.coordinator.transaction.machine import COMPLETION, Prepared, TransactionStateMachine
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.requests import (
    DescribedTransaction,
    EndAnswer,
    EndRequest,
    InitProducerIdAnswer,
    InitProducerIdRequest,
    ListedTransactions,
)
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.coordinator.transaction.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionState,
)
from cordwood.format.java_map import absolute_hash
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.timers import Timer
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC
from cordwood.model.topic_partition import TopicPartition

A = TypeVar("A")
Reply = Callable[[A], object]
"""Receives the answer to a request, immediately or later."""

_LOG = logging.getLogger(__name__)

#: Errors after which nothing is left to do for a transaction that has timed out.
_CHANGED_SINCE = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class TransactionMarker(NamedTuple):
    """What the marker of a transaction says."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerSender(Protocol):
    """Writes markers to the logs of partitions, here and on other brokers."""

    def send(
        self,
        state_partition: int,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[], None],
        /,
    ) -> None:
        """Writes a marker to each partition, and tries again for as long as that is of use.

        `done` is called once, on the broker's thread, when each partition has the marker or is gone
        for good. It is not called if another producer or coordinator has taken over.
        """

    def cancel(self, state_partition: int, /) -> None:
        """Forgets the markers of a partition of `__transaction_state` that is not led here."""


class ProducerIdSource(Protocol):
    """Has producer ids that nobody has used, from blocks of the controller."""

    def draw(self, then: Callable[[int | KafkaError], object], /) -> None:
        """Calls `then` with an id or an error, immediately or later, on the broker's thread."""


class TransactionStateLog(CoordinatorLog[TransactionShard, TransactionRecord], Protocol):
    """The log of transactions."""

    def leader_epoch(self, partition: int, /) -> int:
        """The leader epoch of a partition that is led here: the coordinator's epoch in markers.

        Raises:
            KafkaError: the partition is not led here.
        """


class TransactionHost(RuntimeHost, Protocol):
    """The functions of the process that a transaction coordinator uses."""

    def schedule(self, name: str, period_ms: int, run: Callable[[], object], /) -> Timer:
        """Calls a function in every period of the movable clock."""


class TransactionCoordinator:
    """Answers the requests of the transaction APIs.

    Functions that change transactions take a `reply`, which is called when the change is committed.
    Functions that only read return the committed state.
    """

    def __init__(
        self,
        log: TransactionStateLog,
        host: TransactionHost,
        settings: TransactionSettings,
        *,
        version: Callable[[], int],
        producer_ids: ProducerIdSource,
        markers: MarkerSender,
    ) -> None:
        """Creates the coordinator; no partition is loaded yet.

        Args:
            log: the log that transactions are written to.
            host: clock, timers, and access to the thread that owns the broker's state.
            settings: limits and times.
            version: the finalized transaction.version, 0 if there is none.
            producer_ids: has the ids of new producers.
            markers: writes the markers of transactions.
        """
        self._log = log
        self._host = host
        self._producer_ids = producer_ids
        self._markers = markers
        self._machine = TransactionStateMachine(settings, version, ReplyTo(self._send_markers))
        self._runtime: CoordinatorRuntime[
            TransactionShard, events.TransactionEvent, TransactionRecord
        ] = CoordinatorRuntime(
            self._machine, log, host, write_timeout_ms=settings.request_timeout_ms
        )
        self._tasks: list[Timer] = []
        self._is_running = False

    @property
    def settings(self) -> TransactionSettings:
        """The settings of the broker that transactions obey, at present."""
        return self._machine.settings

    @settings.setter
    def settings(self, settings: TransactionSettings) -> None:
        """Those that can be changed at run time take effect at the next event."""
        self._machine.settings = settings

    # ---- partitions

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that a transactional id's records are in.

        Source: TransactionStateManager.partitionFor.
        """
        count = len(self._log.partitions()) or self.settings.topic_partitions
        return absolute_hash(transactional_id) % count

    def start(self) -> None:
        """Looks regularly for what has timed out, and loads what is led here already."""
        _LOG.info("Starting up.")
        settings, schedule = self.settings, self._host.schedule
        self._tasks = [
            schedule("transaction-abort", settings.abort_interval_ms, self.abort_timed_out),
            schedule(
                "transactionalId-expiration", settings.expiration_interval_ms, self.expire_ids
            ),
        ]
        self._is_running = True
        self._runtime.load_all(lambda: None)
        _LOG.info("Startup complete.")

    def close(self) -> None:
        """Unloads all transactions: requests that wait are refused, no marker is waited for."""
        _LOG.info("Shutting down.")
        self._is_running = False
        for task in self._tasks:
            task.cancel()
        self._unload()
        _LOG.info("Shutdown complete.")

    def _unload(self) -> None:
        loaded = [partition for partition, _, _ in self._runtime.loaded()]
        self._runtime.unload()
        for partition in loaded:
            self._markers.cancel(partition)

    def when_loaded(self, then: Callable[[], None]) -> None:
        """Calls `then` once all transactions are known, immediately if they are."""
        self._runtime.load_all(then)

    def on_elected(self, partition: int) -> None:
        """This broker leads a partition, in a new leader epoch: its transactions are loaded.

        Those that are loaded already are loaded again: markers have the new leader epoch.

        Source: TransactionCoordinator.onElection.
        """
        if self._runtime.is_active(partition):
            self.on_resigned(partition)
        self._runtime.elect(partition)

    def on_resigned(self, partition: int) -> None:
        """This broker does not lead a partition any more: its transactions are unloaded.

        Source: TransactionCoordinator.onResignation.
        """
        _LOG.info("Resigned as the coordinator of %s-%d", TRANSACTION_STATE_TOPIC, partition)
        self._runtime.resign(partition)
        self._markers.cancel(partition)

    def on_topics_deleted(self, names: Collection[str]) -> None:
        """Unloads all transactions if their topic is deleted; there may be a new one."""
        if TRANSACTION_STATE_TOPIC in names:
            self._unload()

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """Records below an offset are committed: sends the answers that waited for that."""
        self._runtime.on_high_watermark(partition, high_watermark)

    def _read(self, transactional_id: str) -> tuple[TransactionShard, int]:
        return self._runtime.read(self.partition_for(transactional_id))

    # ---- producers

    def init_producer_id(
        self, request: InitProducerIdRequest, reply: Reply[InitProducerIdAnswer]
    ) -> None:
        """Gives a producer its id and epoch, and fences the one before it.

        Source: TransactionCoordinator.handleInitProducerId, KafkaApis.handleInitProducerIdRequest.
        """
        error = self._init_error(request)
        if error is not None:
            reply(InitProducerIdAnswer(error))
            return
        transactional_id = request.transactional_id
        if transactional_id is None:
            self._producer_ids.draw(lambda drawn: reply(_new_producer(drawn)))
            return

        def refused(error: KafkaError) -> InitProducerIdAnswer:
            code = error_of_append(error)
            _LOG.info(
                "InitProducerId of %s is answered %s", transactional_id, ErrorCode.of(code).name
            )
            return InitProducerIdAnswer(code)

        def replied(answer: InitProducerIdAnswer) -> None:
            if not answer.error_code:
                _LOG.info(
                    "%s has producer id %d and epoch %d, on partition %s-%d",
                    transactional_id,
                    answer.producer_id,
                    answer.producer_epoch,
                    TRANSACTION_STATE_TOPIC,
                    self.partition_for(transactional_id),
                )
            reply(answer)

        self._write_with_id(
            self.partition_for(transactional_id),
            lambda spare, reply_to: events.InitProducerId(
                transactional_id=transactional_id,
                request=request,
                spare_producer_id=spare,
                reply_to=reply_to,
            ),
            replied,
            refused,
        )

    def _init_error(self, request: InitProducerIdRequest) -> ErrorCode | None:
        """The answer to InitProducerId with fields that are not possible."""
        settings = self.settings
        is_two_phase = request.enables_two_phase_commit
        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
        if has_id != has_epoch:
            return ErrorCode.INVALID_REQUEST
        if request.transactional_id is None:
            return None
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if is_two_phase and not settings.is_two_phase_commit_enabled:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keeps_prepared:
            return ErrorCode.UNSUPPORTED_VERSION
        if not is_two_phase and not 0 < request.timeout_ms <= settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return None

    def _write_with_id(
        self,
        partition: int,
        event: Callable[[int | None, ReplyTo[Any]], events.TransactionEvent],
        reply: Reply[A],
        refused: Callable[[KafkaError], A],
        spare: int | None = None,
    ) -> None:
        """Writes an event that may need a producer id, which then is drawn.

        Args:
            partition: where it is written.
            event: makes it of a producer id, or None, and the place for the answer.
            reply: receives its answer.
            refused: makes the answer of an error.
            spare: the producer id.
        """

        def drawn(found: int | KafkaError) -> None:
            if isinstance(found, KafkaError):
                reply(refused(found))
            else:
                self._write_with_id(partition, event, reply, refused, found)

        def answered(answer: A | events.NeedsProducerId) -> None:
            if isinstance(answer, events.NeedsProducerId):
                assert spare is None, "an event that has a producer id needs none"
                self._producer_ids.draw(drawn)
            else:
                reply(answer)

        self._runtime.write(partition, event(spare, ReplyTo(answered, refused)))

    # ---- transactions

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int,
        reply: Reply[int],
    ) -> None:
        """Adds partitions to a transaction, which begins if there is none; answers an error code.

        Source: TransactionCoordinator.handleAddPartitionsToTransaction.
        """

        def replied(code: int) -> None:
            if code:
                name = ErrorCode.of(code).name
                _LOG.debug("Adding partitions for %s is answered %s", transactional_id, name)
            reply(int(code))

        if not transactional_id:
            replied(ErrorCode.INVALID_REQUEST)
            return
        event = events.AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=tuple(partitions),
            client_version=client_version,
            reply_to=ReplyTo(replied, error_of_append),
        )
        self._runtime.write(self.partition_for(transactional_id), event)

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> Mapping[TopicPartition, int]:
        """Checks that partitions are in a producer's transaction: an error code for each.

        Source: TransactionCoordinator.handleVerifyPartitionsInTransaction.
        """
        partitions = list(partitions)
        error: int = ErrorCode.INVALID_REQUEST
        if transactional_id:
            try:
                shard, _ = self._read(transactional_id)
            except KafkaError as refusal:
                error = refusal.code
            else:
                known = shard.committed(transactional_id)
                error = queries.verification_error(known, producer_id, producer_epoch)
                if known is not None and not error:
                    return queries.verified(known, partitions)
        _LOG.debug(
            "Verifying partitions of %s is answered %s", transactional_id, ErrorCode.of(error).name
        )
        return dict.fromkeys(partitions, int(error))

    def end(self, request: EndRequest, reply: Reply[EndAnswer]) -> None:
        """Commits or aborts a transaction; answers when the outcome is committed.

        Source: TransactionCoordinator.handleEndTransaction.
        """

        def replied(answer: EndAnswer) -> None:
            if answer.error_code:
                _LOG.debug(
                    "The end of the transaction of %s is answered %s",
                    request.transactional_id,
                    ErrorCode.of(answer.error_code).name,
                )
            reply(answer)

        def refused(error: KafkaError) -> EndAnswer:
            _LOG.info("Cannot end the transaction of %s: %s", request.transactional_id, error)
            return EndAnswer(error_of_append(error))

        if not request.transactional_id:
            replied(EndAnswer(ErrorCode.INVALID_REQUEST))
            return
        self._write_with_id(
            self.partition_for(request.transactional_id),
            lambda spare, reply_to: events.EndTransaction(
                request=request, spare_producer_id=spare, reply_to=reply_to
            ),
            replied,
            refused,
        )

    # ---- queries

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """The transaction of a transactional id, or the error that its client is given.

        Source: TransactionCoordinator.handleDescribeTransactions.
        """
        if not self._is_running:
            return DescribedTransaction(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not transactional_id:
            return DescribedTransaction(ErrorCode.INVALID_REQUEST)
        try:
            shard, _ = self._read(transactional_id)
        except KafkaError as error:
            return DescribedTransaction(error.code)
        return queries.described(shard.committed(transactional_id))

    def list_transactions(
        self,
        states: Sequence[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> ListedTransactions:
        """The transactions of all loaded partitions.

        Args:
            states: names of states; none for all.
            producer_ids: producer ids; none for all.
            duration_ms: only those that began longer ago; a negative number for all.
            pattern: a regular expression for transactional ids; None or "" for all.

        Raises:
            InvalidRegularExpressionError: the pattern is not in RE2's syntax.

        Source: TransactionStateManager.listTransactionStates.
        """
        if not self._is_running:
            return ListedTransactions(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            loaded = self._runtime.read_all()
        except KafkaError as error:
            return ListedTransactions(error.code)
        wanted = queries.Filter.of(states, producer_ids, duration_ms, pattern)
        return queries.listed(
            [(shard, at) for _, shard, at in sorted(loaded, key=lambda each: each[0])],
            wanted,
            self._host.clock.now_ms(),
        )

    def ids_by_producer(self) -> dict[int, str]:
        """The transactional id of each producer id that a loaded partition knows."""
        return {
            transaction.producer_id: transactional_id
            for _, shard, at in self._runtime.loaded()
            for transactional_id, transaction in shard.transactions.items(at)
        }

    @property
    def unwritten_ends(self) -> int:
        """How many transactions have all markers, but no record yet that they have ended.

        Source: TransactionMarkerChannelManager, the metric LogAppendRetryQueueSize.
        """
        return self._runtime.timers_of(COMPLETION)

    @property
    def load_times(self) -> Sequence[LoadTime]:
        """How long the last loads of partitions took."""
        return tuple(self._runtime.load_times)

    # ---- markers

    def _send_markers(self, prepared: Prepared) -> None:
        """Source: TransactionMarkerChannelManager.addTxnMarkersToSend."""
        partition, transaction = prepared
        try:
            epoch = self._log.leader_epoch(partition)
        except KafkaError as error:
            _LOG.info(
                "The markers of %s are not sent from here: %s", transaction.transactional_id, error
            )
            return
        marker = TransactionMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            epoch,
            transaction.client_version,
        )
        event = events.MarkersWritten(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            prepared_ms=self._host.clock.now_ms(),
        )
        done = partial(self._markers_written, partition, epoch, event)
        if transaction.partitions:
            self._markers.send(partition, marker, transaction.partitions, done)
        else:
            done()

    def _markers_written(self, partition: int, epoch: int, event: events.MarkersWritten) -> None:
        """Writes the end of a transaction, unless the partition has moved since."""
        try:
            is_led_as_before = self._log.leader_epoch(partition) == epoch
        except KafkaError:
            is_led_as_before = False
        if is_led_as_before and self._runtime.is_active(partition):
            self._runtime.write(partition, event)
        else:
            _LOG.info("No longer the coordinator of %s with epoch %d", event, epoch)

    # ---- what happens without a request

    def abort_timed_out(self) -> None:
        """Aborts the transactions that have been open for too long, and fences their producers.

        Source: TransactionCoordinator.abortTimedOutTransactions.
        """
        self._in_turns(self._abort_timed_out_in)

    def _abort_timed_out_in(self, partition: int) -> None:
        shard, at = self._runtime.read(partition)
        now_ms = self._host.clock.now_ms()
        for transactional_id, transaction in shard.transactions.items(at):
            if transaction.is_timed_out(now_ms) and not shard.is_pending(transactional_id):
                self._abort(partition, transactional_id, transaction.producer_id)

    def _abort(self, partition: int, transactional_id: str, producer_id: int) -> None:
        self._write_with_id(
            partition,
            lambda spare, reply_to: events.TimedOut(
                transactional_id=transactional_id,
                producer_id=producer_id,
                spare_producer_id=spare,
                reply_to=reply_to,
            ),
            partial(_log_abort, transactional_id),
            lambda error: EndAnswer(error_of_append(error)),
        )

    def expire_ids(self) -> None:
        """Removes the transactional ids that have not been used for long enough.

        Source: TransactionStateManager.removeExpiredTransactionalIds.
        """
        self._in_turns(self._expire_ids_in)

    def _expire_ids_in(self, partition: int) -> None:
        def log(error: KafkaError) -> None:
            _LOG.warning(
                "Cannot remove expired transactional ids of %s-%d: %s",
                TRANSACTION_STATE_TOPIC,
                partition,
                error,
            )

        self._runtime.write(partition, events.ExpireIds(reply_to=ReplyTo(lambda _: None, log)))

    def _in_turns(self, run: Callable[[int], None]) -> None:
        """Calls a function for each partition that is loaded; requests come between."""
        partitions = sorted(partition for partition, _, _ in self._runtime.loaded())
        self._next_turn(iter(partitions), run)

    def _next_turn(self, partitions: Iterator[int], run: Callable[[int], None]) -> None:
        for partition in partitions:
            if self._runtime.is_active(partition):
                run(partition)
                self._host.call_soon(partial(self._next_turn, partitions, run))
                break


def _new_producer(drawn: int | KafkaError) -> InitProducerIdAnswer:
    """The answer to a producer without a transactional id."""
    if isinstance(drawn, KafkaError):
        return InitProducerIdAnswer(drawn.code)
    return InitProducerIdAnswer(ErrorCode.NONE, drawn, 0)


def _log_abort(transactional_id: str, answer: EndAnswer) -> None:
    """Source: TransactionCoordinator.onEndTransactionComplete."""
    code = answer.error_code
    if not code:
        _LOG.info("The transaction of %s is aborted since its time is up", transactional_id)
        return
    _LOG.log(
        logging.DEBUG if code in _CHANGED_SINCE else logging.WARNING,
        "The transaction of %s is not aborted, although its time is up: %s",
        transactional_id,
        ErrorCode.of(code).name,
    )
