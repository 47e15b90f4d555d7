"""Producer ids, from blocks that the controller allocates.

Source: org.apache.kafka.coordinator.transaction.RPCProducerIdManager, Kafka 4.3; KIP-730.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordwood.metadata.controller_channel import ControllerChannel
from cordwood.model.kafka_errors import KafkaError
from cordwood.serving.node_thread import NodeThread


class ProducerIds:
    """The block of ids in use; belongs to the event loop's thread.

    As `cordwood.coordinator.transaction.service.ProducerIdSource`.
    """

    def __init__(self, controller: ControllerChannel, thread: NodeThread) -> None:
        """Creates the object; no block is allocated before the first id is needed."""
        self._controller = controller
        self._thread = thread
        self._block = range(0)
        self._allocation = asyncio.Lock()
        self._drawing: set[asyncio.Task[None]] = set()

    def draw(self, then: Callable[[int | KafkaError], object]) -> None:
        """Calls `then` with an id that no producer has used, or an error; at once, if it can."""
        if self._block:
            then(self._take())
            return
        task = self._thread.loop.create_task(self._draw(then))
        self._drawing.add(task)
        task.add_done_callback(self._drawing.discard)

    async def _draw(self, then: Callable[[int | KafkaError], object]) -> None:
        try:
            found = await self._next_id()
        except KafkaError as error:
            then(error)
        else:
            then(found)

    async def _next_id(self) -> int:
        """Draws a producer id; raises KafkaError if the metadata log cannot be written."""
        while not self._block:
            async with self._allocation:
                if not self._block:  # otherwise another request has allocated one since
                    first, count = await self._controller.allocate_producer_ids()
                    self._block = range(first, first + count)
        return self._take()

    def _take(self) -> int:
        found, self._block = self._block[0], self._block[1:]
        return found
