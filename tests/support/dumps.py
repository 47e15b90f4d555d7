"""`cordwood dump-log` beside kafka-dump-log: the same text on stdout and stderr, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from cordwood.surfaces.cli.dump_log import dump_log
from support.kafka_programs import KAFKA_VERSIONS
from support.kafka_tools import KafkaTools

#: Of the argument that names the files.
_BYTES_MAX: Final = 60_000


class DumpTools:
    """The tools of both sides; `kafkas` are Kafka's by its version."""

    def __init__(
        self, captured: pytest.CaptureFixture[bytes], kafkas: Mapping[str, KafkaTools]
    ) -> None:
        self._captured = captured
        self._kafkas = kafkas

    def compare(
        self,
        files: Iterable[Path],
        *flags: str,
        is_broken: bool = False,
        versions: Sequence[str] = KAFKA_VERSIONS,
    ) -> None:
        """Runs all tools over files; with `is_broken` stderr holds an exception, ours in our words.

        Raises:
            AssertionError: they differ, at the first line that does.
        """
        runs = list(runs_of(files))
        assert runs
        for names in runs:
            arguments = ["--files", names, *flags]
            self._captured.readouterr()
            code = dump_log(arguments)
            captured = self._captured.readouterr()
            ours, our_errors = captured.out.decode(), captured.err.decode()
            assert code == (1 if is_broken else 0)
            for version in versions:
                theirs = self._kafkas[version].run("dump-log", *arguments)
                _require_same(theirs.out, ours)
                assert code == theirs.code
                if not is_broken:
                    _require_same(theirs.err, our_errors)


def runs_of(files: Iterable[Path]) -> Iterator[str]:
    """The files as arguments of one run each."""
    run: list[str] = []
    size = 0
    for name in map(str, files):
        size += len(name.encode()) + 1
        if size > _BYTES_MAX:
            yield ",".join(run)
            run, size = [], len(name.encode()) + 1
        run.append(name)
    if run:
        yield ",".join(run)


def _require_same(theirs: str, ours: str) -> None:
    if theirs == ours:
        return
    for expected, actual in zip(theirs.split("\n"), ours.split("\n"), strict=False):
        assert actual == expected
    assert len(ours) == len(theirs)
