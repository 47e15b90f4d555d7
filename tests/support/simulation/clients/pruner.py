"""A client that deletes records, below the high watermark, from time to time."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.simulation.clients.client import Client, NoAnswerError
from support.simulation.event_loop import SimulatedLoop
from support.simulation.events import Note
from support.simulation.history import History

_PAUSE_S: Final = 0.8
_TIMEOUT_MS: Final = 1000
_TO_THE_END: Final = -1


class Pruner(Client):
    """Deletes the records of one partition up to some offset, or up to the high watermark."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        rng: random.Random,
        history: History,
        *,
        partition: TopicPartition,
    ) -> None:
        """Deletes nothing yet; for the arguments see `Client`."""
        super().__init__(name, loop, rng, history)
        self._partition = partition
        self._start = 0

    async def run(self) -> None:
        """Deletes for ever."""
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / _PAUSE_S))
            try:
                await self._delete()
            except NoAnswerError:
                await self.back_off()

    async def _delete(self) -> None:
        place = self._partition
        leader, _ = await self.leader(place)
        offset = self.rng.choice((_TO_THE_END, self._start + self.rng.randint(1, 20)))
        wanted = {"partition_index": place.partition, "offset": offset}
        fields = {
            "topics": [{"name": place.topic, "partitions": [wanted]}],
            "timeout_ms": _TIMEOUT_MS,
        }
        answer = await self.call(leader, "delete_records", fields)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            self.note(Note(f"{place} is not pruned: {ErrorCode.of(found.error_code).name}"))
            await self.back_off()
            return
        self._start = max(self._start, found.low_watermark)
        self.note(Note(f"{place} is pruned to {found.low_watermark}"))
