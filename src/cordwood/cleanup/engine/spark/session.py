"""Spark for a cleaning: in this machine by default, or at an address.

Source: Spark's configuration page; Spark Connect client.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cordwood.cleanup.engine.run_directory import RunDirectory
from cordwood.cleanup.engine.spark.error_text import first_line_of
from cordwood.cleanup.engine.spark.machine import IMPORTS, JVM_HEAP, Machine, find_java
from cordwood.cleanup.engine.spark.runner import DataFrameRunner, RddRunner, Runner
from cordwood.model.clock import SystemClock, pause
from cordwood.model.environment import environment_variables
from cordwood.model.errors import EngineError
from cordwood.storage.filesystem import OS

# By scheme: the port where an address has none.
_PORTS = {"sc": 15002, "spark": 7077, "https": 443, "http": 80}
_CONNECT_SECONDS_MAX = 10
# How long a cluster may take to give the first worker.
_WORKERS_SECONDS_MAX = 60.0
_WORKERS_LOOK_S = 0.1
# What a driver and a worker take at least: their libraries, their buffers, and a small table.
_DRIVER_BYTES = 150 << 20
_WORKER_BYTES = 300 << 20
_GROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")


@contextmanager
def spark_runner(
    master: str,
    *,
    jvm_heap: str = JVM_HEAP,
    leads_session: bool = False,
    locks: Sequence[int] = (),
) -> Iterator[Runner]:
    """A runner on `master`: local[N], spark://host:port, yarn, k8s://..., or sc://host:port.

    Except for sc://, a virtual machine is started here. At the end it has ended, with every process
    that it had started, and its temporary files are removed.

    Args:
        master: where Spark runs.
        jvm_heap, leads_session, locks: as `Machine`.

    Raises:
        EngineError: Spark does not start.
    """
    with starting_runner(
        master, jvm_heap=jvm_heap, leads_session=leads_session, locks=locks
    ) as started:
        yield started()


@contextmanager
def starting_runner(
    master: str,
    *,
    jvm_heap: str = JVM_HEAP,
    leads_session: bool = False,
    locks: Sequence[int] = (),
    imports: Sequence[str] = IMPORTS,
) -> Iterator[Callable[[], Runner]]:
    """Starts Spark in the background; yields a function that waits for the runner, for one call.

    A virtual machine for a local master starts meanwhile.

    Args:
        master: where Spark runs.
        jvm_heap, leads_session, locks, imports: as `Machine`.
    """
    if master.startswith("sc://"):
        with ExitStack() as stack:
            yield lambda: DataFrameRunner(stack.enter_context(_connected(master)))
        return
    if master.startswith(("spark://", "k8s://")):
        _require_listening(master, "Spark master" if master.startswith("spark") else "Kubernetes")
    with RunDirectory() as run, _temporary_files_in(run.path):
        machine = Machine(
            run.path,
            jvm_heap=jvm_heap,
            leads_session=leads_session,
            locks=[run.lock, *locks],
            imports=imports,
        )

        def started() -> Runner:
            # The virtual machine that PySpark starts writes to this process's stdout and stderr;
            # --json promises one document.
            with _quiet():
                context = machine.context(master)
                if master.startswith("spark://"):
                    _require_workers(context, master)
                return RddRunner(context)

        try:
            if master.startswith("local"):
                machine.launch()
            else:
                find_java()
            yield started
        finally:
            with _quiet():
                machine.stop()


@contextmanager
def _connected(master: str) -> Iterator[Any]:
    with _quiet():
        session = _connect(master)
    try:
        yield session
    finally:
        with _quiet():
            session.stop()


@contextmanager
def _temporary_files_in(directory: Path) -> Iterator[None]:
    """Sets the directory for temporary files of this process and its children."""
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        with environment_variables({"TMPDIR": str(directory)}):
            yield
    finally:
        tempfile.tempdir = before


def _require_listening(master: str, what: str) -> None:
    """Asks whether anybody is there at all, since Spark's client tries for many minutes.

    Of several masters, `spark://host:port,host:port`, one has to be there.

    Raises:
        EngineError: nobody is; names the address.
    """
    scheme, _, rest = master.partition("://")
    refused: Exception | None = None
    for each in rest.split(",") if scheme == "spark" else [rest]:
        try:
            address = urlsplit(each if "://" in each else f"{scheme}://{each}")
            port = address.port or _PORTS.get(address.scheme, _PORTS["https"])
            where = (address.hostname or "localhost", port)
            socket.create_connection(where, timeout=_CONNECT_SECONDS_MAX).close()
        except (OSError, ValueError) as error:
            refused = refused or error
        else:
            return
    raise EngineError(f"no {what} answers at {master}: {refused}") from refused


def _require_workers(context: Any, master: str) -> None:
    """Waits for the first worker: without one, Spark waits for ever.

    Raises:
        EngineError: there is none.
    """
    clock = SystemClock()
    deadline = clock.monotonic_s() + _WORKERS_SECONDS_MAX
    # The driver is one of those that are counted.
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:
        if clock.monotonic_s() > deadline:
            raise EngineError(
                f"{master} has given no worker in {_WORKERS_SECONDS_MAX:.0f} s: it has none, or "
                "none with free cores and memory"
            )
        pause(_WORKERS_LOOK_S)


def _connect(master: str) -> Any:
    _require_listening(master, "Spark Connect server")
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415  # seconds to import

        session = SparkSession.builder.remote(master).getOrCreate()
        session.range(1).collect()
    except Exception as error:
        why = first_line_of(error)
        raise EngineError(f"no Spark Connect server answers at {master}: {why}") from error
    return session


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


def cores_here() -> int:
    """The number of cores that a cleaning with `local[*]` uses."""
    return os.cpu_count() or 1


def default_memory_bytes() -> int:
    """Memory for all Python processes together by default, 1 GiB or more.

    It is 1 GiB a core, but at most a quarter of what the machine, or the control group, has.
    """
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # of an older kernel, or "max"
        memory_bytes = min(memory_bytes, int(OS.read_bytes(_GROUP_MEMORY)))
    return max(1 << 30, min(cores_here() << 30, memory_bytes // 4))


def fitting(master: str, memory_bytes: int) -> str:
    """`local[*]` with no more tasks at once than the memory allows; others do not change."""
    if master != "local[*]":
        return master
    room = (memory_bytes - _DRIVER_BYTES) // _WORKER_BYTES
    return f"local[{max(1, min(os.cpu_count() or 1, room))}]"
