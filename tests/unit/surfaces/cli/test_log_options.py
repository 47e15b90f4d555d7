"""What a command logs, and how."""

from __future__ import annotations

import json
import logging

import pytest

from cordwood.model.errors import ConfigError, NoSpaceError
from cordwood.surfaces.cli.log_options import (
    LogFormat,
    LogOptions,
    logging_to,
    parse_log_options,
)


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
