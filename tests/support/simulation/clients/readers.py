"""Readers of partitions, with read_uncommitted or read_committed.

What is aborted is left out as Kafka's consumer does it. Source:
org.apache.kafka.clients.consumer.internals.CompletedFetch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from cordwood.format.control_record import ControlType, parse_control_key
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.simulation.clients.client import Client, NoAnswerError, name_of
from support.simulation.event_loop import SimulatedLoop
from support.simulation.events import Earliest, Latest, Note, Read, ReadOn, Unacceptable, Watermark
from support.simulation.history import History

_BYTES_MAX: Final = 1 << 16
_WAIT_MS: Final = 300
_EARLIEST: Final = -2
_LATEST: Final = -1
#: A reader that only reads what it was given before is never given these.
_IMPOSSIBLE: Final = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR}
)


class Reader(Client):
    """Reads partitions from their start on, and asks for their latest offsets now and then."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        rng: random.Random,
        history: History,
        *,
        partitions: Sequence[TopicPartition],
        is_committed: bool,
        pause_s: float = 0.0,
    ) -> None:
        """Has read nothing.

        Args:
            name: of the reader.
            loop: the loop.
            rng: of this reader.
            history: receives what is read.
            partitions: to read.
            is_committed: with read_committed.
            pause_s: between two fetches of a partition.
        """
        super().__init__(name, loop, rng, history)
        self.positions = dict.fromkeys(partitions, 0)
        self._is_committed = is_committed
        self._pause_s = pause_s
        self._aborted: dict[TopicPartition, dict[int, None]] = {each: {} for each in partitions}

    async def run(self) -> None:
        """Reads for ever."""
        await asyncio.gather(*(self._read_on(each) for each in self.positions))

    async def _read_on(self, partition: TopicPartition) -> None:
        while True:
            try:
                if self.rng.random() < 0.1:
                    await self.ask_latest(partition)
                await self.fetch(partition)
            except NoAnswerError:
                await self.back_off()
            await asyncio.sleep(self._pause_s)

    async def read_all(self, partition: TopicPartition) -> None:
        """Reads up to the latest offset.

        Raises:
            NoAnswerError: nobody answers.
        """
        end = await self.ask_latest(partition)
        while end is None or self.positions[partition] < end:
            before = self.positions[partition]
            await self.fetch(partition)
            if self.positions[partition] == before:
                await self.back_off()
            if end is None:
                end = await self.ask_latest(partition)

    async def begin_at_the_first(self, partition: TopicPartition) -> None:
        """Continues at the first offset that a partition has."""
        found = None
        while found is None:
            with suppress(NoAnswerError):
                found = await self._ask_offset(partition, _EARLIEST)
        self.note(Earliest(self.name, partition, found))
        self.positions[partition] = max(self.positions[partition], found)

    async def ask_latest(self, partition: TopicPartition) -> int | None:
        """The latest offset of a partition; None if it is not known now.

        Raises:
            NoAnswerError: nobody answers.
        """
        found = await self._ask_offset(partition, _LATEST)
        if found is not None and not self._is_committed:
            self.note(Latest(self.name, partition, found))
        return found

    async def _ask_offset(self, partition: TopicPartition, timestamp: int) -> int | None:
        leader, epoch = await self.leader(partition)
        fields = {
            "replica_id": -1,
            "isolation_level": int(self._is_committed),
            "topics": [
                {
                    "name": partition.topic,
                    "partitions": [
                        {
                            "partition_index": partition.partition,
                            "current_leader_epoch": epoch,
                            "timestamp": timestamp,
                        }
                    ],
                }
            ],
        }
        answer = await self.call(leader, "list_offsets", fields)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            await self.back_off()
            return None
        return int(found.offset)

    async def fetch(self, partition: TopicPartition) -> None:
        """Reads what is there.

        Raises:
            NoAnswerError: nobody answers.
        """
        leader, epoch = await self.leader(partition)
        position = self.positions[partition]
        fields = {
            "max_wait_ms": _WAIT_MS,
            "min_bytes": 1,
            "max_bytes": _BYTES_MAX,
            "isolation_level": int(self._is_committed),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic_id": await self.topic_id(partition.topic),
                    "partitions": [
                        {
                            "partition": partition.partition,
                            "current_leader_epoch": epoch,
                            "fetch_offset": position,
                            "last_fetched_epoch": -1,
                            "log_start_offset": -1,
                            "partition_max_bytes": _BYTES_MAX,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await self.call(leader, "fetch", fields)
        if answer.error_code or not answer.responses:
            raise NoAnswerError("the fetch was refused")
        found = answer.responses[0].partitions[0]
        if found.error_code:
            if found.error_code in _IMPOSSIBLE:
                self.note(
                    Unacceptable(
                        f"{self.name} is answered {name_of(found.error_code)} at {position} of "
                        f"{partition} in epoch {epoch}"
                    )
                )
            self.note(Note(f"{partition} at {position}: {name_of(found.error_code)}"))
            await self.back_off()
            return
        self.note(Watermark(self.name, partition, epoch, found.high_watermark))
        self._take(partition, position, found)

    def _take(self, partition: TopicPartition, position: int, found: Any) -> None:
        """Source: CompletedFetch.fetchRecords."""
        if not found.records:
            return
        aborted = self._aborted[partition]
        waiting = sorted(
            ((each.first_offset, each.producer_id) for each in found.aborted_transactions or ()),
            reverse=True,
        )
        next_offset = position
        for _, batch in iter_batches(bytes(found.records)):
            assert isinstance(batch, RecordBatch), "no old messages"
            header = batch.header
            next_offset = header.next_offset
            if next_offset <= position:
                continue
            if self._is_committed:
                while waiting and waiting[-1][0] <= header.last_offset:
                    aborted[waiting.pop()[1]] = None
                if header.is_control:
                    record = batch.records()[0]
                    if parse_control_key(record.key) is ControlType.ABORT:
                        aborted.pop(header.producer_id, None)
                    continue
                if header.is_transactional and header.producer_id in aborted:
                    continue
            elif header.is_control:
                continue
            for record in batch.records():
                if record.offset >= position:
                    value = record.value or b""
                    self.note(Read(self.name, partition, record.offset, value, self._is_committed))
        self.positions[partition] = next_offset
        self.note(ReadOn(self.name, partition, next_offset, self._is_committed))
