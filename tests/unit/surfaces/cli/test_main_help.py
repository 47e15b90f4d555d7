"""Common parts of every command: help with examples, options of the log, completion."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from support.in_terminal import in_terminal
from support.ports import free_port

OWN = (
    "advise",
    "archive",
    "clean",
    "cleaner",
    "clock",
    "docs",
    "doctor",
    "erase",
    "explain",
    "hold",
    "restore",
    "serve",
    "table",
    "sql",
    "trash",
    "verify",
    "whatif",
)
TOOLS = (
    *("broker-api-versions", "cluster", "configs", "console-consumer", "console-producer"),
    *("consumer-groups", "delete-records", "features", "get-offsets", "groups", "log-dirs"),
    *("metadata-quorum", "storage", "topics", "transactions"),
)
COMMANDS = (*OWN, *TOOLS, "dump-log")
#: Types by Python's or click's names, which say nothing about what is expected.
UNREADABLE = re.compile(r"\b(TEXT|INTEGER|FLOAT|PATH|RANGE|BOOLEAN)\b|<\w+|list\[")


def cordwood(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cordwood", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The tools write to the process's own standard output, the others to the runner's."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output + capsys.readouterr().out


LISTED = re.compile(r"(?m)^  ([a-z-]+)  +(\S.*)")


def test_all_commands_are_listed_by_what_they_are_for() -> None:
    listed = CliRunner().invoke(app, ["--help"]).stdout.partition("Options:")[2]
    groups = re.split(
        r"(?m)^(Look|Clean|Run|Test|Kafka's tools):$", listed.partition("Examples:")[0]
    )
    found = {
        title: [name for name, _ in LISTED.findall(text)]
        for title, text in zip(groups[1::2], groups[2::2], strict=True)
    }
    assert list(found) == ["Look", "Clean", "Run", "Test", "Kafka's tools"]
    assert sorted(name for names in found.values() for name in names) == sorted(COMMANDS)
    assert {"explain", "whatif", "advise"} < set(found["Look"])
    assert found["Kafka's tools"] == sorted([*TOOLS, "dump-log"])


def test_the_list_says_what_each_command_does_on_one_line() -> None:
    listed = CliRunner().invoke(app, ["--help"]).stdout.partition("\nLook:")[2]
    summaries = [text for _, text in LISTED.findall(listed.partition("Examples:")[0])]
    assert len({*summaries}) == len(COMMANDS)
    assert not any("..." in text for text in summaries)
    assert "  topics               List, describe, create, alter and delete topics.\n" in listed


@pytest.mark.parametrize("columns", [80, 120])
def test_without_a_command_all_are_on_one_screen(columns: int) -> None:
    shown = in_terminal([], columns=columns, rows=24)
    assert shown.code == 0, shown
    assert len(shown.lines) < 24
    assert max(map(len, shown.lines)) <= 80
    words = set(re.findall(r"[a-z-]+", "\n".join(shown.lines)))
    assert set(COMMANDS) <= words


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("tpoics", "No such command 'tpoics'. Did you mean 'topics'?"),
        ("consumergroups", "Did you mean 'consumer-groups'?"),
        ("clean-log", "Did you mean 'clean'?"),
        ("xyz", "No such command 'xyz'. `cordwood -h` lists all."),
    ],
)
def test_a_mistyped_command_is_answered_with_the_one_meant(typed: str, advice: str) -> None:
    result = CliRunner().invoke(app, [typed])
    assert result.exit_code == 2
    assert advice in result.output


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_a_short_form_and_examples_and_names_what_is_expected(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    words = [command] if command else []
    text = help_of(capsys, *words, "--help")
    assert help_of(capsys, *words, "-h") == text
    assert "Examples:" in text
    assert f"cordwood {command}".strip() in text.partition("Examples:")[2]
    options = text.partition("Options:")[2].partition("Examples:")[0]
    assert not UNREADABLE.search(options), options
    assert "Default ." not in options
    if command:
        assert all(f"--log-{each}" in options for each in ("level", "format", "file"))


def completed(*words: str) -> list[str]:
    line = " ".join(["cordwood", *words])
    environment = {
        "_CORDWOOD_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
    }
    program = "from cordwood.surfaces.cli.main import app; app(prog_name='cordwood')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["cl"], ["clean", "cleaner", "clock", "cluster"]),
        (["clean", "--ret"], ["--retention-only"]),
        (["topics", "--re"], ["--replica-assignment", "--replication-factor"]),
        (["storage", "--rel"], ["--release-version"]),
    ],
)
def test_a_shell_completes_commands_and_their_options(
    words: Sequence[str], offered: Sequence[str]
) -> None:
    assert sorted(completed(*words)) == sorted(offered)


def test_completion_can_be_installed() -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    assert "--install-completion" in text
    assert "--show-completion" in text


# ---- what a command logs


def unreachable(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=100\n", encoding="utf-8")
    server = ["--bootstrap-server", f"127.0.0.1:{free_port()}", "--command-config", str(config)]
    return cordwood("topics", "--list", *server, *options)


def test_a_tool_logs_as_its_options_say(tmp_path: Path) -> None:
    said = unreachable(tmp_path).stderr
    assert re.search(r"^\[.*\] WARN \[AdminClient .* \(org\.apache\.kafka\.clients\.", said)
    assert "WARN" not in unreachable(tmp_path, "--log-level", "error").stderr
    line = unreachable(tmp_path, "--log-format", "json").stderr.splitlines()[0]
    assert json.loads(line)["level"] == "WARN"
    file = tmp_path / "log"
    assert "WARN" not in unreachable(tmp_path, "--log-file", str(file)).stderr
    assert " WARN " in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["topics", "--list", "--bootstrap-server", "h:1", "--log-level", "loud"], 1),
        (["dump-log", "--files", "x.log", "--log-format", "xml"], 1),
        (["clock", "--log-dir", ".", "--log-level", "loud"], 2),
        (["serve", "--log-dir", "/x", "--log-file", "/no/such/dir/log"], 2),
    ],
)
def test_an_option_of_the_log_that_is_none_is_a_usage_error(
    arguments: Sequence[str], code: int
) -> None:
    done = cordwood(*arguments)
    assert done.returncode == code, done.stderr
    assert "--log-" in done.stderr
    assert "Traceback" not in done.stderr
