"""Retention and compaction, step by step, as a real Kafka and its tools once showed them.

The golden texts were recorded in real time by `tools/record_walkthrough.py`; here time is moved.
Three brokers have a controller of Kafka's, or of Cordwood's.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from cordwood.format.file_names import LOG_SUFFIX
from cordwood.format.properties import parse_properties
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.surfaces.cli.dump_log import dump_log
from cordwood.testing.broker import RunningBroker
from support.in_process_engine import CompiledEngine
from support.kafka import poll_until
from support.kafka_programs import KAFKA_4_3, KAFKA_4_4
from support.kafka_tools import KafkaTools, ToolResult
from support.mixed_cluster import MixedCluster
from support.served import ServedBroker
from support.side_by_side import Run, Station, kafkas_tools, own_tools
from support.walkthrough import Stage, walk

#: Between the first record of a batch and another: then the difference takes one byte.
SPAN_MS_MAX = 63
WALKS_MAX = 10
SETTLES_S = 60.0
GOLDEN = Path(__file__).parents[1] / "golden"
_JSON = {"Content-Type": "application/json"}
#: The clocks of the brokers are moved one after the other, by more than these would be.
_PATIENT = {"replica.lag.time.max.ms": "600000"}


class MovedStage(Stage):
    """Cordwood, whose clocks are moved; replicas that fetch have some time to do what is due."""

    def __init__(
        self, stations: Sequence[Station], run: Run, advance: Callable[[float], object]
    ) -> None:
        super().__init__(stations, run)
        self._advance = advance
        self.was_slow = False

    def say(self, text: str, *, stdin: str = "", ordered: bool = True) -> None:
        super().say(text, stdin=stdin, ordered=ordered)
        if text.startswith("console-producer"):
            self.was_slow |= any(
                batch.max_timestamp - batch.header.base_timestamp > SPAN_MS_MAX
                for log in self.station.logs.glob(f"*/*{LOG_SUFFIX}")
                for _, batch in iter_batches(log.read_bytes())
                if isinstance(batch, RecordBatch) and batch.header.records_count > 1
            )

    def pass_seconds(self, seconds: float, until: Callable[[], bool]) -> None:
        self._advance(seconds)
        if self.replicas == 1:
            assert until(), f"{seconds} s have passed in vain: {self.text[-2000:]}"
        else:
            poll_until(until, timeout_s=SETTLES_S, what=f"after {self.text[-2000:]}")


def cordwoods_tools(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the subcommands of `cordwood`, as Kafka's tools are called."""

    def run(tool: str, words: list[str], stdin: bytes) -> ToolResult:
        if tool == "dump-log":
            capsys.readouterr()
            code = dump_log(words)
            return ToolResult(code, *capsys.readouterr())
        return own_tools(tool, words, stdin)

    return run


@dataclass(frozen=True, slots=True)
class Brokers:
    """Running brokers, and how their clocks are moved, by seconds."""

    stations: Sequence[Station]
    advance: Callable[[float], object]


@contextmanager
def one_broker(root: Path, properties: dict[str, str]) -> Iterator[Brokers]:
    """A broker with its own controller."""
    logs = root / "cordwood" / "data"
    logs.mkdir(parents=True)
    with RunningBroker(properties, log_dir=logs, engine=CompiledEngine) as running:
        station = Station("Cordwood", running.bootstrap_servers, logs)
        yield Brokers([station], lambda seconds: running.advance(seconds=seconds))


@contextmanager
def three_brokers(
    root: Path, properties: dict[str, str], *, has_own_controller: bool = False
) -> Iterator[Brokers]:
    """A cluster of three."""
    with MixedCluster(
        root,
        cordwood=(1, 2, 3),
        has_own_controller=has_own_controller,
        properties={**properties, **_PATIENT},
        session_timeout_ms=600_000,
        flags=("--test-clock",),
    ) as cluster:
        own = [each for each in cluster.brokers.values() if isinstance(each, ServedBroker)]

        def advance(seconds: float) -> None:
            for broker in own:
                url = f"{broker.url}/clock/advance?ms={round(seconds * 1000)}"
                request = urllib.request.Request(url, method="POST", headers=_JSON)
                with urllib.request.urlopen(request) as answer:  # loopback
                    assert answer.status == 200

        stations = [Station("Cordwood", each.bootstrap_servers, each.log_dir) for each in own]
        yield Brokers(stations, advance)


Place = Callable[[Path, dict[str, str]], AbstractContextManager[Brokers]]

PLACES: dict[str, tuple[Place, str]] = {
    "one broker": (one_broker, "walkthrough"),
    "three brokers": (three_brokers, "walkthrough-three-brokers"),
    "own controller": (
        partial(three_brokers, has_own_controller=True),
        "walkthrough-three-brokers",
    ),
}


def walked(root: Path, run: Run, place: str) -> list[str]:
    """Observations at Cordwood.

    The sizes of batches are compared too. A producer that was held up between two records of a
    batch has written another size: the walk is done again.
    """
    started, golden = PLACES[place]
    settings = (GOLDEN / golden / "server.properties").read_text(encoding="utf-8")
    properties = parse_properties(settings, name="server.properties")
    for number in range(WALKS_MAX):
        with started(root / str(number), properties) as brokers:
            stage = MovedStage(brokers.stations, run, brokers.advance)
            walk(stage)
        if not stage.was_slow:
            return [*stage.text.splitlines(), ""]
    raise AssertionError(f"records of a batch were more than {SPAN_MS_MAX} ms apart in each walk")


def expected(place: str, version: str = KAFKA_4_3) -> list[str]:
    """Observations at Kafka."""
    text = GOLDEN / PLACES[place][1] / f"kafka-{version}.txt"
    return text.read_text(encoding="utf-8").splitlines()


@pytest.mark.kafka
@pytest.mark.parametrize("place", PLACES)
def test_kafkas_tools_show_at_cordwood_what_they_showed_at_kafka(
    tmp_path: Path, tools: KafkaTools, place: str
) -> None:
    assert walked(tmp_path, kafkas_tools(tools), place) == expected(place)


@pytest.mark.kafka
def test_the_tools_of_kafka_4_4_show_at_cordwood_what_they_showed_at_kafka_4_4(
    tmp_path: Path, tools_4_4: KafkaTools
) -> None:
    run = kafkas_tools(tools_4_4)
    assert walked(tmp_path, run, "one broker") == expected("one broker", KAFKA_4_4)


def test_kafka_4_4_and_its_tools_show_what_kafka_4_3_showed() -> None:
    assert expected("one broker", KAFKA_4_4) == expected("one broker")


@pytest.mark.parametrize(
    "place",
    [
        "one broker",
        "own controller",
        pytest.param("three brokers", marks=[pytest.mark.kafka, pytest.mark.nightly]),
    ],
)
def test_cordwoods_tools_show_what_kafkas_showed_at_kafka(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    assert walked(tmp_path, cordwoods_tools(capsys), place) == expected(place)
