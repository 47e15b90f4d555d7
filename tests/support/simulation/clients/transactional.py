"""A transactional producer (KIP-890, version 2), which is sometimes replaced by its next life.

Some transactions commit an offset of a group that has no members, some stand still until the
coordinator has aborted them.

What it says of its transactions, for `checkers.transactions`: what it has sent; that it asks for
the commit; the outcome, once an answer has said it. A transaction that was given up before its
commit was asked for is aborted once the next life is initialised. One whose commit was asked for
and never answered may be either.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Any, Final

from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.simulation.clients.client import GROUP as OF_GROUP
from support.simulation.clients.client import TRANSACTION, NoAnswerError, name_of
from support.simulation.clients.producers import Producer, batch_of, produce
from support.simulation.event_loop import EPOCH_MS
from support.simulation.events import (
    Acknowledged,
    CommitAsked,
    Note,
    OffsetCommitted,
    OffsetFetchAsked,
    OffsetFetched,
    OffsetSent,
    Sent,
    TransactionEnded,
    Unacceptable,
)

GROUP: Final = "processed"
"""The group whose offsets are committed in transactions."""
_TIMEOUT_MS: Final = 3000
_NAMES_TOPICS_UP_TO: Final = 5
#: The producer has been fenced: by its next life, or since the coordinator has aborted.
_FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_IMPOSSIBLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class _GivenUpError(Exception):
    """The transaction cannot continue: the producer begins its next life."""


class TransactionalProducer(Producer):
    """See the module."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Takes the arguments of `Producer`."""
        super().__init__(*arguments, **options)
        self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._open: str | None = None
        self._was_commit_asked = False
        self._offset = 0
        self._numbers = itertools.count()
        #: The partition, producer id and epoch of each batch that was acknowledged.
        self.written: list[tuple[TopicPartition, int, int]] = []

    async def run(self) -> None:
        """Runs transactions until it is to stop; the last one is ended."""
        await self._begin_life()
        while not self.is_stopping:
            try:
                await self._transaction()
            except _GivenUpError as why:
                self.note(Note(f"its next life begins: {why}"))
                await self._begin_life()
            await self.pause()
        self.is_done = True

    async def _begin_life(self) -> None:
        """Source: TransactionManager.initializeTransactions."""
        while True:
            fields = {
                "transactional_id": self.name,
                "transaction_timeout_ms": _TIMEOUT_MS,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            try:
                coordinator = await self.coordinator(TRANSACTION, self.name)
                answer = await self.call(coordinator, "init_producer_id", fields)
            except NoAnswerError:
                await self.back_off()
                continue
            self._require_possible(answer.error_code, "InitProducerId")
            if answer.error_code == ErrorCode.NONE:
                break
            await self.back_off()
        self._take_epoch(answer.producer_id, answer.producer_epoch, "its next life")
        if self._open is not None:
            outcome = None if self._was_commit_asked else False
            self.note(TransactionEnded(self._open, outcome))
            self._open = None

    def _take_epoch(self, producer_id: int, epoch: int, what: str) -> None:
        if producer_id == self._producer_id and epoch <= self._epoch:
            text = f"{what} of {self.name} has epoch {epoch} after {self._epoch}"
            self.note(Unacceptable(text))
        self._sequences.clear()
        self.note(Note(f"has the producer id {producer_id} and the epoch {epoch}"))
        self._producer_id, self._epoch = producer_id, epoch

    def _require_possible(self, code: int, what: str) -> None:
        if code in _IMPOSSIBLE:
            self.note(Unacceptable(f"{what} of {self.name} is answered {name_of(code)}"))

    # ---- a transaction

    async def _transaction(self) -> None:
        self._count += 1
        self._open = f"{self.name}/{self._count}"
        self._was_commit_asked = False
        count = self.rng.randint(1, len(self.partitions))
        for number, partition in enumerate(self.rng.sample(list(self.partitions), count)):
            await self._send(partition, number)
            if self.rng.random() < 0.03:
                raise _GivenUpError("it is replaced")
        offset = await self._commit_offset() if self.rng.random() < 0.5 else None
        if self.rng.random() < 0.05:
            self.note(Note("stands still"))
            await asyncio.sleep(2 * _TIMEOUT_MS / 1000)
        await self._end(is_commit=self.rng.random() < 0.75, offset=offset)
        if self.rng.random() < 0.5:
            with suppress(NoAnswerError):
                await self._fetch_offset()

    async def _send(self, partition: TopicPartition, number: int) -> None:
        assert self._open is not None, "a transaction is open"
        values = tuple(
            f"{self._open}:{number}.{each}".encode() for each in range(self.rng.randint(1, 3))
        )
        self.note(Sent(partition, values, self._open))
        sequence = self._sequences.get(partition, 0)
        batch = batch_of(
            values,
            now_ms=EPOCH_MS + int(self.loop.now_ms),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            sequence=sequence,
            is_transactional=True,
        )
        while True:
            try:
                code, offset = await produce(self, partition, batch, self.name)
            except NoAnswerError:
                await self.back_off()
                continue
            if code == ErrorCode.NONE:
                break
            self._require_possible(code, "a batch")
            if code in _FENCED or code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise _GivenUpError(name_of(code))
            await self.back_off()
        self._sequences[partition] = sequence + len(values)
        self.written.append((partition, self._producer_id, self._epoch))
        self.note(Acknowledged(partition, values, offset))

    async def _commit_offset(self) -> int:
        """Has the transaction commit the next offset (TxnOffsetCommit), and returns it."""
        assert self._open is not None, "a transaction is open"
        self._offset += 1
        partition, offset = self.partitions[0], self._offset
        self.note(OffsetSent(self._open, GROUP, partition, offset))
        committed = {
            "partition_index": partition.partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        fields = {
            "transactional_id": self.name,
            "group_id": GROUP,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": partition.topic, "partitions": [committed]}],
        }
        while True:
            try:
                coordinator = await self.coordinator(OF_GROUP, GROUP)
                answer = await self.call(
                    coordinator, "txn_offset_commit", fields, version_max=_NAMES_TOPICS_UP_TO
                )
            except NoAnswerError:
                await self.back_off()
                continue
            code = answer.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                return offset
            self._require_possible(code, "an offset")
            if code in _FENCED:
                raise _GivenUpError(name_of(code))
            await self.back_off()

    async def _fetch_offset(self) -> None:
        """Asks for the offset of the group, which has to be stable."""
        partition, number = self.partitions[0], next(self._numbers)
        self.note(OffsetFetchAsked(GROUP, partition, number))
        topic = {
            "name": partition.topic,
            "topic_id": await self.topic_id(partition.topic),
            "partition_indexes": [partition.partition],
        }
        group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": [topic]}
        coordinator = await self.coordinator(OF_GROUP, GROUP)
        fields = {"groups": [group], "require_stable": True}
        (found,) = (await self.call(coordinator, "offset_fetch", fields)).groups
        if found.error_code or found.topics[0].partitions[0].error_code:
            return
        offset = found.topics[0].partitions[0].committed_offset
        self.note(OffsetFetched(GROUP, partition, number, offset))

    async def _end(self, *, is_commit: bool, offset: int | None) -> None:
        transaction = self._open
        assert transaction is not None, "a transaction is open"
        if is_commit:
            self._was_commit_asked = True
            self.note(CommitAsked(transaction))
        fields = {
            "transactional_id": self.name,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "committed": is_commit,
        }
        while True:
            try:
                coordinator = await self.coordinator(TRANSACTION, self.name)
                answer = await self.call(coordinator, "end_txn", fields)
            except NoAnswerError:
                await self.back_off()
                continue
            code = answer.error_code
            if code == ErrorCode.NONE:
                break
            self._require_possible(code, "EndTxn")
            if code in _FENCED:
                raise _GivenUpError(name_of(code))
            await self.back_off()
        self._take_epoch(answer.producer_id, answer.producer_epoch, "the next transaction")
        self._open = None
        self.note(TransactionEnded(transaction, is_commit))
        if is_commit and offset is not None:
            self.note(OffsetCommitted(GROUP, self.partitions[0], offset))
