"""kafka-transactions and a transactional kafka-producer-perf-test at a Kafka and at Cordwood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import pytest

from support.kafka import poll_until
from support.kafka_tools import KafkaTools
from support.side_by_side import Line, Station, kafkas_tools, own_tools, run_lines
from support.transaction_client import TransactionClient, WireProducer
from support.two_brokers import TwoBrokers, make_topics

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

_TX: Final = "transactions --bootstrap-server {broker}"
_BLANKS: Final = (r"[ \t]+", " ")
_TIME: Final = (r"\b\d{13}\b", "<time>")
#: A marker has the time of its broker; the records of these producers have one time.
_LINE: Final = (_BLANKS, _TIME)
#: The start of a transaction, and how long it is open.
_DESCRIBED: Final = (_BLANKS, (r"\b\d{13} \d+", "<time> <duration>"))
_PERF: Final = (
    # A batch that reaches a broker before the markers of the transaction before it are written.
    (
        r"^.*Got error produce response .*, retrying .* Error: "
        r"(?:CONCURRENT_TRANSACTIONS|OUT_OF_ORDER_SEQUENCE_NUMBER) .*\n?",
        "",
    ),
    (r"^\d+ records sent, .* max latency\.\n", ""),
    (r"\d+(?:\.\d+)?(?= records/sec| MB/sec| ms)", "<number>"),
)


def _asked(command: str, *, ordered: bool = True) -> Line:
    changes = _DESCRIBED if command.startswith("describe ") else _LINE
    return Line(f"{_TX} {command}", changes=changes, ordered=ordered)


#: What is asked at each moment.
_LOOKS: Final = (
    _asked("list", ordered=False),
    _asked("list --transactional-id-pattern pay.*"),
    _asked("list --duration-filter 3600000"),
    *(_asked(f"describe --transactional-id {name}") for name in ("payments", "shut", "idle", "no")),
    _asked("describe-producers --topic orders --partition 0", ordered=False),
    _asked("describe-producers --topic orders --partition 1 --broker-id 1", ordered=False),
    _asked("find-hanging --topic orders"),
    _asked("find-hanging --broker-id 1 --max-transaction-timeout 0"),
)


class Moment(NamedTuple):
    """Action, and the tools that are run after it."""

    done: Callable[[TransactionClient], object]
    lines: tuple[Line, ...]


def _begin(wire: TransactionClient) -> None:
    """One id whose second transaction is open, one whose first was aborted, one without any."""
    payments, shut, idle = (WireProducer(wire, name) for name in ("payments", "shut", "idle"))
    for producer in (payments, shut, idle):
        producer.init()
    payments.produce("orders", 0, b"one", b"two")
    payments.produce("orders", 1, b"three")
    payments.end(commit=True)
    wire.wait_until_ended("payments")
    shut.produce("orders", 0, b"four")
    shut.end(commit=False)
    wire.wait_until_ended("shut")
    payments.produce("orders", 0, b"five")


def _leave_open(wire: TransactionClient) -> None:
    """The forced end of one transaction is complete; another one is open."""
    wire.wait_until_ended("payments")
    poll_until(lambda: wire.is_stable("orders", 0), timeout_s=60, what="no open transaction")
    producer = WireProducer(wire, "shut")
    producer.init()
    producer.produce("orders", 1, b"six")


def _nothing(_: TransactionClient) -> None:
    return


_MOMENTS: Final = (
    Moment(_begin, (*_LOOKS, _asked("forceTerminateTransaction --transactionalId payments"))),
    Moment(
        _leave_open,
        (
            *_LOOKS,
            _asked("abort --topic orders --partition 1 --start-offset 99"),
            _asked("abort --topic orders --partition 1 --start-offset 2"),
        ),
    ),
    # The coordinator still has it under way: its own marker will end nothing.
    Moment(
        _nothing,
        (
            *_LOOKS,
            _asked("forceTerminateTransaction --transactionalId shut"),
            _asked("forceTerminateTransaction --transactionalId new"),
        ),
    ),
    Moment(
        lambda wire: wire.wait_until_ended("shut"),
        (
            *_LOOKS,
            *(
                Line(
                    "producer-perf-test --topic perf --num-records 300 --record-size 100"
                    f" --throughput 300 {flags} --producer-props bootstrap.servers={{broker}}",
                    changes=_PERF,
                )
                for flags in (
                    "--transactional-id perf --transaction-duration-ms 100",
                    "--transaction-duration-ms 200",
                    "--transactional-id payments",
                    "--transaction-duration-ms 0",
                )
            ),
        ),
    ),
    Moment(
        _nothing,
        (
            _asked("list --transactional-id-pattern perf|payments|shut|new", ordered=False),
            # How many transactions there were depends on the time that they took.
            Line(
                f"{_TX} describe --transactional-id perf",
                changes=(*_DESCRIBED, (r"^(\d+ perf \d+) \d+", r"\1 <epoch>")),
            ),
            Line("get-offsets --bootstrap-server {broker} --topic orders"),
        ),
    ),
)


@pytest.fixture(scope="module")
def stations(
    tmp_path_factory: pytest.TempPathFactory, tools: KafkaTools
) -> Mapping[str, list[Station]]:
    """Output of the tools at each moment: Kafka's at a Kafka, Kafka's and Cordwood's here."""
    root = tmp_path_factory.mktemp("tools")
    properties = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "3",
    }
    found: dict[str, list[Station]] = {"Kafka": [], "Cordwood": [], "own tools": []}
    with TwoBrokers(root, properties=properties, prepare=_prepare, is_ready=_is_ready) as both:
        for name, port, logs in zip(("Kafka", "Cordwood"), both.ports, both.log_dirs, strict=True):
            for moment in _MOMENTS:
                with TransactionClient(port) as wire:
                    moment.done(wire)
                station = Station(name, f"127.0.0.1:{port}", logs)
                own = Station(f"own tools at {name}", f"127.0.0.1:{port}", logs)
                for line in moment.lines:
                    if name == "Cordwood" and line in _LOOKS:
                        run_lines(own, [line], own_tools)
                    run_lines(station, [line], kafkas_tools(tools))
                found[name].append(station)
                if name == "Cordwood":
                    found["own tools"].append(own)
    return found


def _prepare(port: int) -> None:
    make_topics(port, {"orders": 2, "perf": 1})


def _is_ready(port: int) -> None:
    with TransactionClient(port) as wire:
        wire.ask("metadata", 12, {"topics": []})


@pytest.mark.parametrize("moment", range(len(_MOMENTS)))
def test_the_tools_say_the_same_at_both(stations: Mapping[str, list[Station]], moment: int) -> None:
    kafka, cordwood = stations["Kafka"][moment], stations["Cordwood"][moment]
    assert cordwood.said == kafka.said
    own = stations["own tools"][moment]
    assert own.said == {text: kafka.said[text] for text in own.said}
