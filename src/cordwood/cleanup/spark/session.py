"""The Spark session of a cleaning: embedded by default, or an address.

Source: Spark's configuration page; Spark Connect client.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

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
    master: str, *, jvm_heap: str = JVM_HEAP, java_options: str = ""
) -> Iterator[Any]:
    """A session on `master`: local[N], spark://host:port, yarn, k8s://..., or sc://host:port.

    `jvm_heap` and `java_options` are for a virtual machine that is started here.

    Raises:
        EngineError: Spark does not start.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    remote = master.startswith("sc://")
    if not remote:
        require_java()
    # Spark writes to the process's own stdout and stderr from Java; --json promises one document.
    with _quiet():
        session = _connect(master) if remote else _start(master, jvm_heap, java_options)
    try:
        yield session
    finally:
        with _quiet():
            session.stop()


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


def _start(master: str, jvm_heap: str, java_options: str) -> Any:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415  # seconds to import

        builder = (
            SparkSession.builder.master(master)
            .appName("cordwood")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", jvm_heap)
            .config("spark.driver.host", "127.0.0.1" if master.startswith("local") else "localhost")
            .config("spark.sql.adaptive.enabled", "false")
            .config("spark.sql.execution.arrow.pyspark.enabled", "true")
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", "256")
            .config("spark.python.worker.reuse", "true")
            # Identities of keys are as good as random: compressing them costs and gains nothing.
            .config("spark.shuffle.compress", "false")
            .config("spark.shuffle.spill.compress", "false")
            .config("spark.python.sql.dataFrameDebugging.enabled", "false")
            .config("spark.python.daemon.module", "cordwood.cleanup.spark.daemon")
            .config("spark.driver.extraJavaOptions", f"{_JAVA_OPTIONS} {java_options}".rstrip())
            .config("spark.sql.warehouse.dir", tempfile.gettempdir())
            .config("spark.task.maxFailures", "4")
        )
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
    except Exception as error:
        raise EngineError(f"Spark did not start on {master}: {error}") from error
    return session


_JAVA_OPTIONS = " ".join(
    [
        "-XX:+UseSerialGC",
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
    """`local[*]` with no more tasks at once than the memory has room for; others as they are."""
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
