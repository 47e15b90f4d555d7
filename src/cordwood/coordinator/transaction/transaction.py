"""The transaction of a transactional id, and all its transitions.

A `Transaction` is immutable: a transition returns another one, which is what a record of
`__transaction_state` says.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing, Empty, PrepareAbort
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing, Empty, PrepareAbort
    Empty -> PrepareAbort

Kafka's states Dead and PrepareEpochFence are never in a record: they stand for a tombstone that is
not committed, and for a bump of the epoch that is part of the transition to PrepareAbort.

With transaction version 2 (KIP-890) the end of each transaction bumps the epoch: the record of the
Prepare state has the new epoch, and if that is the last one, the id of the next producer.

Source: org.apache.kafka.coordinator.transaction.TransactionMetadata, TransactionState (4.3.0).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.transaction.errors import IllegalTransitionError
from cordwood.format.java_map import JavaHashSet
from cordwood.format.transaction_state import STATE_NAMES
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction with two-phase commit: it does not time out."""
EPOCH_BUMP_VERSION: Final = 2
"""The transaction version from which the end of a transaction bumps the epoch."""

_LOG = logging.getLogger(__name__)


class TransactionState(enum.Enum):
    """A state by its number in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def kafka_name(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return STATE_NAMES[self.value]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers are to be written."""
        return self is TransactionState.PREPARE_COMMIT or self is TransactionState.PREPARE_ABORT

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no transaction: the transactional id may expire."""
        return self in _AT_REST


_STATES: Final = {state.value: state for state in TransactionState}
STATES_BY_NAME: Final[Mapping[str, TransactionState | None]] = {
    name: _STATES.get(number) for number, name in STATE_NAMES.items()
}
"""The states by their names; None for those that no transaction is ever in here."""

_AT_REST: Final = frozenset(
    {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
)
PREVIOUS_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: _AT_REST,
    TransactionState.ONGOING: _AT_REST | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _AT_REST | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
}
"""The states from which a state may be entered."""


class Producer(NamedTuple):
    """The producer id and epoch that a client has."""

    producer_id: int
    producer_epoch: int


def is_epoch_exhausted(producer_epoch: int) -> bool:
    """Whether no producer may be given a higher epoch: the last one is for fencing."""
    return producer_epoch >= EPOCH_MAX - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of a transactional id.

    `partitions` are in the order in which Kafka's HashSet yields them. `last_producer_epoch` and
    `has_failed_epoch_fence` are not in records: a load does not find them.
    """

    transactional_id: str
    producer_id: int
    prev_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last transition."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the transaction that is being ended; -1 if it stays the same."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = -1
    update_ms: int
    client_version: int = 0
    has_failed_epoch_fence: bool = False
    """The epoch is one higher than in the log, because the record of a fencing is not there."""

    def check_invariants(self) -> None:
        """Checks that a transaction that has ended has no partitions and no next producer."""
        assert len(set(self.partitions)) == len(self.partitions), self.partitions
        assert NO_PRODUCER_EPOCH <= self.producer_epoch <= EPOCH_MAX, self.producer_epoch
        if self.state.is_at_rest:
            assert not self.partitions, (self.state, self.partitions)
            assert self.next_producer_id == NO_PRODUCER_ID, (self.state, self.next_producer_id)

    # ---- what it is

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether no producer may be given a higher epoch of this producer id."""
        return is_epoch_exhausted(self.producer_epoch)

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether it has been open for longer than its producer wanted.

        Source: TransactionStateManager.timedOutTransactions.
        """
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the transactional id has been unused for so long that it is removed.

        Source: TransactionStateManager.shouldExpire.
        """
        return self.state.is_at_rest and self.update_ms <= now_ms - expiration_ms

    def contains_all(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all these partitions are in the transaction."""
        return set(self.partitions).issuperset(partitions)

    # ---- its producer

    def with_next_epoch(
        self, *, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> Transaction:
        """A copy after InitProducerId with the same producer id.

        Args:
            timeout_ms: of transactions from now on.
            expected_epoch: the epoch that the client has; None if it is a new producer.
            now_ms: the time.

        Raises:
            IllegalTransitionError: there is no higher epoch.
            CoordinatorRequestError: PRODUCER_FENCED.

        Source: TransactionMetadata.prepareIncrementProducerEpoch.
        """
        if self.is_epoch_exhausted:
            raise IllegalTransitionError(
                f"Producer {self.producer_id} of {self.transactional_id} has no epoch left"
            )
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in {expected_epoch, NO_PRODUCER_EPOCH}:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                # The request is repeated: its first answer did not arrive.
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                _LOG.info(
                    "The producer of %s has epoch %d, which is neither the current epoch %d nor "
                    "the one before it, %d",
                    self.transactional_id,
                    expected_epoch,
                    self.producer_epoch,
                    self.last_producer_epoch,
                )
                raise CoordinatorRequestError(ErrorCode.PRODUCER_FENCED)
        return self._initialized(
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            update_ms=now_ms,
        )

    def with_producer_id(
        self, producer_id: int, *, timeout_ms: int, keeps_last_epoch: bool, now_ms: int
    ) -> Transaction:
        """A copy after InitProducerId with a new producer id, as the old one's epochs are used up.

        With `keeps_last_epoch` the client has the old producer id, and may repeat the request.

        Source: TransactionMetadata.prepareProducerIdRotation.
        """
        return self._initialized(
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if keeps_last_epoch else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            update_ms=now_ms,
        )

    def _initialized(self, **changes: Any) -> Transaction:
        return self._moved(TransactionState.EMPTY, partitions=(), start_ms=-1, **changes)

    def fenced(self) -> Transaction:
        """A copy with the epoch that fences its producer, to be aborted in the same step.

        The epoch is not bumped again if an earlier attempt to write it has failed: no client has
        been given that epoch.

        Source: TransactionMetadata.prepareFenceProducerEpoch,
        TransactionCoordinator.endTransactionWithTV1.
        """
        if self.producer_epoch == EPOCH_MAX:
            _LOG.error(
                "Fencing producer %d of %s, whose epoch is the highest there is: a bug",
                self.producer_id,
                self.transactional_id,
            )
        is_bumped = not self.has_failed_epoch_fence and self.producer_epoch != EPOCH_MAX
        return replace(
            self,
            producer_epoch=self.producer_epoch + is_bumped,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )

    def with_failed_fence(self) -> Transaction:
        """The state that `fenced` gives, while the log has the transaction with its old epoch."""
        return replace(self, has_failed_epoch_fence=True)

    # ---- a transaction

    def with_partitions(
        self, partitions: Iterable[TopicPartition], *, client_version: int, now_ms: int
    ) -> Transaction:
        """A copy with partitions added; the transaction begins if there is none.

        Source: TransactionMetadata.prepareAddPartitions.
        """
        held = JavaHashSet.of(self.partitions, len(self.partitions))
        for each in java_set_order(partitions):
            held.add(each)
        return self._moved(
            TransactionState.ONGOING,
            partitions=tuple(held),
            start_ms=now_ms if self.state.is_at_rest else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self,
        *,
        commit: bool,
        client_version: int,
        now_ms: int,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> Transaction:
        """A copy with the outcome decided: markers follow when this is committed.

        Args:
            commit: whether it is committed.
            client_version: the transaction version; from version 2 on the epoch is bumped.
            now_ms: the time.
            next_producer_id: the producer id to continue with, if the epochs are used up.

        Raises:
            IllegalTransitionError: there is no transaction, or no higher epoch.

        Source: TransactionMetadata.prepareAbortOrCommit.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version < EPOCH_BUMP_VERSION and self.state.is_at_rest:
            raise IllegalTransitionError(f"{self.transactional_id} has no transaction to end")
        if client_version >= EPOCH_BUMP_VERSION:
            last_epoch = epoch
            if epoch == EPOCH_MAX and not commit:
                _LOG.error(
                    "Aborting the transaction of producer %d of %s, whose epoch is the highest "
                    "there is: a bug",
                    self.producer_id,
                    self.transactional_id,
                )
            else:
                epoch += 1
        return self._moved(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            # Without a partition it has not begun before.
            start_ms=now_ms if self.state.is_at_rest else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
            has_failed_epoch_fence=False,
        )

    def completed(self, *, now_ms: int) -> Transaction:
        """A copy with all markers written.

        Source: TransactionMetadata.prepareComplete.
        """
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        # Otherwise the epoch stays; of an exhausted one, the last that the client knows of.
        continues_as_next = (
            self.client_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID
        )
        return self._moved(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            producer_id=self.next_producer_id if continues_as_next else self.producer_id,
            producer_epoch=0 if continues_as_next else self.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
            update_ms=now_ms,
        )

    def _moved(self, state: TransactionState, **changes: Any) -> Transaction:
        """A copy after a transition to `state`.

        Raises:
            IllegalTransitionError: the state, the producer id or the epoch is not possible.

        Source: TransactionMetadata.prepareTransitionTo.
        """
        moved = replace(self, state=state, prev_producer_id=self.producer_id, **changes)
        if moved.producer_id < 0:
            raise IllegalTransitionError(f"Producer id {moved.producer_id} is not possible")
        if not 0 <= moved.producer_epoch <= EPOCH_MAX:
            raise IllegalTransitionError(f"Producer epoch {moved.producer_epoch} is not possible")
        if self.state not in PREVIOUS_STATES[state]:
            raise IllegalTransitionError(
                f"{self.transactional_id} cannot move from {self.state.kafka_name} to "
                f"{state.kafka_name}"
            )
        return moved


def java_set_order(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Partitions in the order in which a HashSet yields them that they were added to one by one."""
    held: JavaHashSet[TopicPartition] = JavaHashSet()
    for each in partitions:
        held.add(each)
    return tuple(held)
