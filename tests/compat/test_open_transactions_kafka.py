"""Transactions that a Kafka left open: named, found and aborted here, and that Kafka agrees."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cordwood.format.file_names import CLUSTER_METADATA_DIR
from cordwood.metadata.replay import read_metadata_image
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC
from cordwood.surfaces.cli.tools import transactions
from cordwood.surfaces.cli.tools.tool import Terminal
from support.applied import wait_until_applied
from support.kafka import RealKafka, poll_until
from support.kafka_tools import KafkaTools, ToolResult
from support.served import ServedBroker
from support.transaction_client import TransactionClient, WireProducer
from support.wire import Wire
from support.wire_client import batch_of

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

OURS, THEIRS = "aborted-by-ours", "aborted-by-theirs"
TOPICS = (OURS, THEIRS)
FIND = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")


def stable(wire: TransactionClient) -> dict[str, tuple[int, int]]:
    """The last stable offset and the high watermark of each topic's partition 0."""
    told = {topic: wire.fetch(topic) for topic in TOPICS}
    return {
        topic: (each["last_stable_offset"], each["high_watermark"]) for topic, each in told.items()
    }


def run_ours(servers: str, *words: str) -> ToolResult:
    """The output of `cordwood transactions`."""
    out, err = io.BytesIO(), io.BytesIO()
    arguments = ["--bootstrap-server", servers, *words]
    code = transactions.run(arguments, Terminal(io.BytesIO(), out, err))
    return ToolResult(code, out.getvalue().decode(), err.getvalue().decode())


def rows_of(said: ToolResult) -> list[list[str]]:
    """The cells of a table."""
    assert said.code == 0, said
    return [line.split() for line in said.out.splitlines()]


def found_hanging(servers: str, tools: KafkaTools) -> tuple[list[list[str]], list[list[str]]]:
    """Hanging transactions by Cordwood's tool and by Kafka's, in one minute of their duration."""
    while True:
        before = rows_of(run_ours(servers, *FIND))
        theirs = rows_of(tools.run("transactions", "--bootstrap-server", servers, *FIND))
        if rows_of(run_ours(servers, *FIND)) == before:
            return before, theirs


def levels_of(data: Path) -> Mapping[str, int]:
    return read_metadata_image(data / CLUSTER_METADATA_DIR).features


def finalized(wire: Wire) -> dict[str, int]:
    software = {"client_software_name": "wire", "client_software_version": "1"}
    answer = wire.ask("api_versions", 4, software)
    return {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}


def left_open(kafka: RealKafka) -> Producer:
    """A producer whose transaction has two records in each topic, behind one of another."""
    kafka.start_without_cleaning()
    with TransactionClient(kafka.port) as wire:
        for topic in TOPICS:
            wire.create(topic, retention_ms=-1)
            poll_until(
                lambda: wire.produce(topic, batch_of(b"before"))["error_code"] == "none",  # noqa: B023
                timeout_s=180,
                what="a leader",
            )
    producer = Producer(
        {
            **kafka.client(),
            "transactional.id": "left-open",
            "transaction.timeout.ms": 900_000,
        }
    )
    producer.init_transactions(180)
    producer.begin_transaction()
    for topic in TOPICS:
        for value in (b"one", b"two"):
            producer.produce(topic, value, partition=0)
    assert producer.flush(180) == 0
    kafka.stop()
    return producer


def lose_coordinator(data: Path) -> None:
    """Removes what the coordinator knows: the transactions in other logs are left hanging."""
    for partition in data.glob(f"{TRANSACTION_STATE_TOPIC}-*"):
        for path in partition.iterdir():
            if path.name != "partition.metadata":
                path.unlink()


def test_a_transaction_that_the_coordinator_knows_is_not_hanging_and_the_next_producer_aborts_it(
    tmp_path: Path, tools: KafkaTools
) -> None:
    with RealKafka(tmp_path / "kafka") as kafka:
        left_open(kafka)
        (data,) = kafka.log_dirs
        with (
            ServedBroker(data, {"node.id": "1"}, flags=()) as broker,
            TransactionClient(broker.port) as wire,
        ):
            assert stable(wire) == dict.fromkeys(TOPICS, (1, 3))
            found, theirs = found_hanging(broker.bootstrap_servers, tools)
            assert found == theirs == found[:1]  # the header
            listed = ("--bootstrap-server", broker.bootstrap_servers, "list")
            ours = rows_of(run_ours(broker.bootstrap_servers, "list"))
            assert ours == rows_of(tools.run("transactions", *listed))
            assert [(row[0], row[-1]) for row in ours[1:]] == [("left-open", "Ongoing")]
            successor = WireProducer(wire, "left-open")
            successor.init()
            poll_until(
                lambda: stable(wire) == dict.fromkeys(TOPICS, (4, 4)),
                timeout_s=180,
                what="the markers",
            )
            assert broker.stop() == 0
        kafka.start_without_cleaning()
        kafka_listed = ("--bootstrap-server", kafka.bootstrap_servers, "list")
        wait_until_applied(kafka.port)  # the coordinator knows that it is one
        with TransactionClient(kafka.port) as wire:
            assert stable(wire) == dict.fromkeys(TOPICS, (4, 4))
            theirs = rows_of(tools.run("transactions", *kafka_listed))
            assert [(row[0], row[-1]) for row in theirs[1:]] == [("left-open", "Empty")]
        kafka.stop()


def test_a_transaction_that_no_coordinator_knows_is_aborted_here_and_kafka_agrees(
    tmp_path: Path, tools: KafkaTools
) -> None:
    with RealKafka(tmp_path / "kafka") as kafka:
        producer = left_open(kafka)
        (data,) = kafka.log_dirs
        lose_coordinator(data)
        levels = levels_of(data)
        assert levels["transaction.version"] == 2
        with (
            ServedBroker(data, {"node.id": "1"}, flags=()) as broker,
            TransactionClient(broker.port) as wire,
        ):
            assert stable(wire) == dict.fromkeys(TOPICS, (1, 3))
            assert finalized(wire)["transaction.version"] == 2
            servers = ("--bootstrap-server", broker.bootstrap_servers)
            found, theirs = found_hanging(broker.bootstrap_servers, tools)
            assert sorted(found) == sorted(theirs)
            assert sorted(row[0] for row in found[1:]) == sorted(TOPICS)
            abort = ("abort", "--partition", "0", "--start-offset", "1", "--topic")
            for said in (
                run_ours(broker.bootstrap_servers, *abort, OURS),
                tools.run("transactions", *servers, *abort, THEIRS),
            ):
                assert (said.code, said.out) == (0, ""), said
            assert stable(wire) == dict.fromkeys(TOPICS, (4, 4))
            assert rows_of(run_ours(broker.bootstrap_servers, *FIND)) == found[:1]
            again = run_ours(broker.bootstrap_servers, *abort, OURS)
            assert (again.code, again.err) == (
                1,
                "Could not find any open transactions starting at offset 1 on partition "
                f"{OURS}-0\n",
            )
            assert broker.stop() == 0
        assert levels_of(data) == levels
        kafka.start_without_cleaning()
        with TransactionClient(kafka.port) as wire:
            assert stable(wire) == dict.fromkeys(TOPICS, (4, 4))
            assert finalized(wire)["transaction.version"] == 2
        del producer
        successor = Producer({**kafka.client(), "transactional.id": "left-open"})
        successor.init_transactions(180)
        successor.begin_transaction()
        successor.produce(OURS, b"committed", partition=0)
        successor.commit_transaction(180)
        with TransactionClient(kafka.port) as wire:
            poll_until(  # the marker is written after the commit is acknowledged
                lambda: len(set(stable(wire)[OURS])) == 1,
                timeout_s=180,
                what="the commit's marker",
            )
        kafka.stop()
