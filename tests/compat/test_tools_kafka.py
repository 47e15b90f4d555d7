"""Cordwood's command line tools print what Kafka's print, for the same broker and flags.

Each row of `tool_cases` is run with both. The outputs may differ in times, ids, Java's stack
traces, and the usage that follows a refused command line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from support.applied import wait_until_applied
from support.kafka import RealKafka
from support.kafka_tools import KafkaTools, ToolResult
from support.side_by_side import changes_metadata, own_tools
from support.tool_cases import FILES, GROUPS, SETUP, Case

KAFKA_PREFIX, OWN_PREFIX = "zqk", "zqc"

_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]", re.MULTILINE)
_TOPIC_ID = re.compile(r"(TopicId: )[\w-]{22}")
_USAGE = re.compile(r"^(Option(?: \(\* = required\))? +Description|Usage: |usage: )")
_ASIDE = re.compile(
    r"The consumer rebalance protocol \(KIP-848\) is production-ready!"
    r"|\[TIME\] WARN .*The metadata response from the cluster reported a recoverable issue"
    r"|\[TIME\] WARN .*Got error produce response"
    r"|\[TIME\] ERROR .*Metadata response reported invalid topics"
)
# Of the metadata quorum, whose log grows all the time: offsets and times, and so widths of columns.
_HIGH_WATERMARK = re.compile(r"^(HighWatermark: +)\d+$", re.MULTILINE)
_REPLICAS = re.compile(r"^NodeId .*|^\d+ .*\t(?:Leader|Follower|Observer) *\t$", re.MULTILINE)
_NUMBER = re.compile(r"\b\d+( ms ago)?(?= *\t)")
_BLANKS = re.compile(r" *\t")
# The tool of groups says on stdout what the trace on stderr begins with.
_GROUPS_ERROR = "Error: Executing consumer group command failed"
_EXECUTION = re.compile(r"^java\.util\.concurrent\.ExecutionException: .*$", re.MULTILINE)
_LOGGED_CLASS = re.compile(r"(ERROR )[\w.$]+(?:Exception|Error): ")
_TRACE = re.compile(
    r"^(\tat |Caused by: |\t?\.\.\. \d+ more"
    r"|(?!java\.util\.concurrent\.ExecutionException)"
    r"(?:Exception in thread .*|java\.[\w.$]+|joptsimple\.[\w.$]+|net\.sourceforge\.[\w.$]+"
    r"|org\.apache\.kafka\.[\w.$]+|com\.fasterxml\.[\w.$]+)(?:Exception|Error|Invalid\w+|Regex\w+)"
    r"(?:: .*)?$)"
)


_READS: Final = re.compile(r" --(list|describe)\b")
_LOOKS_AGAIN: Final = 3
#: How long a consumer waits for a record, where both sides differ: each time longer.
_PATIENCE_MS: Final = (6_000, 60_000)
_TIMEOUT: Final = re.compile(r"(?<= --timeout-ms )\d+")
_IN_GROUP: Final = re.compile(r" --group | group\.id=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Output of both sides for a command line, made comparable."""

    case: Case
    kafka: ToolResult
    own: ToolResult

    @property
    def is_equal(self) -> bool:
        """True if exit code and all that was printed agree, but for the code after lost records."""
        if self.case.is_lossy:
            codes = (self.kafka.code, self.own.code)
            return codes == (0, 1) and self.kafka == self.own._replace(code=0)
        return self.kafka == self.own

    def __str__(self) -> str:
        sides = (("Kafka", self.kafka), ("Cordwood", self.own))
        return f"$ {self.case.line}\n" + "\n".join(
            f"--- {name}: exit code {said.code}\n{said.out}--- {name}, stderr:\n{said.err}"
            for name, said in sides
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Both sides, a broker, and the files that command lines name."""

    tools: KafkaTools
    bootstrap: str
    files: Mapping[str, Path]
    tag: str = ""

    def set_up(self) -> None:
        """Makes what there is before all rows."""
        for line in SETUP:
            tool, *args = shlex.split(line)
            done = self.tools.run(tool, *args, "--bootstrap-server", self.bootstrap)
            assert done.code == 0, done.out + done.err
        wait_until_applied(int(self.bootstrap.rpartition(":")[2]))

    def compare(self, case: Case) -> Comparison:
        """Runs one row on both sides.

        What a row changes is applied by the broker before the next row runs. A row that changes
        nothing is run again on both sides while they differ: each side has changed its own topics.
        So is a consumer without a group, with more time: it ends when no record has come for its
        time-out, which on a busy machine may be before the first.
        """
        compared = self._compare_once(case)
        for again in _again(case):
            if compared.is_equal:
                break
            compared = self._compare_once(again)
        return compared

    def _compare_once(self, case: Case) -> Comparison:
        compared = Comparison(case=case, kafka=self._kafka(case), own=self._own(case))
        if changes_metadata(case.line):
            wait_until_applied(int(self.bootstrap.rpartition(":")[2]))
        return compared

    def _kafka(self, case: Case) -> ToolResult:
        prefix = KAFKA_PREFIX + self.tag
        tool, *args = self._words(case, prefix)
        said = self.tools.run(tool, *args, stdin=_own_names(case.stdin, prefix))
        return comparable(said, prefix, ordered=case.ordered)

    def _own(self, case: Case) -> ToolResult:
        prefix = OWN_PREFIX + self.tag
        tool, *args = self._words(case, prefix)
        said = own_tools(tool, args, _own_names(case.stdin, prefix))
        return comparable(said, prefix, ordered=case.ordered)

    def _words(self, case: Case, prefix: str) -> list[str]:
        words = []
        for word in shlex.split(case.line):
            file = self.files.get(word.removeprefix("@")) if word.startswith("@") else None
            if file is not None:
                own = file.with_name(f"{prefix}-{file.name}")
                own.write_bytes(_own_names(file.read_bytes(), prefix))
                words.append(str(own))
            elif word == "BROKER":
                words.append(self.bootstrap)
            else:
                words.append(word.replace("%", prefix))
        if case.bootstrap:
            words += ["--bootstrap-server", self.bootstrap]
        return words


def _again(case: Case) -> list[Case]:
    """The rows to run while the sides differ."""
    if _READS.search(case.line):
        return [case] * _LOOKS_AGAIN
    if _IN_GROUP.search(case.line) or not _TIMEOUT.search(case.line):
        return []
    return [case._replace(line=_TIMEOUT.sub(str(ms), case.line)) for ms in _PATIENCE_MS]


def _own_names(data: bytes, prefix: str) -> bytes:
    return data.replace(b"%", prefix.encode())


def comparable(said: ToolResult, prefix: str, *, ordered: bool) -> ToolResult:
    """The output of a side without parts that may differ."""
    out = _TOPIC_ID.sub(r"\1ID", said.out.replace(prefix, "%"))
    out = _REPLICAS.sub(_without_offsets, _HIGH_WATERMARK.sub(r"\1N", out))
    if not ordered:
        out = "\n".join(sorted(out.splitlines()))
    err = _errors(said.err.replace(prefix, "%"))
    if _GROUPS_ERROR in out:
        err = _EXECUTION.sub("", err).strip("\n")
    return ToolResult(said.code, out, err)


def _without_offsets(row: re.Match[str]) -> str:
    """A row of kafka-metadata-quorum, or its header: the node's id is all of its numbers."""
    first, _, rest = row[0].partition("\t")
    return _BLANKS.sub("\t", f"{first}\t{_NUMBER.sub('N', rest)}")


def _errors(text: str) -> str:
    lines = []
    text = re.sub(r"adminclient-\d+", "adminclient-N", text)
    for line in _STAMP.sub("[TIME]", text).splitlines():
        if _USAGE.match(line):
            break
        if line and not _TRACE.match(line) and not _ASIDE.match(line):
            lines.append(_LOGGED_CLASS.sub(r"\1", line))
    return "\n".join(lines)


pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def sides(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    root = tmp_path_factory.mktemp("tools")
    files = {name: root / name for name in FILES}
    for name, path in files.items():
        path.write_text(FILES[name])
    with RealKafka(root / "kafka") as kafka:
        kafka.start()
        sides = Sides(tools=tools, bootstrap=kafka.bootstrap_servers, files=files)
        sides.set_up()
        yield sides


@pytest.mark.parametrize("group", GROUPS)
def test_tools_answer_as_kafkas_do(sides: Sides, group: str) -> None:
    _compare(sides, [case for case in GROUPS[group] if not case.slow])


@pytest.mark.nightly
@pytest.mark.parametrize("group", GROUPS)
def test_tools_answer_as_kafkas_do_in_all_rows(sides: Sides, group: str) -> None:
    _compare(replace(sides, tag="all"), GROUPS[group])


def _compare(sides: Sides, cases: Sequence[Case]) -> None:
    compared = [sides.compare(case) for case in cases]
    different = [str(one) for one in compared if not one.is_equal]
    assert not different, "\n\n".join(different)
