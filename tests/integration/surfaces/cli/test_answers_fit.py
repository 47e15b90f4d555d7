"""Screens of commands in a terminal of 80 and of 120 columns, and of a thousand partitions.

The screens are in `screens/`; `CORDWOOD_SCREENS=write` in the environment writes them again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from support.golden import Golden
from support.in_terminal import in_terminal
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

SCREENS = Path(__file__).parent / "screens"
DISK = re.compile(r"  disk of .*\n(?:    .*\n)?")
SECONDS = re.compile(r"(?<=estimated in )\d+\.\d s\b")

#: The arguments by the name of the screen, without the directory and the moment.
COMMANDS: dict[str, tuple[str, ...]] = {
    "log-dir": (),
    "explain": ("explain",),
    "explain-segments": ("explain", "--topic", "compact-and-delete"),
    "clean-dry-run": ("clean", "--dry-run"),
    "whatif": ("whatif", "--set", "*:retention.ms=1d", "--estimate", "--no-groups"),
    "advise": ("advise",),
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_is_as_it_was_reviewed(golden_a: Golden, name: str, columns: int) -> None:
    command, options = COMMANDS[name][:1], COMMANDS[name][1:]
    arguments = [*command, "before", "--now", golden_a.cleaned_at_ms, *options]
    shown = in_terminal(arguments, columns=columns, cwd=golden_a.root)
    assert shown.code == 0, shown
    assert max(map(len, shown.lines)) <= columns
    text = "\n".join(line.rstrip() for line in shown.lines) + "\n"
    text = DISK.sub("  disk of SIZE\n", SECONDS.sub("0.0 s", text))
    file = SCREENS / f"{name}-{columns}.txt"
    if os.environ.get("CORDWOOD_SCREENS") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with 1,000 empty partitions."""
    logs = [LogBuilder(f"events-{number}") for number in range(1000)]
    return write_log_dir(tmp_path_factory.mktemp("thousand") / "logs", logs)


@pytest.mark.parametrize(
    ("arguments", "lines_max"), [(["explain"], 40), (["clean", "--dry-run", "--retention-only"], 5)]
)
def test_a_thousand_empty_partitions_take_a_screen(
    thousand: Path, arguments: Sequence[str], lines_max: int
) -> None:
    command, *options = arguments
    words = [command, str(thousand), "--defaults", "--now", str(NOW_MS), *options]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
    assert len(lines) <= lines_max, result.output
    if command == "explain":
        assert "\n980 more " in result.stdout
        everything = CliRunner().invoke(app, [*words, "--all"]).stdout
        assert "events-999" in everything
        assert len(everything.splitlines()) > 1000


def test_partitions_of_which_the_same_is_to_be_said_share_a_line(thousand: Path) -> None:
    words = ["explain", str(thousand), "--now", str(NOW_MS)]
    result = CliRunner().invoke(app, words)
    said = "events-0, events-1, events-10 and 997 more: left alone: no source describes"
    assert result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) == 1
