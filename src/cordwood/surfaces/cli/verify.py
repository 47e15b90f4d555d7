"""`cordwood verify`: checks every invariant of logs on disk, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from cordwood.cleanup.verification.copies import compare_copies
from cordwood.cleanup.verification.directories import CheckedLog, Verification, Watch, verify
from cordwood.cleanup.verification.findings import Finding, Level
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError, CordwoodError, NotALogDirError
from cordwood.model.extras import NATIVE, require_extra
from cordwood.surfaces.cli.entry import os_error_text
from cordwood.surfaces.cli.log_options import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    LogOptions,
    logging_to,
)
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import OptionalLogDirsArgument
from cordwood.surfaces.cli.stopping import STOPPING
from cordwood.surfaces.cli.tables import Column, print_table
from cordwood.surfaces.cli.values import format_bytes, parse_path

_EXIT_DAMAGED, _EXIT_USAGE = 1, 2

EPILOG = """\b
Examples:
  cordwood verify /var/lib/kafka/data
  cordwood verify /data1 /data2 --topic 'orders*' --json
  cordwood verify ./backup/orders-0
  cordwood verify --cleaning ./before ./after
  cordwood verify --erasure erasure.json /var/lib/kafka/data

\b
Exit codes: 0 sound; 1 something is damaged, or cannot be read; 2 usage."""


def verify_command(
    context: typer.Context,
    log_dirs: OptionalLogDirsArgument = None,
    cleaning: Annotated[
        bool,
        typer.Option(
            "--cleaning", help="Compare two log directories, BEFORE and AFTER a cleaning."
        ),
    ] = False,
    erasure: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path, metavar="REPORT", help="Check a report of `cordwood erase`."
        ),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="With --erasure: who must have signed the report."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="GLOB", help="Only these topics.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
) -> None:
    """Check logs on disk: batches, records, indexes, snapshots, leader epochs, checkpoints.

    LOG_DIR is an entry of the broker's log.dirs, or one partition's directory in it. Nothing is
    changed or locked; a broker may run, and its logs are then looked at as they are at one moment.

    With --cleaning, two copies of a log directory are compared as consumers see them: nothing is
    invented or changed, the newest value of each key is kept, and transactions end alike.

    With --erasure, a report is checked against LOG_DIR, or where it says: its signature, the hashes
    of files, and that no erased offset is there.

    A finding names the file, the byte in it, the offset, the rule that is broken, and what to do.
    """
    STOPPING.command("cordwood verify", note="nothing was changed")
    screen = context.with_resource(Screen())
    try:
        log = LogOptions(level=log_level or LogLevel.WARN, format=log_format, file=log_file)
        context.with_resource(logging_to(screen.line, log))
        if erasure is not None:
            _check_erasure(erasure, log_dirs or [], public_key, json_=json_)
            return
        if public_key is not None:
            raise ConfigError("--public-key needs --erasure")
        if not log_dirs:
            raise ConfigError("name at least one LOG_DIR")
        with _watch(screen, shown=not json_ and screen.is_terminal) as watch:
            topics, clock = tuple(topic or ()), SystemClock()
            if cleaning:
                before, after = _two(log_dirs)
                result = compare_copies(before, after, topics=topics, clock=clock, watch=watch)
            else:
                result = verify(log_dirs, topics=topics, clock=clock, watch=watch)
    except (ConfigError, NotALogDirError) as error:
        _stop(str(error), _EXIT_USAGE)
    except CordwoodError as error:
        _stop(str(error), _EXIT_DAMAGED)
    except OSError as error:
        _stop(os_error_text(error), _EXIT_DAMAGED)
    if json_:
        typer.echo(json.dumps(result.to_json()))
    else:
        _show(result, screen)
    if not result.is_sound:
        raise typer.Exit(_EXIT_DAMAGED)


def _check_erasure(
    report: Path, log_dirs: list[Path], public_key: str | None, *, json_: bool
) -> None:
    """Prints what the check of a report finds; ends the command if it fails."""
    require_extra(NATIVE, what="cordwood verify --erasure")
    # It loads compiled code, which --help works without.
    from cordwood.cleanup.erasure.check import Verdict, check_erasure  # noqa: PLC0415

    findings = check_erasure(report, log_dirs, public_key=public_key)
    failed = any(each.verdict is Verdict.FAILED for each in findings)
    if json_:
        value = {"failed": failed, "findings": [each.to_json() for each in findings]}
        typer.echo(json.dumps(value))
    else:
        table = (Column("subject"), Column("verdict"), Column("text", is_prose=True))
        rows = [[each.subject, str(each.verdict), each.text] for each in findings]
        print_table("Checked", table, rows)
        typer.echo("the check failed" if failed else "the check passed")
    if failed:
        raise typer.Exit(_EXIT_DAMAGED)


def _two(log_dirs: list[Path]) -> tuple[Path, Path]:
    """BEFORE and AFTER.

    Raises:
        ConfigError: there are more, or fewer.
    """
    if len(log_dirs) != 2:
        raise ConfigError(
            f"--cleaning takes two directories, BEFORE and AFTER, not {len(log_dirs)}"
        )
    return log_dirs[0], log_dirs[1]


def _stop(reason: str, code: int) -> NoReturn:
    typer.echo(f"cordwood verify: {reason}", err=True)
    raise typer.Exit(code)


class _Bar(Watch):
    """Shows how many bytes have been checked."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._row = progress.add_task("verifying", total=None)

    def begin(self, total_bytes: int) -> None:
        """As `Watch.begin`."""
        self._progress.update(self._row, total=total_bytes)

    def advance(self, name: str, size_bytes: int) -> None:
        """As `Watch.advance`."""
        self._progress.update(self._row, advance=size_bytes, description=f"verifying {name}")


@contextmanager
def _watch(screen: Screen, *, shown: bool) -> Iterator[Watch]:
    if not shown:
        yield Watch()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with screen.bars(*columns, transient=True) as progress:
        yield _Bar(progress)


_COLUMNS = (
    Column("partition"),
    Column("rule"),
    Column("file"),
    Column("byte", is_number=True),
    Column("offset", is_number=True),
    Column("what is wrong", is_prose=True),
)


def _show(result: Verification, screen: Screen) -> None:
    for each in result.in_use:
        screen.line(
            f"process {each['pid']} uses {each['log_dir']}, a running broker or a cleaning: "
            "this is a snapshot of its files at one moment",
            style="yellow",
        )
    rows = [_row("", finding) for finding in result.findings]
    rows += [_row(str(log.partition), each) for log in result.logs for each in log.findings]
    if rows:
        print_table("Findings", _COLUMNS, rows)
    for log in result.logs:
        if log.skipped:
            screen.line(f"{log.partition}: not checked: {log.skipped}")
        if log.left_out:
            screen.line(f"{log.partition}: {log.left_out:,} findings more are not shown")
    _show_remedies(result)
    typer.echo(_summary(result))


def _row(name: str, finding: Finding) -> list[str]:
    return [
        name or Path(finding.path).parent.name,
        finding.rule.code,
        Path(finding.path).name,
        "" if finding.position is None else f"{finding.position:,}",
        "" if finding.offset is None else f"{finding.offset:,}",
        finding.reason,
    ]


def _show_remedies(result: Verification) -> None:
    """What to do, once for each rule, in the order of the findings."""
    findings = [*result.findings, *(each for log in result.logs for each in log.findings)]
    for rule in dict.fromkeys(each.rule for each in findings):
        typer.echo(f"{rule.code} ({rule.level}): {rule.remedy}.")


def _summary(result: Verification) -> str:
    checked = [log for log in result.logs if log.facts]
    records = sum(log.facts.records for log in checked if log.facts)
    rate = f", {format_bytes(int(result.size_bytes / result.elapsed_s))}/s" if checked else ""
    read = (
        f"{_count(len(checked), 'partition')}, {records:,} records, "
        f"{format_bytes(result.size_bytes)} in {result.elapsed_s:.1f} s{rate}"
    )
    damaged = [log for log in result.logs if not _is_sound(log)]
    if result.is_sound:
        return f"sound: {read}"
    words = [_count(len(damaged), "partition") + " damaged"] if damaged else []
    if any(each.rule.level is Level.DAMAGED for each in result.findings):
        words.append("a checkpoint is damaged")
    return f"{', '.join(words)}; {read}"


def _is_sound(log: CheckedLog) -> bool:
    return not any(each.rule.level is Level.DAMAGED for each in log.findings)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
