"""Waits until more of the metadata log is committed.

Source: org.apache.kafka.raft.KafkaRaftClient.fetchPurgatory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cordwood.metadata.metadata_log import MetadataLog


class CommitWatch:
    """Wakes what waits for records; all but the log's call belongs to the event loop's thread."""

    def __init__(self, log: MetadataLog, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Watches `log`.

        Args:
            log: may be appended to by any thread.
            call_soon: calls a function on the event loop's thread, from any.
        """
        self._log = log
        #: A dict for its order: they are woken in the order in which they began to wait.
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._call_soon = call_soon
        log.subscribe(self._on_commit)

    async def beyond(self, offset: int, timeout_ms: float) -> None:
        """Returns when the high watermark is above `offset`, or after the time."""
        if self._log.high_watermark > offset:
            return
        woken = asyncio.get_running_loop().create_future()
        self._waiting[woken] = None
        try:
            await asyncio.wait([woken], timeout=timeout_ms / 1000)
        finally:
            self._waiting.pop(woken, None)

    def _on_commit(self) -> None:
        self._call_soon(self._wake)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)
