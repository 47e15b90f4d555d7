"""The life of a node: the steps of its start, and what a stop undoes of them, in reverse."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from cordwood.configs.server_properties import BrokerSettings
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import CordwoodError
from cordwood.serving.event_loop import iterations_of
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.loaded_log_directory import LoadProgress

_log = logging.getLogger(__name__)

T = TypeVar("T")


class NodeLifecycle(ABC):
    """A node that is started, then stopped, in one event loop, to whose thread all of it belongs.

    `failure` is done, with the reason, when the node cannot serve any more: the owner of the
    process must then end it. `ports` are those of its listeners, by name, once they are bound.
    """

    failure: asyncio.Future[str]

    def __init__(self, settings: BrokerSettings, *, clock: Clock | None, fs: FileSystem) -> None:
        """Touches nothing yet.

        Args:
            settings: those of server.properties.
            clock: the machine's if None.
            fs: where all files are.
        """
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.ports: dict[str, int] = {}
        self._fs = fs
        self.metadata_dir = Path(settings.metadata_log_dir).absolute()
        self._undo: list[tuple[Callable[[], Awaitable[None] | None], bool]] = []
        self._stopping: asyncio.Task[None] | None = None

    async def start(self, progress: LoadProgress | None = None) -> None:
        """Serves when it returns; where it fails, nothing is left open.

        Args:
            progress: gets how many logs are loaded.

        Raises:
            DirectoryInUseError, PortInUseError: another process has it.
            CordwoodError: directories or settings are such that Kafka would not start either, or
                no directory is left to serve from.
            asyncio.CancelledError: the start was given up; nothing is left open.
        """
        loop = asyncio.get_running_loop()
        self.failure = loop.create_future()
        iterations_of(loop).pause()
        try:
            await self._start(progress)
        except BaseException:
            await self.stop()
            raise

    @abstractmethod
    async def _start(self, progress: LoadProgress | None) -> None:
        """Takes the steps of a start; `_at_end` gets what undoes each."""

    def _at_end(self, undo: Callable[[], Awaitable[None] | None], *, waits: bool = False) -> None:
        """Registers `undo` to be called at the stop, before those registered earlier.

        Args:
            undo: what to call; an awaitable that it returns is awaited.
            waits: for threads or disks: it is called in a thread, and the event loop runs.
        """
        self._undo.append((undo, waits))

    def _fail(self, why: str) -> None:
        """Ends the node, which cannot serve any more."""
        if not self.failure.done():
            _log.critical("%s", why)
            self.failure.set_result(why)

    async def _unless_failed(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that may wait for other nodes.

        Raises:
            CordwoodError: the node cannot serve any more; the work is given up.
        """
        task = asyncio.get_running_loop().create_task(work)
        either: list[asyncio.Future[Any]] = [task, self.failure]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise CordwoodError(self.failure.result())
            return await task
        finally:
            task.cancel()

    async def stop(self) -> None:
        """Undoes the steps of the start, from the last to the first; an error of one is logged.

        A caller that is cancelled meanwhile gets the cancellation when all has stopped.
        """
        if self._stopping is None or self._stopping.done():
            self._stopping = asyncio.get_running_loop().create_task(self._undo_all())
        cancelled: asyncio.CancelledError | None = None
        while not self._stopping.done():
            try:
                await asyncio.shield(self._stopping)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _undo_all(self) -> None:
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
