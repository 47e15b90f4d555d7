"""A broker inside the process of a test, on a free port, with a clock in the test's hand.

    with RunningBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        ...
        broker.advance(days=7)  # retention, compaction and expiry have happened when it returns

`cordwood.testing.pytest_plugin` has the same as a fixture.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from cordwood.broker.broker import Broker
from cordwood.broker.configs.settings import BrokerSettings
from cordwood.model.clock import MovableClock
from cordwood.model.errors import NotCompactedError
from cordwood.node import EngineFactory, Node
from cordwood.storage.filesystem import OS, FileSystem

_START_S = 60.0
_ADVICE = (
    "The clock was moved, and everything else that is due by then is done. Give `compact=False` to "
    "leave compaction out."
)

T = TypeVar("T")


class RunningBroker:
    """A `Node` with an event loop and a thread of its own."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        log_dir: Path | None = None,
        clock: MovableClock | None = None,
        engine: EngineFactory | None = None,
        fs: FileSystem = OS,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Nothing runs yet.

        Args:
            properties: of server.properties, over the defaults.
            log_dir: where the logs are, kept at the end; a temporary directory if None.
            clock: a movable one of its own if None.
            engine: what compacts; Spark in a process of its own if None.
            fs: where all files are.
            host: to listen at.
            port: to listen at; 0 for any that is free.
        """
        self.clock = clock or MovableClock()
        self._own_dir = None if log_dir is not None else tempfile.mkdtemp(prefix="cordwood-")
        self.log_dir = Path(log_dir or str(self._own_dir))
        given = {
            "log.dirs": str(self.log_dir),
            "listeners": f"PLAINTEXT://{host}:{port}",
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.initial.task.delay.ms": "0",
        }
        self.settings = BrokerSettings(given | dict(properties or {}), source="the test")
        self._engine = engine
        self._fs = fs
        self._host = host
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        self._started: concurrent.futures.Future[Node] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: asyncio.Event | None = None

    # ---- life

    def start(self) -> Self:
        """Returns when clients are served.

        Raises:
            CordwoodError: it cannot start.
        """
        self._thread.start()
        try:
            self._started.result(_START_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops it in order, and removes the directory if that is its own."""
        if self._loop is not None and self._told is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # it has just ended by itself
                self._loop.call_soon_threadsafe(self._told.set)
            self._thread.join()
        if self._own_dir is not None:
            shutil.rmtree(self._own_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:  # told to whoever waits for the start
            if not self._started.done():
                self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()
        node = Node(self.settings, clock=self.clock, engine=self._engine, fs=self._fs)
        await node.start()
        self._started.set_result(node)
        try:
            await self._told.wait()
        finally:
            await node.stop()

    # ---- use

    @property
    def node(self) -> Node:
        """The node, running."""
        return self._started.result(0)

    @property
    def broker(self) -> Broker:
        """Its broker; touch it only through `call`."""
        return self.node.broker

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.node.ports.values()))

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given."""
        return f"{self._host}:{self.port}"

    def call(self, run: Callable[[Broker], T]) -> T:
        """What `run` gives of the broker, on the thread that owns it."""
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            try:
                answer.set_result(run(self.broker))
            except BaseException as error:  # the caller's
                answer.set_exception(error)

        assert self._loop is not None
        self._loop.call_soon_threadsafe(work)
        return answer.result(_START_S)

    def advance(self, *, compact: bool = True, **span: float) -> None:
        """Moves the clock on, and does all that is due by then before it returns.

        Args:
            compact: compact what is due too, which needs Java and PySpark where something is due.
            **span: as `datetime.timedelta` takes it: `days=7`, `hours=1`, `milliseconds=5`.

        Raises:
            NotCompactedError: partitions are due for compaction and could not be compacted, because
                Java or PySpark is missing or Spark failed. The clock was moved, and everything
                else that is due by then is done.
        """
        from datetime import timedelta  # noqa: PLC0415

        self.clock.advance(timedelta(**span) // timedelta(milliseconds=1))
        try:
            self.node.run_due(compact=compact)
        except NotCompactedError as error:
            raise NotCompactedError(error.reasons, advice=_ADVICE) from error

    def files(self, partition: str) -> list[str]:
        """The names of a partition directory's files, sorted."""
        return sorted(path.name for path in (self.log_dir / partition).iterdir())


def broker_properties(**properties: Any) -> dict[str, str]:
    """Properties by keyword, with underscores for dots: `log_retention_ms=5`."""
    return {name.replace("_", "."): str(value) for name, value in properties.items()}
