"""A standalone Spark cluster and a Spark Connect server, from PySpark's own files.

Ports are given by the system and read from the servers' logs. Every process started here is ended
here.

Source: Spark's pages on standalone mode and on Spark Connect.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from support.kafka import poll_until

_START_SECONDS_MAX = 600
_STOP_SECONDS_MAX = 60
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
#: These servers run for seconds: the first compiler of the virtual machine is enough.
_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkServerError(Exception):
    """A server did not start; the text holds the end of its log."""


def spark_home() -> Path:
    """The directory in which PySpark keeps `bin` and `jars`.

    Raises:
        SparkServerError: PySpark is not installed.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkServerError("PySpark is not installed")
    return Path(found.origin).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, as far as its network is concerned; files are those of all others.

    Attributes:
        address: where others reach it.
        enter: the words before a command that runs on it.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two networks that reach each other, and nothing else; it takes the right to make them."""
    with ExitStack() as stack:
        holders = [stack.enter_context(_network()) for _ in range(2)]
        machines = [
            Machine(
                address=f"10.77.0.{number}",
                enter=("nsenter", "--net", "--target", str(holder), "--"),
            )
            for number, holder in enumerate(holders, start=1)
        ]
        here, there = machines
        cable = f"ip link add eth0 type veth peer name eth0 netns {holders[1]}"
        subprocess.run([*here.enter, *cable.split()], check=True)
        for each in machines:
            for words in (
                f"ip address add {each.address}/24 dev eth0",
                "ip link set eth0 up",
                "ip link set lo up",
            ):
                subprocess.run([*each.enter, *words.split()], check=True)
        yield here, there


@contextmanager
def _network() -> Iterator[int]:
    """A network namespace; gives the process that holds it."""
    own = os.readlink("/proc/self/ns/net")
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    try:
        path = f"/proc/{holder.pid}/ns/net"
        poll_until(lambda: os.readlink(path) != own, timeout_s=30, what="a network is there")
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()


@contextmanager
def standalone_cluster(
    logs: Path, *, workers: int = 2, machine: Machine | None = None
) -> Iterator[str]:
    """A master with workers of one core each; gives its spark:// address.

    Args:
        logs: a directory for logs and the workers' files.
        workers: how many.
        machine: where it runs; None for this machine's loopback interface.
    """
    there = Machine() if machine is None else machine
    with ExitStack() as stack:
        network = ["--host", there.address, "--port", "0", "--webui-port", "0"]
        log = logs / "master.log"
        stack.enter_context(_running("spark-class", [_MASTER, *network], log, there))
        address = _wait_for(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            worker_log = logs / f"worker-{number}.log"
            room = ["--cores", "1", "--memory", "1200m", "--work-dir", str(logs / f"w{number}")]
            command = [_WORKER, *network, *room, address]
            stack.enter_context(_running("spark-class", command, worker_log, there))
        for number in range(workers):
            _wait_for(logs / f"worker-{number}.log", r"(Successfully registered with master)")
        yield address


@contextmanager
def connect_server(logs: Path, *, master: str = "local[2]") -> Iterator[str]:
    """A Spark Connect server; gives its sc:// address.

    Args:
        logs: a directory for its log.
        master: what it runs jobs on.
    """
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(logs / "warehouse"),
    }
    flags = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command = ["--master", master, "--class", _CONNECT, *flags, "spark-internal"]
    log = logs / "connect.log"
    with _running("spark-submit", command, log):
        port = _wait_for(log, r"Spark Connect server started at:\s+\S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _running(
    program: str, arguments: list[str], log: Path, machine: Machine | None = None
) -> Iterator[None]:
    there = Machine() if machine is None else machine
    home = spark_home()
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": there.address,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false {_QUICK_START}",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*there.enter, str(home / "bin" / program), *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=log.parent,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        time.sleep(0.05)
    raise SparkServerError(f"{log.name} never said {pattern!r}:\n{log.read_text()[-3000:]}")
