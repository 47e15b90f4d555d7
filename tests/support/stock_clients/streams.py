"""Kafka Streams: instances of an application, each a process, to be stopped or killed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from support.stock_clients.base import StockClientError
from support.stock_clients.program import streams_command

_STOP_S: Final = 120.0
#: What a JVM ends with that a SIGTERM has stopped.
_STOPPED: Final = 128 + signal.SIGTERM
_STRINGS: Final = "org.apache.kafka.common.serialization.Serdes$StringSerde"
_STORES: Final = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"


class StreamsInstance:
    """An instance of the application `group`; its members have client ids that begin with `name`.

    States are in memory, and without a cache: each record of a state goes to its changelog, and a
    state is restored from there whenever its task moves.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        topics: Sequence[str],
        *,
        program: str,
        name: str,
        home: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it.

        Args:
            bootstrap_servers: of the broker.
            group: the group's name, and how the names of the internal topics begin.
            topics: the program's first arguments.
            program: a class of `tests/compat/clients/streams`.
            name: of the instance.
            home: a directory for its files, which need not exist.
            settings: of Streams, on top of those that are the same for all.
        """
        self.name = name
        home.mkdir(parents=True, exist_ok=True)
        self._log_file = home / f"{name}.log"
        common = {
            "application.id": group,
            "bootstrap.servers": bootstrap_servers,
            "client.id": name,
            "state.dir": home / name,
            "commit.interval.ms": 1000,
            "repartition.purge.interval.ms": 200,
            "statestore.cache.max.bytes": 0,
            "default.key.serde": _STRINGS,
            "default.value.serde": _STRINGS,
            "dsl.store.suppliers.class": _STORES,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            # However far a state is behind, its task may move there.
            "acceptable.recovery.lag": 1_000_000,
            "auto.offset.reset": "earliest",
        }
        told = [f"{key}={value}" for key, value in {**common, **(settings or {})}.items()]
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*streams_command(program), *topics, *told], stdout=log, stderr=log
            )

    @property
    def log(self) -> str:
        """Logged warnings and errors."""
        return self._log_file.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        self._process.kill()
        self._process.wait(_STOP_S)

    def stop(self) -> None:
        """Ends it by SIGTERM: it commits what it has processed.

        Raises:
            StockClientError: it ended otherwise; its last words are in the text.
        """
        self._process.terminate()
        code = self._process.wait(_STOP_S)
        if code != _STOPPED:
            raise StockClientError(f"{self.name} ended with {code}: {self.log[-3000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
