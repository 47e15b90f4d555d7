"""Stock clients that are programs: what is missing, and who ends early."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.built_programs import ProgramUnavailableError
from support.stock_clients import program
from support.stock_clients.availability import nothing_missing
from support.stock_clients.base import (
    NoOffsetError,
    Start,
    StockClientError,
    StockRecord,
    TopicExistsError,
    record_from_json,
    record_to_json,
)

# Answers each job by its topic.
PROGRAM = """
import json, os, sys
for line in sys.stdin:
    topic = json.loads(line)["topic"]
    if topic == "ends":
        sys.exit(1)
    if topic == "ends amid":
        os.write(1, b'{"ok"')
        sys.exit(1)
    answer = {"error": topic, "message": "so"} if topic != "fine" else {"ok": []}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def client() -> program.ProgramClient:
    command = [sys.executable, "-c", PROGRAM]
    return program.ProgramClient("nowhere", command, name="test", lacks={}, cannot_write={})


def test_a_record_goes_through_json_and_back() -> None:
    record = StockRecord(b"\xff\x00", None, (("a", b""), ("a", None)), 5)
    told = record_to_json(record) | {"offset": 7}
    assert record_from_json(told) == record._replace(offset=7)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("no_offset", NoOffsetError),
        ("topic_exists", TopicExistsError),
        ("other", StockClientError),
        ("ends", StockClientError),
        ("ends amid", StockClientError),
    ],
)
def test_what_a_program_complains_of_is_raised_and_the_next_job_is_done(
    told: str, kind: type[Exception], client: program.ProgramClient
) -> None:
    with pytest.raises(kind):
        client.consume(told, Start("earliest"), 1)
    assert client.consume("fine", Start("earliest"), 1) == []
    client.close()


def test_without_its_tools_a_client_is_not_to_be_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramUnavailableError, match="install Go"):
        program.go_client("nowhere")
    with pytest.raises(ProgramUnavailableError, match="install Node"):
        program.js_client("nowhere")
    with pytest.raises(ProgramUnavailableError, match="install a JDK"):
        program.streams_command("WordCount")


def test_a_client_that_is_not_to_be_had_is_skipped_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="NOT CHECKED: no such"), nothing_missing():
        raise ProgramUnavailableError("no such")


def test_a_client_that_is_not_to_be_had_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="NOT CHECKED: no such"), nothing_missing():
        raise ProgramUnavailableError("no such")
