"""The same commands at a real Kafka and at Cordwood, and what they print without what must differ.

Role: tests of whole command lines. A `Station` is a broker with the directory of its logs; commands
name it as `{broker}` and its logs as `{logs}`.
"""

from __future__ import annotations

import importlib
import io
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from cordwood.format.properties import parse_properties
from cordwood.surfaces.cli.tools.table import TOOLS
from cordwood.surfaces.cli.tools.tool import Terminal
from support.applied import wait_until_applied
from support.kafka import RealKafka
from support.kafka_tools import KafkaTools, ToolResult

OF_THE_PLACE: Final = (
    *("listeners", "log.dirs", "process.roles", "controller.", "advertised.listeners"),
)

Change = tuple[str, str]

#: Patterns of what differs from run to run, and what stands for it.
CHANGES: Final[tuple[Change, ...]] = (
    (r"(?:localhost|127\.0\.0\.1):\d+", "<broker>"),
    (r"(?<=adminclient-)\d+", "<number>"),
    (r"(?<=console-consumer-)\d+", "<number>"),
    # Clients of tools that ended with their broker.
    (r"^.* WARN .*clientId=.*(?:could not be established|disconnected).*\n?", ""),
    # A broker in the process of the own tools, on a busy machine.
    (r"^.* WARN The event loop was busy .*\n?", ""),
    (r"(TopicId: |topicId=|DirectoryId=)[\w-]{22}", r"\1<id>"),
    (r"(Cluster ID: |ClusterId: +)\S+", r"\1<id>"),
    (r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]", "[<time>]"),
    (r'"timestamp":\d+', '"timestamp":<time>'),
    (r"(CreateTime|LogAppendTime|lastTimestamp): ?\d+", r"\1: <time>"),
    (r"CreateTime:\d+", "CreateTime:<time>"),
    (r"(console|consumer|producer)(-[\w.]+)*-[0-9a-f]{8}-[0-9a-f-]{27}", r"\1-<id>"),
    (r"^(?:\tat |\t?\.\.\. ).*\n", ""),
)


class Line(NamedTuple):
    """A command: a tool and its words; `stdin` is what it reads.

    `changes` are patterns of what differs beyond `CHANGES`. `ordered` is False where the lines are
    printed in the order of a hash map or of threads.
    """

    text: str
    stdin: bytes = b""
    ordered: bool = True
    changes: tuple[Change, ...] = ()


@dataclass(slots=True)
class Station:
    """A running broker."""

    name: str
    bootstrap: str
    logs: Path
    said: dict[str, ToolResult] = field(default_factory=dict)

    def words(self, line: Line) -> list[str]:
        """The command's words for this broker."""
        words = shlex.split(line.text)
        return [
            word.replace("{broker}", self.bootstrap).replace("{logs}", str(self.logs))
            for word in words
        ]

    def alike(self, text: str, line: Line) -> str:
        """The text without what must differ between brokers."""
        text = text.replace(str(self.logs.resolve()), "<logs>").replace(str(self.logs), "<logs>")
        for pattern, instead in (*line.changes, *CHANGES):
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
        if not line.ordered:
            text = "\n".join(sorted(text.splitlines()))
        return text


Run = Callable[[str, list[str], bytes], ToolResult]


def run_lines(station: Station, lines: Iterable[Line], run: Run) -> None:
    """Runs the commands in their order, and keeps what was said by the text of each.

    The changes that a command made are applied by the broker before the next one runs.
    """
    port = int(station.bootstrap.rpartition(":")[2])
    for line in lines:
        tool, *words = station.words(line)
        station.said[line.text] = answer_of(station, line, run(tool, words, line.stdin))
        if changes_metadata(line.text):
            wait_until_applied(port)


_CHANGES_METADATA: Final = re.compile(r" --(?:create|alter|delete|execute)\b| unregister\b")


def changes_metadata(command: str) -> bool:
    """True if a tool's command line asks the controller for a change."""
    return _CHANGES_METADATA.search(command) is not None


def answer_of(station: Station, line: Line, said: ToolResult) -> ToolResult:
    """The output of a tool without parts that must differ."""
    return ToolResult(said.code, station.alike(said.out, line), station.alike(said.err, line))


def kafkas_tools(tools: KafkaTools) -> Run:
    """Runs Kafka's own tools."""
    return lambda tool, words, stdin: tools.run(tool, *words, stdin=stdin)


def own_tools(tool: str, words: list[str], stdin: bytes) -> ToolResult:
    """Runs Cordwood's tool of that name, in this process."""
    out, err = io.BytesIO(), io.BytesIO()
    module = importlib.import_module(f"cordwood.surfaces.cli.tools.{TOOLS[tool].module}")
    code = module.run(words, Terminal(io.BytesIO(stdin), out, err))
    return ToolResult(code, out.getvalue().decode(), err.getvalue().decode())


def same_properties(kafka: RealKafka) -> dict[str, str]:
    """The settings of the real Kafka's last start, but for where it listens and writes."""
    properties = parse_properties(kafka.config_file.read_text(), name="server.properties")
    return {key: value for key, value in properties.items() if not key.startswith(OF_THE_PLACE)}
