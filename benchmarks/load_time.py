"""Time that each broker takes to load a directory, from the start of its process."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from broker_sides import JVM_FLAGS
from kafka_side import jvm_flags
from support.kafka import RealKafka
from support.served import ServedBroker
from support.wire import ConnectionClosedError, Wire

T = TypeVar("T")

WAIT_S = 120.0


class LoadTime:
    """Starts both brokers, in turns, on copies of one directory."""

    def __init__(self, work: Path, properties: Mapping[str, str]) -> None:
        self._work = work
        self._properties = properties

    def made_by_kafka(self, fill: Callable[[int], None]) -> Path:
        """A directory of a Kafka in which `fill`, called with its port, has written."""
        with RealKafka(self._work / "made", properties=self._properties) as kafka:
            with jvm_flags(JVM_FLAGS):
                kafka.start()
            fill(kafka.port)
            kafka.stop()
            return kafka.log_dirs[0]

    def ours(self, made: Path, watch: Callable[[int], T]) -> tuple[float, T]:
        """The time of the process's start (monotonic), and the result of `watch` at its port."""
        broker = ServedBroker(self._copy(made), self._properties, flags=())
        return _watched(broker.start, broker.kill, broker.port, watch)

    def kafkas(self, made: Path, watch: Callable[[int], T]) -> tuple[float, T]:
        """Starts a Kafka; the result is that of `ours`."""
        directory = self._copy(made)
        kafka = RealKafka(self._work / "loads", log_dirs=[directory], properties=self._properties)

        def start() -> None:
            with jvm_flags(JVM_FLAGS):
                kafka.start()

        return _watched(start, kafka.kill, kafka.port, watch)

    def _copy(self, made: Path) -> Path:
        directory = self._work / "loaded"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(made, directory)
        return directory


def _watched(
    start: Callable[[], object], end: Callable[[], object], port: int, watch: Callable[[int], T]
) -> tuple[float, T]:
    begun = time.monotonic()
    # A Kafka ends with the thread that has started it.
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch, port)
        try:
            start()
            found = watching.result()
        finally:
            end()
    return begun, found


def connected(port: int) -> Wire:
    """A connection to a broker that is about to start, once it answers."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            wire = Wire(port)
            wire.versions()
        except (ConnectionClosedError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return wire
