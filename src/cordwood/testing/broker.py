"""A broker inside the process of a test, on a free port, with a clock in the test's hand.

    with RunningBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        ...
        broker.advance(days=7)  # retention, compaction and expiry have happened when it returns

In pytest the fixture `cordwood_broker` is one, with nothing to import; see
`cordwood.testing.pytest_plugin`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from uuid import uuid4

from cordwood.broker.broker import Broker
from cordwood.configs.server_properties import SINGLE_BROKER_DEFAULTS, BrokerSettings
from cordwood.model.clock import MovableClock
from cordwood.model.errors import CordwoodError, NotCompactedError
from cordwood.node.node import EngineFactory, Node
from cordwood.serving import event_loop
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.testing.callers_line import shows_callers_line
from cordwood.testing.clock_span import needs_units, span_ms
from cordwood.testing.in_process_engine import InProcessEngine
from cordwood.testing.setting_text import SettingValue, setting_text

_START_S = 60.0
_ADVICE = (
    "The clock was advanced, and all other work that is due was done. Use `compact=False` to "
    "leave compaction out."
)

T = TypeVar("T")


class UnknownPartitionError(CordwoodError):
    """A test has named a partition that the broker does not have."""


class RunningBroker:
    """A `Node` with an event loop and a thread of its own.

    Before `start` there is no thread, no directory and no socket. `stop` removes all of them, and
    so does a start that fails.
    """

    @shows_callers_line
    def __init__(
        self,
        properties: Mapping[str, SettingValue] | None = None,
        *,
        log_dir: Path | None = None,
        clock: MovableClock | None = None,
        engine: EngineFactory | None = None,
        fs: FileSystem = OS,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """Checks the settings and starts nothing.

        Args:
            properties: settings of server.properties, over Kafka's defaults and
                `SINGLE_BROKER_DEFAULTS`; values as `setting_text` takes them, such as
                `{"log.retention.ms": 60_000, "auto.create.topics.enable": False}`.
            log_dir: the log directory, kept at the end; a temporary directory if None.
            clock: the broker's clock; a manual clock if None.
            engine: the compaction engine; that of `cordwood.testing.in_process_engine`, over `fs`,
                if None. For logs too large for that, pass `spark_engine` of `cordwood.node.node`.
            fs: the file system for all files.
            host: the address to listen on.
            port: the port to listen on; 0 for any free port.

        Raises:
            UnknownSettingError: nothing asks for a setting, which Kafka would ignore.
            ConfigError: Kafka would refuse a setting's value, or the value has an unsupported type.
            UnsupportedSettingError: a setting requires a feature that Cordwood does not support.
        """
        self.clock = clock or MovableClock()
        self._owns_dir = log_dir is None
        self.log_dir = log_dir or Path(tempfile.gettempdir()) / f"cordwood-{uuid4().hex}"
        given = {
            **SINGLE_BROKER_DEFAULTS,
            "log.dirs": str(self.log_dir),
            "listeners": f"PLAINTEXT://{host}:{port}",
            "log.initial.task.delay.ms": "0",
        }
        given |= {name: setting_text(name, value) for name, value in (properties or {}).items()}
        self.settings = BrokerSettings(given, source="RunningBroker")
        self.settings.require_known()
        self._engine = engine or partial(InProcessEngine, fs=fs)
        self._fs = fs
        self._host = host
        self._thread: threading.Thread | None = None
        self._started: concurrent.futures.Future[Node] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested = threading.Event()
        self._stop: Callable[[], None] | None = None

    # ---- life

    @shows_callers_line
    def start(self) -> Self:
        """Starts the broker, and returns when it serves clients and has applied retention once.

        Raises:
            CordwoodError: it cannot start; nothing is left of the attempt.
            RuntimeError: it was started before.
        """
        if self._thread is not None:
            raise RuntimeError("a RunningBroker can be started once; make another")
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        try:
            if self._owns_dir:
                self.log_dir.mkdir(mode=0o700)
            self._thread.start()
            node = self._started.result(_START_S)
            # Else that pass would come at any later moment, and remove records with old timestamps.
            node.cleaner.wait_for_first_retention(_START_S)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops it in order, and removes the directory if it was made for this broker.

        A start that is still under way is given up. Does nothing if it does not run.
        """
        self._stop_requested.set()
        if self._thread is not None and self._thread.ident is not None:
            loop, stop = self._loop, self._stop
            if loop is not None and stop is not None:
                with suppress(RuntimeError):  # the loop has just ended
                    loop.call_soon_threadsafe(stop)
            self._thread.join()
        if self._owns_dir:
            shutil.rmtree(self.log_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        __tracebackhide__ = True
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
            event_loop.run(self._serve())
        except BaseException as error:  # for the thread that waits for the start
            if not self._started.done():
                self._started.set_exception(error)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        starting: asyncio.Task[None] | None = None

        def stop() -> None:
            stopping.set()
            if starting is not None:
                starting.cancel()

        self._loop, self._stop = loop, stop
        node = Node(self.settings, clock=self.clock, engine=self._engine, fs=self._fs)
        starting = loop.create_task(node.start())
        if self._stop_requested.is_set():  # requested before the loop existed
            stop()
        await starting
        try:
            if self._stop_requested.is_set():  # before `start` has returned
                raise asyncio.CancelledError
            self._started.set_result(node)
            await stopping.wait()
        finally:
            await node.stop()

    # ---- use

    @property
    def node(self) -> Node:
        """The node, running.

        Raises:
            RuntimeError: the broker was not started.
        """
        __tracebackhide__ = True
        if self._thread is None:
            raise RuntimeError(
                "the RunningBroker was not started: use it in a `with` statement, or call start()"
            )
        return self._started.result(0)

    @property
    def broker(self) -> Broker:
        """Its broker; touch it only through `call`."""
        return self.node.broker

    @property
    def port(self) -> int:
        """The port of the first listener."""
        __tracebackhide__ = True
        return next(iter(self.node.ports.values()))

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients."""
        __tracebackhide__ = True
        return f"{self._host}:{self.port}"

    def call(self, run: Callable[[Broker], T]) -> T:
        """The result of `run(broker)`, called on the thread that owns the broker."""
        __tracebackhide__ = True
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            try:
                answer.set_result(run(self.broker))
            except BaseException as error:  # the caller's
                answer.set_exception(error)

        assert self._loop is not None
        self._loop.call_soon_threadsafe(work)
        return answer.result(_START_S)

    def now_ms(self) -> int:
        """The broker's time, in ms since the epoch: for timestamps of records, see `advance`."""
        return self.clock.now_ms()

    @shows_callers_line
    @needs_units
    def advance(self, *, compact: bool = True, **span: float) -> None:
        """Advances the broker's clock, and does all work that is due by then before it returns.

        The clock drives retention, compaction, the deletion of files, and the expiry of committed
        offsets and of idempotent producers. Group sessions, fetch waits and idle connections use
        wall-clock time.

        The clocks of clients do not change. A record written afterwards has its producer's
        timestamp, so for the broker it is as old as the clock is ahead: after `advance(days=8)` it
        is past a retention of seven days, and the next retention check deletes its segment, unless
        the segment has a newer record. To write records with the broker's time, use one of

        - `message.timestamp.type=LogAppendTime` on the topic, or
          `log.message.timestamp.type=LogAppendTime` for all topics: the broker sets timestamps;
        - an explicit timestamp: `producer.produce("prices", b"1", timestamp=broker.now_ms())`.

        A segment rolls by `segment.ms` when a record arrives whose timestamp is that much later
        than the timestamp of the segment's first record.

        Args:
            compact: also compact what is due.
            **span: as `datetime.timedelta` takes it: `days=7`, `hours=1`, `milliseconds=5`.

        Raises:
            ConfigError: it is no such span, or a negative one. The clock was not advanced.
            NotCompactedError: partitions are due for compaction and could not be compacted, because
                one is damaged, or too large for the engine. The clock was advanced, and all other
                work that is due was done.
        """
        node = self.node
        self.clock.advance(span_ms(span))
        try:
            node.run_due(compact=compact)
        except NotCompactedError as error:
            raise NotCompactedError(error.reasons, advice=_ADVICE) from error

    @shows_callers_line
    def files(self, partition: str) -> list[str]:
        """The names of a partition directory's files, sorted.

        Raises:
            UnknownPartitionError: there is no such partition; the text names those that are there.
        """
        directory = self.log_dir / partition
        if not self._fs.is_directory(directory):
            entries = self._fs.entries_in(self.log_dir)
            there = sorted(each.name for each in entries if each.is_directory)
            raise UnknownPartitionError(
                f"no partition {partition}; there are {', '.join(there) or 'none'}"
            )
        return sorted(self._fs.names_in(directory))
