"""Producers: an idempotent one with acks=all and one batch in flight, that gives no batch up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from cordwood.format.record_batch import Record, build_batch
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.simulation.clients.client import Client, NoAnswerError, name_of
from support.simulation.event_loop import EPOCH_MS, SimulatedLoop
from support.simulation.events import Acknowledged, Note, Sent, Unacceptable
from support.simulation.history import History

_TIMEOUT_MS: Final = 1000
_RECORDS_MAX: Final = 3
#: A producer whose batches are committed and in order is never given these. A leader that was
#: replaced and does not know it answers OUT_OF_ORDER_SEQUENCE_NUMBER, as it lacks batches.
_IMPOSSIBLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


def batch_of(
    values: Sequence[bytes],
    *,
    now_ms: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    is_transactional: bool = False,
) -> bytes:
    """A batch as producers send it."""
    return build_batch(
        [Record(number, now_ms, None, value) for number, value in enumerate(values)],
        base_offset=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


async def produce(
    client: Client, partition: TopicPartition, batch: bytes, transactional_id: str | None = None
) -> tuple[int, int]:
    """Sends a batch to the leader; returns the error code and the offset.

    Raises:
        NoAnswerError: it is not known what has become of it.
    """
    leader, _ = await client.leader(partition)
    fields = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": _TIMEOUT_MS,
        "topic_data": [
            {
                "name": partition.topic,
                "topic_id": await client.topic_id(partition.topic),
                "partition_data": [{"index": partition.partition, "records": batch}],
            }
        ],
    }
    answer = await client.call(leader, "produce", fields)
    found = answer.responses[0].partition_responses[0]
    return found.error_code, found.base_offset


class Producer(Client):
    """Common part of both producers: partitions to choose from, and pauses."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        rng: random.Random,
        history: History,
        *,
        partitions: Sequence[TopicPartition],
        pause_s: float,
        padding_bytes: int = 0,
        is_kept: bool = True,
    ) -> None:
        """Sends nothing yet.

        Args:
            name: of the producer; also the transactional id, if it is transactional.
            loop: the loop.
            rng: chooses partitions, sizes, outcomes and pauses.
            history: receives what is sent and acknowledged.
            partitions: to choose from.
            pause_s: between batches or transactions, on average.
            padding_bytes: that each value has more.
            is_kept: nothing is deleted of its partitions. With the last of a producer's records, a
                replica may forget the producer.
        """
        super().__init__(name, loop, rng, history)
        self.partitions = partitions
        self._pause_s = pause_s
        self.is_kept = is_kept
        self._padding = b"." * padding_bytes
        self._producer_id = -1
        self._count = 0
        self.is_stopping = False
        self.is_done = False

    async def pause(self) -> None:
        """Waits until the next batch or transaction is due."""
        await asyncio.sleep(self.rng.expovariate(1 / self._pause_s))


class IdempotentProducer(Producer):
    """See the module."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Takes the arguments of `Producer`."""
        super().__init__(*arguments, **options)
        self._epoch = 0
        self._sequences = dict.fromkeys(self.partitions, 0)
        #: The epoch of the last batch that was acknowledged in each partition.
        self._known: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Sends until it is to stop, and its last batch is acknowledged."""
        await self._begin()
        while not self.is_stopping:
            await self._send_one()
            if self.rng.random() < 0.1:
                self._raise_epoch()
            if self.is_kept and self.rng.random() < 0.1:
                await self._send_late()
            await self.pause()
        self.is_done = True

    def _raise_epoch(self) -> None:
        """Raises the epoch as a client does that has given a batch up (KIP-360)."""
        self._epoch += 1
        self._sequences = dict.fromkeys(self.partitions, 0)

    async def _send_late(self) -> None:
        """A batch of an epoch before, whose sequence numbers would follow."""
        partition = self.rng.choice(self.partitions)
        if self._known.get(partition) != self._epoch or self._epoch == 0:
            return
        batch = self._batch(partition, [b"late"], self._epoch - 1)
        try:
            code, offset = await produce(self, partition, batch)
        except NoAnswerError:
            return
        if code == ErrorCode.NONE:
            self.note(Unacceptable(f"a late batch is appended to {partition} at {offset}"))

    def _batch(self, partition: TopicPartition, values: Sequence[bytes], epoch: int) -> bytes:
        return batch_of(
            values,
            now_ms=EPOCH_MS + int(self.loop.now_ms),
            producer_id=self._producer_id,
            producer_epoch=epoch,
            sequence=self._sequences[partition],
        )

    async def _begin(self) -> None:
        while self._producer_id < 0:
            try:
                fields = {"transactional_id": None, "transaction_timeout_ms": 10_000}
                answer = await self.call(self.rng.choice((1, 2, 3)), "init_producer_id", fields)
                self._producer_id = answer.producer_id
            except NoAnswerError:
                pass
            if self._producer_id < 0:
                await self.back_off()
        self.note(Note(f"has the producer id {self._producer_id}"))

    async def _send_one(self) -> None:
        partition = self.rng.choice(self.partitions)
        values = []
        for _ in range(self.rng.randint(1, _RECORDS_MAX)):
            self._count += 1
            values.append(f"{self.name}:{self._count}".encode() + self._padding)
        self.note(Sent(partition, tuple(values)))
        batch = self._batch(partition, values, self._epoch)
        while True:
            try:
                code, offset = await produce(self, partition, batch)
            except NoAnswerError:
                await self.back_off()
                continue
            if code == ErrorCode.NONE:
                break
            if code in _IMPOSSIBLE:
                self.note(Unacceptable(f"{self.name} is answered {name_of(code)} by {partition}"))
            self.note(Note(f"refused by {partition}: {name_of(code)}"))
            await self.back_off()
        self._sequences[partition] += len(values)
        self._known[partition] = self._epoch
        self.note(Acknowledged(partition, tuple(values), offset))
