"""Producer ids for idempotent producers, from blocks that the controller allocates.

Source: org.apache.kafka.coordinator.transaction.RPCProducerIdManager, Kafka 4.3; KIP-730.
"""

from __future__ import annotations

import asyncio

from cordwood.metadata.controller_channel import ControllerChannel


class ProducerIds:
    """The block of ids in use; belongs to the event loop's thread."""

    def __init__(self, controller: ControllerChannel) -> None:
        """Creates the object; no block is allocated before the first id is needed."""
        self._controller = controller
        self._block = range(0)
        self._allocation = asyncio.Lock()

    async def next_id(self) -> int:
        """An id that no producer has used.

        Raises:
            KafkaError: the metadata log cannot be written.
        """
        while not self._block:
            async with self._allocation:
                if not self._block:  # otherwise another request has allocated one since
                    first, count = await self._controller.allocate_producer_ids()
                    self._block = range(first, first + count)
        found, self._block = self._block[0], self._block[1:]
        return found
