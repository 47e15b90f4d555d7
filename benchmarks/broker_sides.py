"""The two brokers of a benchmark: what is the same to ask of both."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kafka_side import jvm_flags
from support.kafka import RealKafka, poll_until
from support.ports import free_port
from support.served import ServedBroker
from support.wire import ConnectionClosedError, Wire

# kafka-server-start.sh's own.
JVM_FLAGS = (
    "-Xms1g -Xmx1g -XX:-UseSerialGC -XX:+UseG1GC -XX:MaxGCPauseMillis=20 "
    "-XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent"
)
_PROPERTIES = {"log.cleaner.backoff.ms": "500", "group.initial.rebalance.delay.ms": "0"}
_CLEAN_S = 300.0


class Side:
    """One broker: a name, an address, a process."""

    def __init__(self, name: str, address: str, pid: int) -> None:
        self.name = name
        self.address = address
        self.pid = pid
        self.port = int(address.rpartition(":")[2])
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._wires: dict[str, tuple[Wire, int]] = {}

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Makes a topic."""
        new = NewTopic(topic, partitions, 1, config=dict(config))
        self._admin.create_topics([new])[topic].result(60)
        # A Kafka answers before it has made the logs.
        poll_until(lambda: self._leads(topic, partitions), timeout_s=60, what=topic)

    def delete(self, topic: str) -> None:
        """Deletes a topic."""
        if topic in self._wires:
            self._wires.pop(topic)[0].close()
        self._admin.delete_topics([topic])[topic].result(60)

    def _leads(self, topic: str, partitions: int) -> bool:
        asked = [{"partition_index": each, "timestamp": -1} for each in range(partitions)]
        with Wire(self.port) as wire:
            answer = wire.ask(
                "list_offsets",
                6,
                {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]},
            )
        return all(each["error_code"] == "none" for each in answer["topics"][0]["partitions"])

    def record_count(self, topic: str) -> int:
        """The number of records that have been written to a topic."""
        if topic not in self._wires:
            parts = self._admin.list_topics(topic).topics[topic].partitions
            self._wires[topic] = Wire(self.port), len(parts)
        wire, partitions = self._wires[topic]
        asked = [{"partition_index": each, "timestamp": -1} for each in range(partitions)]
        fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]}
        answer = wire.ask("list_offsets", 6, fields)
        return sum(each["offset"] for each in answer["topics"][0]["partitions"])

    def alter(self, topic: str, config: Mapping[str, str]) -> None:
        """Sets settings of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(60)

    def warm_cleaner(self) -> None:
        """Has the cleaner ready: a Kafka's is."""

    def wait_until_cleaned(self, topic: str, since: float) -> float:
        """Seconds until the topic's partition was compacted."""
        raise NotImplementedError


class KafkaSide(Side):
    """Apache Kafka."""

    def __init__(self, kafka: RealKafka, pid: int) -> None:
        super().__init__("Kafka", kafka.bootstrap_servers, pid)
        self._kafka = kafka

    def wait_until_cleaned(self, topic: str, since: float) -> float:
        cleaned = re.compile(rf"cleaned log {re.escape(topic)}-0 ")
        poll_until(
            lambda: bool(cleaned.search(self._kafka.server_log)), timeout_s=_CLEAN_S, what=topic
        )
        return time.monotonic() - since


class OurSide(Side):
    """`cordwood serve`."""

    def __init__(self, broker: ServedBroker) -> None:
        super().__init__("Cordwood", broker.bootstrap_servers, broker.pid)
        self._broker = broker

    def warm_cleaner(self) -> None:
        """Compacts a small topic, so that Spark is there."""
        config = {"cleanup.policy": "compact", "segment.ms": "1000", "segment.bytes": "1048576"}
        self.create("warm", 1, config | {"min.cleanable.dirty.ratio": "0.01"})
        producer = Producer({"bootstrap.servers": self.address})
        for number in range(30_000):
            producer.produce("warm", key=str(number % 10), value="x" * 100)
            producer.poll(0)
        producer.flush()
        self.wait_until_cleaned("warm", 0.0)

    def wait_until_cleaned(self, topic: str, since: float) -> float:
        def cleaned() -> bool:
            with urllib.request.urlopen(f"{self._broker.url}/cleaner") as answer:
                status = json.load(answer)
            return any(
                run["partition"] == f"{topic}-0" and run["outcome"] == "cleaned"
                for run in status["last_runs"]
            )

        poll_until(cleaned, timeout_s=_CLEAN_S, what=f"{topic} is cleaned")
        return time.monotonic() - since


@contextmanager
def ours_alone(work: Path) -> Iterator[list[Side]]:
    """`cordwood serve`, running."""
    with ServedBroker(work / "ours", _PROPERTIES, flags=()) as ours:
        yield [OurSide(ours)]


@contextmanager
def both_sides(work: Path, properties: Mapping[str, str] = _PROPERTIES) -> Iterator[list[Side]]:
    """Both brokers, running; ours first."""
    with RealKafka(work / "kafka", properties=properties) as kafka:
        with jvm_flags(JVM_FLAGS):
            kafka.start()
        with ServedBroker(work / "ours", properties, flags=()) as ours:
            yield [OurSide(ours), KafkaSide(kafka, kafka.pid)]


def cpu_seconds(side: Side) -> float:
    """Processor time that the broker's process has used."""
    fields = Path(f"/proc/{side.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Resident memory of a process, in 10**6 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"process {pid} has ended")


def start_seconds(work: Path, *, kafka: bool) -> float:
    """The time from the command to the first answer, on a directory of the same broker."""
    if kafka:
        with jvm_flags(JVM_FLAGS), RealKafka(work / "start-kafka") as broker:
            broker.start()
            broker.stop()
            begun = time.monotonic()
            broker.start()
            return time.monotonic() - begun
    port = free_port()
    command = [
        *(str(Path(sys.executable).with_name("cordwood")), "serve", "--http-port", "-1"),
        *("--log-dir", str(work / "start-ours"), "--port", str(port)),
    ]
    seconds = 0.0
    for _ in range(2):  # the first formats the directory
        begun = time.monotonic()
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        poll_until(lambda: _answers(port), timeout_s=60, what="a start", interval_s=0.01)
        seconds = time.monotonic() - begun
        os.kill(process.pid, signal.SIGTERM)
        process.wait()
    return seconds


def _answers(port: int) -> bool:
    try:
        with Wire(port, timeout_s=5) as wire:
            return bool(wire.versions())
    except (ConnectionClosedError, OSError):
        return False
