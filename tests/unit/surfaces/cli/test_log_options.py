"""Log of a command."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.model.errors import ConfigError, NoSpaceError
from cordwood.surfaces.cli.log_options import (
    LogFormat,
    LogOptions,
    logging_to,
    parse_log_options,
)
from cordwood.surfaces.cli.main import app
from support.clean_case import EXPIRE, log_dir


def lines_of(error: Exception, log_format: LogFormat) -> list[str]:
    lines: list[str] = []
    with logging_to(lines.append, LogOptions(level="INFO", format=log_format)):
        try:
            raise error
        except type(error):
            logging.getLogger("cordwood.test").exception("Cannot serve %s", "t-0")
    return "\n".join(lines).splitlines()


FULL = NoSpaceError("a/b.log: the file system is full")


def test_a_typed_error_is_one_line_without_a_trace() -> None:
    (line,) = lines_of(FULL, LogFormat.TEXT)
    assert line.endswith("ERROR Cannot serve t-0: a/b.log: the file system is full (cordwood.test)")
    (line,) = lines_of(FULL, LogFormat.JSON)
    assert json.loads(line)["message"] == "Cannot serve t-0: a/b.log: the file system is full"
    assert "error" not in json.loads(line)


def test_an_unexpected_exception_has_its_trace() -> None:
    first, *rest = lines_of(ZeroDivisionError("bug"), LogFormat.TEXT)
    assert first.endswith("ERROR Cannot serve t-0 (cordwood.test)")
    assert rest[0].startswith("Traceback")
    assert rest[-1] == "ZeroDivisionError: bug"
    (line,) = lines_of(ZeroDivisionError("bug"), LogFormat.JSON)
    assert "Traceback" in json.loads(line)["error"]


@pytest.mark.parametrize(
    ("level", "form"), [("LOUD", None), (None, "xml")], ids=["level", "format"]
)
def test_an_unknown_value_is_refused(level: str | None, form: str | None) -> None:
    with pytest.raises(ConfigError, match="expected"):
        parse_log_options(level, form, None)


def test_what_is_removed_of_a_directory_whose_name_is_not_utf_8_is_in_the_audit_log(
    tmp_path: Path,
) -> None:
    root = log_dir(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")), "x-0")
    file = tmp_path / "audit.log"
    options = ["clean", str(root), *EXPIRE, "--retention-only", "--yes", "--audit-log", str(file)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    lines = file.read_bytes().splitlines()
    assert lines
    assert all(b"caf\xe9" in line for line in lines)


def test_a_line_that_cannot_be_written_is_said_once_whatever_the_reason(tmp_path: Path) -> None:
    class Wordless:
        def __str__(self) -> str:
            raise ValueError("no words")

    said: list[str] = []
    with logging_to(said.append, LogOptions(file=tmp_path / "a.log")):
        for _ in range(2):
            logging.getLogger("cordwood.test").warning("%s", Wordless())
    assert said == [f"--log-file {tmp_path / 'a.log'}: lines are lost: ValueError('no words')"]
