"""Retention and compaction, step by step, as a real Kafka and its tools once showed them.

The golden text was recorded in real time by `tools/record_walkthrough.py`; here time is moved.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.format.file_names import LOG_SUFFIX
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.model.properties import parse_properties
from cordwood.surfaces.cli.dump_log import dump_log
from cordwood.surfaces.cli.tools.table import TOOLS
from cordwood.surfaces.cli.tools.tool import Terminal
from cordwood.testing.broker import RunningBroker
from support.in_process_engine import ManagedInProcessEngine
from support.kafka_tools import KafkaTools, ToolResult
from support.side_by_side import Run, Station, kafkas_tools
from support.walkthrough import Stage, walk

#: Between the first record of a batch and another: then the difference takes one byte.
SPAN_MS_MAX = 63
WALKS_MAX = 10
GOLDEN = Path(__file__).parents[1] / "golden" / "walkthrough"


class MovedStage(Stage):
    """Cordwood, whose clock is in our hand."""

    def __init__(self, running: RunningBroker, station: Station, run: Run) -> None:
        super().__init__(station, run)
        self._running = running
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
        self._running.advance(seconds=seconds)
        assert until(), f"{seconds} s have passed in vain: {self.text[-2000:]}"


def cordwoods_tools(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the subcommands of `cordwood`, as Kafka's tools are called."""

    def run(tool: str, words: list[str], stdin: bytes) -> ToolResult:
        if tool == "dump-log":
            capsys.readouterr()
            code = dump_log(words)
            return ToolResult(code, *capsys.readouterr())
        out, err = io.BytesIO(), io.BytesIO()
        module = importlib.import_module(f"cordwood.surfaces.cli.tools.{TOOLS[tool].module}")
        code = module.run(words, Terminal(io.BytesIO(stdin), out, err))
        return ToolResult(code, out.getvalue().decode(), err.getvalue().decode())

    return run


def walked(root: Path, run: Run) -> list[str]:
    """What was seen at Cordwood.

    The sizes of batches are compared too. A producer that was held up between two records of a
    batch has written another size: the walk is done again.
    """
    for number in range(WALKS_MAX):
        stage = _walked(root / str(number), run)
        if not stage.was_slow:
            return [*stage.text.splitlines(), ""]
    raise AssertionError(f"records of a batch were more than {SPAN_MS_MAX} ms apart in each walk")


def _walked(root: Path, run: Run) -> MovedStage:
    settings = (GOLDEN / "server.properties").read_text(encoding="utf-8")
    logs = root / "cordwood" / "data"
    logs.mkdir(parents=True)
    with RunningBroker(
        parse_properties(settings, name="server.properties"),
        log_dir=logs,
        engine=ManagedInProcessEngine,
    ) as running:
        stage = MovedStage(running, Station("Cordwood", running.bootstrap_servers, logs), run)
        walk(stage)
    return stage


@pytest.fixture(scope="module")
def expected() -> list[str]:
    (text,) = [path.read_text(encoding="utf-8") for path in GOLDEN.glob("kafka-*.txt")]
    return text.splitlines()


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_kafkas_tools_show_at_cordwood_what_they_showed_at_kafka(
    tmp_path: Path, expected: list[str]
) -> None:
    with KafkaTools() as tools:
        assert walked(tmp_path, kafkas_tools(tools)) == expected


def test_cordwoods_tools_show_what_kafkas_showed_at_kafka(
    tmp_path: Path, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert walked(tmp_path, cordwoods_tools(capsys)) == expected
