"""`cordwood doctor`: what the machine and a log directory lack, and how to repair it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from cordwood.model.clock import SystemClock
from cordwood.surfaces.cli.command import FAILED, JsonOption, command, print_document
from cordwood.surfaces.cli.tables import output_width
from cordwood.surfaces.cli.values import parse_path
from cordwood.surfaces.doctor.checks import Finding, Verdict, diagnosis, examine
from cordwood.surfaces.doctor.gather import gather

_WIDTH: Final = 100
_INDENT: Final = 26

EPILOG = """\b
Examples:
  cordwood doctor
  cordwood doctor /var/lib/kafka/data
  sudo -u kafka cordwood doctor /var/lib/kafka/data --json

\b
Exit codes: 0 nothing hinders, though there may be warnings; 1 something does;
2 usage."""


@command("doctor")
def doctor_command(
    log_dir: Annotated[
        Path | None,
        typer.Argument(parser=parse_path, metavar="LOG_DIR", help="A broker's log directory."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what this machine and LOG_DIR lack for a broker and its cleanup, and how to repair it.

    Nothing is changed, and no lock is taken: a broker may run.
    """
    found = diagnosis(examine(gather(log_dir, clock=SystemClock())))
    if as_json:
        print_document(found)
    else:
        for line in lines(found.findings, output_width() or _WIDTH):
            typer.echo(line)
    if not found.ok:
        raise typer.Exit(FAILED)


def lines(findings: Sequence[Finding], width: int) -> list[str]:
    """The findings, none wider than `width`, and a count of each verdict."""
    shown = []
    for each in findings:
        head = f"{each.verdict!s:8} {each.subject:16} "
        shown += _wrapped(head, each.found, width)
        if each.remedy:
            shown += _wrapped(" " * (_INDENT - 3) + "-> ", each.remedy, width)
    counts = {verdict: sum(each.verdict is verdict for each in findings) for verdict in Verdict}
    shown.append(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    return shown


def _wrapped(head: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
