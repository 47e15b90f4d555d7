"""The Spark session of a cleaning: embedded by default, or an address.

Source: Spark's configuration page; Spark Connect client.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cordwood.cleanup.child_session import end_session, members
from cordwood.cleanup.run_directory import RunDirectory
from cordwood.model.errors import EngineError

JVM_HEAP = "1g"
_CONNECT_PORT = 15002
_CONNECT_SECONDS_MAX = 20
# What a driver and a worker take at least: their libraries, their buffers, and a small table.
_DRIVER_BYTES = 150 << 20
_WORKER_BYTES = 300 << 20


def require_java() -> None:
    """Checks that Spark can start its virtual machine here.

    Raises:
        EngineError: there is no Java, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        raise EngineError(
            "compaction runs on Spark, which needs Java 17 or newer; none was found. Install it "
            "(Debian: openjdk-17-jre-headless) or set JAVA_HOME"
        )


@contextmanager
def spark_session(
    master: str,
    *,
    jvm_heap: str = JVM_HEAP,
    leads_session: bool = False,
    locks: Sequence[int] = (),
) -> Iterator[Any]:
    """A session on `master`: local[N], spark://host:port, yarn, k8s://..., or sc://host:port.

    Except for sc://, a virtual machine is started here. At the end it has ended, with every process
    that it had started, and its temporary files are removed.

    Args:
        master: where Spark runs.
        jvm_heap: of the virtual machine.
        leads_session: whether this process was started as the leader of a process session of its
            own; the virtual machine then belongs to that. Else it leads one itself, and signals
            that a terminal or `timeout` sends to this process's group do not reach it.
        locks: descriptors of locks of run directories that the virtual machine holds as well.

    Raises:
        EngineError: Spark does not start.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("sc://"):
        with _quiet():
            session = _connect(master)
        try:
            yield session
        finally:
            with _quiet():
                session.stop()
        return
    require_java()
    with RunDirectory() as run, _temporary_files_in(run.path), _machine(run.path) as machine:
        # The virtual machine writes to this process's stdout and stderr; --json promises one
        # document.
        with _quiet():
            session = machine.start(
                master, jvm_heap, leads_session=leads_session, locks=[run.lock, *locks]
            )
        yield session


@contextmanager
def _temporary_files_in(directory: Path) -> Iterator[None]:
    """Sets the directory for temporary files of this process and its children."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        variable, tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable


@contextmanager
def _machine(directory: Path) -> Iterator[_Machine]:
    machine = _Machine(directory)
    try:
        yield machine
    finally:
        with _quiet():
            machine.stop()


class _Machine:
    """A virtual machine with a Spark session, and the processes that it starts."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._gateway: Any = None
        self._session: Any = None
        self._leader = 0

    def start(
        self, master: str, jvm_heap: str, *, leads_session: bool, locks: Sequence[int]
    ) -> Any:
        """The session; see `spark_session`.

        Raises:
            EngineError: Spark does not start.
        """
        # The program that builds the virtual machine's command line is one itself.
        os.environ["SPARK_LAUNCHER_OPTS"] = "-XX:-UsePerfData"
        os.environ["SPARK_LOCAL_DIRS"] = str(self._directory)
        try:
            from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # seconds to import
            from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
            from pyspark.sql import SparkSession  # noqa: PLC0415

            conf = SparkConf().setMaster(master).setAppName("cordwood")
            for key, value in _settings(master, jvm_heap, self._directory).items():
                conf.set(key, value)
            kwargs = {"start_new_session": not leads_session, "pass_fds": locks}
            self._gateway = launch_gateway(conf, popen_kwargs=kwargs)
            self._leader = os.getsid(0) if leads_session else self._gateway.proc.pid
            with _signals_kept():
                context = SparkContext(conf=conf, gateway=self._gateway)
            self._session = SparkSession.builder.getOrCreate()
            context.setLogLevel("OFF")
        except Exception as error:
            raise EngineError(f"Spark did not start on {master}: {error}") from error
        return self._session

    def stop(self) -> None:
        """Ends the session, then the virtual machine, at once: it has nothing to write any more."""
        gateway, session = self._gateway, self._session
        if gateway is None:
            return
        try:
            if session is not None and gateway.proc.pid in members(self._leader):
                session.stop()
        finally:
            end_session(self._leader, sparing=os.getpid())
            gateway.proc.stdin.close()
            gateway.proc.wait()
            _forget(gateway)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Undoes that a SparkContext handles SIGINT, when the main thread makes it."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _forget(gateway: Any) -> None:
    """Makes the next session of this process start its own virtual machine."""
    from pyspark import SparkContext  # noqa: PLC0415  # loaded by now

    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # PySpark's, which it never resets itself


def _require_listening(master: str) -> None:
    """Asks whether anybody is there at all, since Spark's client tries for many minutes."""
    address = urlsplit(master)
    try:
        where = (address.hostname or "localhost", address.port or _CONNECT_PORT)
        socket.create_connection(where, timeout=_CONNECT_SECONDS_MAX).close()
    except (OSError, ValueError) as error:
        raise EngineError(f"no Spark Connect server answers at {master}: {error}") from error


def _connect(master: str) -> Any:
    _require_listening(master)
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415  # seconds to import

        session = SparkSession.builder.remote(master).getOrCreate()
        session.range(1).collect()
    except Exception as error:
        raise EngineError(f"no Spark Connect server answers at {master}: {error}") from error
    return session


def _settings(master: str, jvm_heap: str, directory: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": jvm_heap,
        "spark.driver.host": "127.0.0.1" if master.startswith("local") else "localhost",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "256",
        "spark.python.worker.reuse": "true",
        # Identities of keys are as good as random: compressing them costs and gains nothing.
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.python.daemon.module": "cordwood.cleanup.spark.daemon",
        "spark.driver.extraJavaOptions": f'{_JAVA_OPTIONS} "-Djava.io.tmpdir={directory}"',
        "spark.sql.warehouse.dir": str(directory),
        "spark.task.maxFailures": "4",
    }


_JAVA_OPTIONS = " ".join(
    [
        "-XX:+UseSerialGC",
        # Its counters would be a file in the system's directory for temporary files.
        "-XX:-UsePerfData",
        # The JVM only moves blocks between sockets and files: a quick start beats a hot loop.
        "-XX:TieredStopAtLevel=1",
        "-Dlog4j2.level=OFF",
        "--add-modules=jdk.incubator.vector",
    ]
)


@contextmanager
def _quiet() -> Iterator[None]:
    """Sends the process's stdout and stderr to nowhere while Spark starts or stops."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for handle in (*saved, nowhere):
            os.close(handle)


def default_memory_bytes() -> int:
    """Memory for all Python processes together by default: 512 MiB a core, at least 1 GiB."""
    return max(1 << 30, (os.cpu_count() or 1) << 29)


def fitting(master: str, memory_bytes: int) -> str:
    """`local[*]` with no more tasks at once than the memory allows; others do not change."""
    if master != "local[*]":
        return master
    room = (memory_bytes - _DRIVER_BYTES) // _WORKER_BYTES
    return f"local[{max(1, min(os.cpu_count() or 1, room))}]"


def slots_of(session: Any, master: str) -> int:
    """How many tasks run at once."""
    try:
        return max(1, int(session.sparkContext.defaultParallelism))
    except Exception:  # a Connect session has no context, and says so in its way
        return _slots_by_name(master)


def _slots_by_name(master: str) -> int:
    if master.startswith("local[") and master[6:-1].isdigit():
        return int(master[6:-1])
    return os.cpu_count() or 1
