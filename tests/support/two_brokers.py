"""A real Kafka and a Cordwood that begin with copies of one directory.

Role: comparisons of answers and of logs. Kafka makes the directory, and Cordwood gets a copy: its
topics have the same ids, and the next producer id is the same.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from cordwood.testing.broker import RunningBroker
from support.applied import wait_until_applied
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_3
from support.side_by_side import same_properties
from support.wire import Wire

_LISTENERS: Final = "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"


def make_topics(
    port: int, topics: Mapping[str, int], configs: Mapping[str, str] | None = None
) -> dict[str, uuid.UUID]:
    """Creates topics with so many partitions each; returns their ids."""
    asked = [
        {
            "name": name,
            "num_partitions": count,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        for name, count in topics.items()
    ]
    with Wire(port) as wire:
        answer = wire.ask("create_topics", 7, {"topics": asked, "timeout_ms": 10_000})
    assert all(each["error_code"] == "none" for each in answer["topics"]), answer
    return {each["name"]: each["topic_id"] for each in answer["topics"]}


class TwoBrokers:
    """The brokers, and where their logs are; the real Kafka is the first of each pair."""

    def __init__(
        self,
        root: Path,
        *,
        properties: Mapping[str, str],
        prepare: Callable[[int], None],
        is_ready: Callable[[int], None],
        version: str = KAFKA_4_3,
        release: str | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            root: where the directories are made.
            properties: settings of both brokers.
            prepare: is called once with Kafka's port, to make what both begin with.
            is_ready: is called with the port of each broker that was started; returns when the
                broker can be asked.
            version: of the real Kafka.
            release: whose metadata version the directory has; that of the version by default.
        """
        self.kafka = RealKafka(
            root / "kafka", properties=properties, version=version, release=release
        )
        self.log_dirs = self.kafka.log_dirs[0], root / "cordwood"
        self._properties = properties
        self._prepare = prepare
        self._is_ready = is_ready
        self._stack = ExitStack()
        self._running: RunningBroker | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(self.kafka)
        self.kafka.start_without_cleaning()
        self._is_ready(self.kafka.port)
        self._prepare(self.kafka.port)
        wait_until_applied(self.kafka.port)
        self.kafka.stop()
        shutil.copytree(*self.log_dirs)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def ports(self) -> tuple[int, int]:
        """The ports of the brokers."""
        assert self._running is not None, "not started"
        return self.kafka.port, self._running.port

    def start(self) -> None:
        """Starts both."""
        self.kafka.start_without_cleaning()
        settings = {**same_properties(self.kafka), **self._properties, "listeners": _LISTENERS}
        self._running = self._stack.enter_context(RunningBroker(settings, log_dir=self.log_dirs[1]))
        for port in self.ports:
            self._is_ready(port)

    def stop(self) -> None:
        """Stops both cleanly."""
        assert self._running is not None, "not started"
        self.kafka.stop()
        self._running.stop()
        self._running = None

    def swap(self) -> None:
        """Starts each on the directory of the other."""
        self.stop()
        one, other = self.log_dirs
        aside = one.with_name("aside")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)
        self.start()
