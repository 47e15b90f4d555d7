"""Transactions that time out, and transactional ids that expire.

Source: kafka.coordinator.transaction.TransactionCoordinator.abortTimedOutTransactions,
TransactionStateManager.removeExpiredTransactionalIds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.led_partitions import CoordinatorHost
from cordwood.coordinator.transaction import events
from cordwood.coordinator.transaction.errors import error_of_append
from cordwood.coordinator.transaction.markers import TransactionRuntime
from cordwood.coordinator.transaction.new_ids import WritesWithId
from cordwood.coordinator.transaction.requests import EndAnswer
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.timers import Timer
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC

_LOG = logging.getLogger(__name__)

#: Errors after which nothing is left to do for a transaction that has timed out.
_CHANGED_SINCE = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class TransactionMaintenance:
    """Aborts transactions whose time is up, and removes unused transactional ids."""

    def __init__(
        self, runtime: TransactionRuntime, writes: WritesWithId, host: CoordinatorHost
    ) -> None:
        """Does nothing before `start`."""
        self._runtime = runtime
        self._writes = writes
        self._host = host
        self._tasks: list[Timer] = []

    def start(self, settings: TransactionSettings) -> None:
        """Begins both checks."""
        schedule = self._host.schedule
        self._tasks = [
            schedule("transaction-abort", settings.abort_interval_ms, self.abort_timed_out),
            schedule(
                "transactionalId-expiration", settings.expiration_interval_ms, self.expire_ids
            ),
        ]

    def close(self) -> None:
        """Ends the checks."""
        for task in self._tasks:
            task.cancel()

    def abort_timed_out(self) -> None:
        """Aborts the transactions that have been open for too long, and fences their producers.

        Source: TransactionCoordinator.abortTimedOutTransactions.
        """
        self._in_each(self._abort_timed_out_in)

    def _abort_timed_out_in(self, partition: int) -> None:
        shard, at = self._runtime.partitions.read(partition)
        now_ms = self._host.clock.now_ms()
        for transactional_id, transaction in shard.transactions.items(at):
            if transaction.is_timed_out(now_ms) and not shard.is_pending(transactional_id):
                self._abort(partition, transactional_id, transaction.producer_id)

    def _abort(self, partition: int, transactional_id: str, producer_id: int) -> None:
        self._writes.write(
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
        self._in_each(self._expire_ids_in)

    def _expire_ids_in(self, partition: int) -> None:
        def log(error: KafkaError) -> None:
            _LOG.warning(
                "Cannot remove expired transactional ids of %s-%d: %s",
                TRANSACTION_STATE_TOPIC,
                partition,
                error,
            )

        self._runtime.write(partition, events.ExpireIds(reply_to=ReplyTo(lambda _: None, log)))

    def _in_each(self, run: Callable[[int], None]) -> None:
        """Calls a function for each partition that is loaded."""
        partitions = sorted(partition for partition, _, _ in self._runtime.partitions.loaded())
        self._runtime.partitions.do_between_requests(
            (partition, partial(run, partition)) for partition in partitions
        )


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
