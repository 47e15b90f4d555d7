"""The requests of the transaction APIs, and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.coordinator.transaction.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Producer,
)
from cordwood.model.error_codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """InitProducerId; producer id and epoch are those that the client has, or -1."""

    transactional_id: str | None
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    enables_two_phase_commit: bool = False
    keeps_prepared: bool = False

    @property
    def expected(self) -> Producer | None:
        """The producer that the client has been; None if it is a new one."""
        if self.producer_id == NO_PRODUCER_ID:
            return None
        return Producer(self.producer_id, self.producer_epoch)


class InitProducerIdAnswer(NamedTuple):
    """The answer to InitProducerId."""

    error_code: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """EndTxn; `client_version` is the transaction version that the request's version stands for."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int


class EndAnswer(NamedTuple):
    """The answer to EndTxn: the producer id and epoch to continue with, -1 before version 2."""

    error_code: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class DescribedTransaction(NamedTuple):
    """A transaction as DescribeTransactions describes it; defaults for an error."""

    error_code: int
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: Sequence[tuple[str, Sequence[int]]] = ()


class ListedTransaction(NamedTuple):
    """A transaction as ListTransactions lists it."""

    transactional_id: str
    producer_id: int
    state: str


class ListedTransactions(NamedTuple):
    """The answer to ListTransactions."""

    error_code: int = ErrorCode.NONE
    unknown_states: Sequence[str] = ()
    transactions: Sequence[ListedTransaction] = ()
