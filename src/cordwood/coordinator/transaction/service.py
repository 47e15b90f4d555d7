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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cordwood.coordinator.effects import Reply, ReplyTo
from cordwood.coordinator.led_partitions import CoordinatorHost
from cordwood.coordinator.runtime import CoordinatorRuntime
from cordwood.coordinator.transaction import events, queries
from cordwood.coordinator.transaction.errors import error_of_append
from cordwood.coordinator.transaction.machine import COMPLETION, Prepared, TransactionStateMachine
from cordwood.coordinator.transaction.maintenance import TransactionMaintenance
from cordwood.coordinator.transaction.markers import (
    Markers,
    MarkerSender,
    TransactionRuntime,
    TransactionStateLog,
)
from cordwood.coordinator.transaction.new_ids import ProducerIdSource, WritesWithId
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
from cordwood.coordinator.transaction.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_partition import TopicPartition

_LOG = logging.getLogger(__name__)


class TransactionCoordinator:
    """Answers the requests of the transaction APIs.

    Functions that change transactions take a `reply`, which is called when the change is committed.
    Functions that only read return the committed state.
    """

    key_type = 1
    has_transactional_records = False

    def __init__(
        self,
        log: TransactionStateLog,
        host: CoordinatorHost,
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
        self._host = host
        self._producer_ids = producer_ids
        self._machine = TransactionStateMachine(settings, version, ReplyTo(self._send_markers))
        self.runtime: TransactionRuntime = CoordinatorRuntime(
            self._machine,
            log,
            host,
            write_timeout_ms=settings.request_timeout_ms,
            topic_partitions=settings.topic_partitions,
            reloads=True,  # markers have the new leader epoch
            on_unloaded=markers.cancel,
        )
        self._markers = Markers(self.runtime, log, host, markers)
        self._writes = WritesWithId(self.runtime, producer_ids)
        self.maintenance = TransactionMaintenance(self.runtime, self._writes, host)
        self._is_running = False

    @property
    def settings(self) -> TransactionSettings:
        """The settings of the broker that transactions obey, at present."""
        return self._machine.settings

    @settings.setter
    def settings(self, settings: TransactionSettings) -> None:
        """Replaces the settings; changes that need no restart take effect at the next event."""
        self._machine.settings = settings

    # ---- partitions

    def partition_for(self, transactional_id: str) -> TopicPartition:
        """The partition of `__transaction_state` that a transactional id's records are in."""
        return self.runtime.partitions.partition_for(transactional_id)

    def start(self) -> None:
        """Checks regularly what has timed out, and loads what is led here already."""
        _LOG.info("Starting up.")
        self.maintenance.start(self.settings)
        self._is_running = True
        self.runtime.partitions.load_all(lambda: None)
        _LOG.info("Startup complete.")

    def close(self) -> None:
        """Unloads all transactions: requests that wait are refused, no marker is waited for."""
        _LOG.info("Shutting down.")
        self._is_running = False
        self.maintenance.close()
        self.runtime.partitions.unload()
        _LOG.info("Shutdown complete.")

    def _number_of(self, transactional_id: str) -> int:
        return self.runtime.partitions.index_for(transactional_id)

    def _read(self, transactional_id: str) -> tuple[TransactionShard, int]:
        return self.runtime.partitions.read(self._number_of(transactional_id))

    def _send_markers(self, prepared: Prepared) -> None:
        self._markers.send(prepared)

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
                    "%s has producer id %d and epoch %d, on partition %s",
                    transactional_id,
                    answer.producer_id,
                    answer.producer_epoch,
                    self.partition_for(transactional_id),
                )
            reply(answer)

        self._writes.write(
            self._number_of(transactional_id),
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
        self.runtime.write(self._number_of(transactional_id), event)

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
        self._writes.write(
            self._number_of(request.transactional_id),
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
            loaded = self.runtime.partitions.read_all()
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
            for _, shard, at in self.runtime.partitions.loaded()
            for transactional_id, transaction in shard.transactions.items(at)
        }

    @property
    def unwritten_ends(self) -> int:
        """The number of transactions that have all markers, but no record yet of their end.

        Source: TransactionMarkerChannelManager, the metric LogAppendRetryQueueSize.
        """
        return self.runtime.partitions.timers_of(COMPLETION)


def _new_producer(drawn: int | KafkaError) -> InitProducerIdAnswer:
    """The answer to a producer without a transactional id."""
    if isinstance(drawn, KafkaError):
        return InitProducerIdAnswer(drawn.code)
    return InitProducerIdAnswer(ErrorCode.NONE, drawn, 0)
