"""kcat through the same checks as every stock client, and its lists of topics and offsets.

kcat is librdkafka on the command line, from Debian's package of that name.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from support.built_programs import ProgramUnavailableError
from support.stock_clients.availability import nothing_missing
from support.stock_clients.base import (
    READ_SECONDS_MAX,
    Codec,
    NoOffsetError,
    Start,
    StockClientError,
    StockRecord,
)
from support.stock_clients.contract import checks_for, numbered, run_check
from support.stock_clients.neutral import Neutral

_RECORD_END: Final = "\x1e"
_KEY_END: Final = "\x1f"
_NO_OFFSET: Final = ("Offset out of range", "No offset stored")


class KcatClient:
    """One run of the command for each call."""

    name = "kcat"
    lacks: Mapping[str, str] = {
        "admin": "kcat only lists topics",
        "bytes": "kcat prints keys and values as text",
        "reset_by_duration": "librdkafka knows earliest, latest and error",
    }
    cannot_write: Mapping[str, str] = {
        "null_beside_empty": "one flag makes each empty key and value null, or none",
        "timestamps": "kcat does not set them",
    }
    group_protocol = "classic"

    def __init__(self, bootstrap_servers: str) -> None:
        if shutil.which("kcat") is None:
            raise ProgramUnavailableError("`kcat` is not on PATH: install the package kcat")
        self._servers = bootstrap_servers

    def run(self, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Runs the command; what it printed may end early where it was not done in time."""
        command = ["kcat", "-b", self._servers, "-X", "log_level=0", *arguments]
        try:
            return subprocess.run(
                command, input=given, capture_output=True, timeout=READ_SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired as expired:
            return subprocess.CompletedProcess(command, 0, expired.stdout or b"", b"")

    def produce(
        self,
        topic: str,
        records: Sequence[StockRecord],
        *,
        codec: Codec = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> None:
        """Writes the records, those with the same headers by one run of the command."""
        settings = [
            f"compression.codec={codec}",
            f"enable.idempotence={str(idempotent).lower()}",
            f"message.max.bytes={max_bytes}",
            "acks=all",
        ]
        common = ["-P", "-t", topic, "-p", "0", "-D", _RECORD_END, *_options("-X", settings)]
        for (headers, flags), alike in itertools.groupby(
            records, lambda record: (record.headers, _flags(record))
        ):
            named = [_header(name, value) for name, value in headers]
            lines = b"".join(_line(record) for record in alike)
            done = self.run(*common, *flags, *_options("-H", named), given=lines)
            if done.returncode != 0:
                raise StockClientError(done.stderr.decode())

    def consume(
        self,
        topic: str,
        start: Start,
        count: int,
        *,
        reset: str = "none",
        fetch_bytes: int | None = None,
    ) -> list[StockRecord]:
        """Reads records."""
        begin = {
            "earliest": "beginning",
            "latest": "end",
            "offset": str(start.at),
            "timestamp": f"s@{start.at}",
        }
        settings = [_reset("topic.auto.offset.reset", reset)]
        if fetch_bytes is not None:
            settings += [
                f"fetch.message.max.bytes={fetch_bytes}",
                f"message.max.bytes={fetch_bytes}",
                f"fetch.max.bytes={fetch_bytes}",
            ]
        place = ["-t", topic, "-p", "0", "-o", begin[start.kind]]
        return self._read("-C", *place, count=count, settings=settings)

    def consume_group(
        self, topic: str, group: str, count: int, *, reset: str = "earliest"
    ) -> list[StockRecord]:
        """Reads records as a group's only member."""
        settings = [_reset("auto.offset.reset", reset)]
        return self._read("-G", group, topic, count=count, settings=settings)

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Not for kcat."""
        raise NotImplementedError

    def describe_topic(self, topic: str) -> tuple[int, dict[str, str | None]]:
        """Not for kcat."""
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        """Not for kcat."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is kept open."""

    def _read(
        self, mode: str, *where: str, count: int, settings: Sequence[str]
    ) -> list[StockRecord]:
        # The topics of a group come last of all.
        options = ["-q", "-u", "-J", "-c", str(count), *_options("-X", settings)]
        done = self.run(*options, mode, *where)
        if done.returncode != 0:
            said = done.stderr.decode()
            if any(words in said for words in _NO_OFFSET):
                raise NoOffsetError(said)
            raise StockClientError(said)
        *lines, _ = done.stdout.split(b"\n")
        return [_record(line) for line in lines]


def _options(flag: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (flag, value)]


def _reset(name: str, reset: str) -> str:
    return f"{name}={'error' if reset == 'none' else reset}"


def _header(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def _flags(record: StockRecord) -> tuple[str, ...]:
    if record.value is None:
        return ("-K", _KEY_END, "-Z")
    return () if record.key is None else ("-K", _KEY_END)


def _line(record: StockRecord) -> bytes:
    value = (record.value or b"") + _RECORD_END.encode()
    if record.key is None and record.value is not None:
        return value
    return (record.key or b"") + _KEY_END.encode() + value


def _record(line: bytes) -> StockRecord:
    told = json.loads(line)
    flat = [_bytes(text) for text in told.get("headers", [])]
    names = [(name or b"").decode() for name in flat[::2]]
    return StockRecord(
        key=_bytes(told["key"]),
        value=_bytes(told["payload"]),
        headers=tuple(zip(names, flat[1::2], strict=True)),
        timestamp=told["ts"],
        offset=told["offset"],
        partition=told["partition"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.fixture(scope="module")
def kcat(stock_broker: str) -> KcatClient:
    with nothing_missing():
        return KcatClient(stock_broker)


@pytest.mark.parametrize("check", checks_for(KcatClient.lacks))
def test_kcat_does(check: str, kcat: KcatClient, neutral: Neutral) -> None:
    run_check(check, kcat, neutral)


def test_kcat_lists_the_broker_and_its_topics(
    kcat: KcatClient, neutral: Neutral, stock_broker: str
) -> None:
    topic = neutral.topic(partitions=3)
    listed = json.loads(kcat.run("-L", "-J").stdout)
    assert [broker["name"] for broker in listed["brokers"]] == [stock_broker]
    [found] = [entry for entry in listed["topics"] if entry["topic"] == topic]
    assert [entry["partition"] for entry in found["partitions"]] == [0, 1, 2]
    node = listed["brokers"][0]["id"]
    assert {entry["leader"] for entry in found["partitions"]} == {node}
    assert listed["controllerid"] == node


def test_kcat_asks_for_the_offset_of_a_timestamp(kcat: KcatClient, neutral: Neutral) -> None:
    topic = neutral.topic()
    neutral.write(topic, numbered(4, timestamp=1_600_000_000_000))
    asked = [f"{topic}:0:{timestamp}" for timestamp in (1_600_000_000_000, 1_600_000_001_500)]
    answers = [kcat.run("-Q", "-t", place).stdout.decode().strip() for place in asked]
    assert answers == [f"{topic} [0] offset 0", f"{topic} [0] offset 2"]
