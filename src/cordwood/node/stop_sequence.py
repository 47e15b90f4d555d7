"""What a stop has to undo of a start, from the last step to the first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


class StopSequence:
    """The steps of a stop; all belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[[], Awaitable[None] | None], bool]] = []
        self._stopping: asyncio.Task[None] | None = None

    def add(self, undo: Callable[[], Awaitable[None] | None], *, waits: bool = False) -> None:
        """Registers `undo` to be called at the stop, before those registered earlier.

        Args:
            undo: what to call; an awaitable that it returns is awaited.
            waits: for threads or disks: it is called in a thread, and the event loop runs.
        """
        self._undo.append((undo, waits))

    async def run(self) -> None:
        """Takes all steps; an error of one is logged.

        A caller that is cancelled meanwhile gets the cancellation when all has stopped.
        """
        if self._stopping is None or self._stopping.done():
            self._stopping = asyncio.get_running_loop().create_task(self._run())
        cancelled: asyncio.CancelledError | None = None
        while not self._stopping.done():
            try:
                await asyncio.shield(self._stopping)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _run(self) -> None:
        while self._undo:
            undo, waits = self._undo.pop()
            try:
                if waits:
                    await asyncio.to_thread(undo)
                else:
                    done = undo()
                    if done is not None:
                        await done
            except Exception:
                _log.exception("Error while stopping")
