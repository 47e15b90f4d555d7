"""The document of a failure says what standard error and the exit code say."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cordwood.model.errors import ConfigError, MissingExtraError
from cordwood.surfaces.cli import entry
from cordwood.surfaces.cli.failure import (
    CommandFailedError,
    fail,
    failures_as_json,
    print_error,
)
from support.terminal import FakeTerminal


@pytest.mark.parametrize(
    "error",
    [
        MissingExtraError("native", what="explain", missing=["numpy"]),
        ModuleNotFoundError("No module named 'numpy'", name="numpy"),
        ConfigError("x=1: no"),
        FileNotFoundError(2, "No such file or directory", "a/file"),
        ZeroDivisionError("division by zero"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_document_has_the_text_and_the_code_of_the_process(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def invoke(arguments: list[str]) -> int:
        with failures_as_json(arguments):
            raise error

    monkeypatch.setattr(entry, "_invoke", invoke)
    code = entry.run(["explain", "--json"])
    shown = capsys.readouterr()
    text = shown.err.removeprefix("cordwood explain: ").rstrip("\n")
    assert json.loads(shown.out) == {"error": text, "exit_code": code}


def test_a_missing_extra_ends_with_its_code_also_beside_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def invoke(_: list[str]) -> int:
        raise MissingExtraError("native", what="explain", missing=["numpy"])

    monkeypatch.setenv("CORDWOOD_DEBUG", "1")
    monkeypatch.setattr(entry, "_invoke", invoke)
    assert entry.run(["explain"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_long_error_is_wrapped_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = (
        "cordwood clean: /var/lib/kafka/data: not an entry of a Kafka broker's log.dirs (it has no "
        "meta.properties)"
    )
    terminal = FakeTerminal(columns=50)
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr(sys, "stderr", terminal)
    print_error(said)
    assert max(map(len, terminal.lines())) <= 50
    assert " ".join(" ".join(terminal.lines()).split()) == said


@pytest.mark.parametrize("arguments", [["docs"], [], ["docs", "install"], ["clean", "--help"]])
def test_a_reader_that_has_closed_the_output_ends_a_command_without_a_word(
    arguments: list[str],
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cordwood", *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_pipe_that_is_not_the_output_is_an_error_as_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def command() -> None:
        try:
            raise BrokenPipeError(32, "Broken pipe")
        except OSError as error:
            fail("clean", error, 1)

    with pytest.raises(CommandFailedError):
        command()
    assert capsys.readouterr().err == "cordwood clean: [Errno 32] Broken pipe\n"
