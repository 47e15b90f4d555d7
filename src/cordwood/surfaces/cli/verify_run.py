"""The work of `cordwood verify`: checks with a progress bar, and what is shown of them.

It loads compiled code, which the command's help works without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from cordwood.cleanup.erasure.check import check_erasure
from cordwood.cleanup.verification.copies import compare_copies
from cordwood.cleanup.verification.directories import (
    NOT_CHECKED,
    CheckedLog,
    Verification,
    VerificationProgress,
    verify,
)
from cordwood.cleanup.verification.findings import Finding, Level, Rule
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import SystemClock
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.queries.verification import checked_erasure, verified
from cordwood.storage.reread import reread
from cordwood.surfaces.cli.answer_notes import show_notes
from cordwood.surfaces.cli.command import print_document
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes
from cordwood.surfaces.cluster_facts import ClusterFacts


def check_logs(
    log_dirs: Sequence[Path],
    topics: tuple[str, ...],
    screen: Screen,
    *,
    is_cleaning: bool,
    set_options: Sequence[str] = (),
    as_json: bool,
) -> Verification:
    """Checks log directories, or two copies of one, and prints the result.

    Raises:
        ConfigError, NotALogDirError: a directory is none, or no topic has a name that was given.
        CordwoodError, OSError: a directory cannot be read.
    """
    with _progress(screen, shown=not as_json and screen.is_terminal) as progress:
        clock = SystemClock()
        if is_cleaning:
            before, after = log_dirs
            config_of = _settings_in(before, set_options)
            result = compare_copies(
                before,
                after,
                topics=topics,
                clock=clock,
                config_of=config_of,
                progress=progress,
            )
        else:
            facts = ClusterFacts(log_dirs, lambda text: screen.line(text, style="yellow"))
            result = verify(
                log_dirs, topics=topics, clock=clock, facts_of=facts.of, progress=progress
            )
    if as_json:
        print_document(verified(result))
    else:
        _show(result, screen)
    return result


def _settings_in(log_dir: Path, set_options: Sequence[str]) -> Callable[[str], LogConfig | None]:
    """The settings of each topic: as the directory's metadata log or options say.

    Raises:
        ConfigError, CorruptError: the settings cannot be read.
    """
    options = SettingOptions(log_dirs=[log_dir], set_options=set_options, defaults=True)
    settings = reread(lambda: read_settings(options))

    def of(topic: str) -> LogConfig | None:
        resolved = settings.resolve(topic)
        return None if resolved is None else resolved.config

    return of


def check_report(
    report: Path, log_dirs: Sequence[Path], public_key: str | None, *, as_json: bool
) -> bool:
    """Checks a report of an erasure, and prints the result; whether nothing failed.

    Raises:
        CordwoodError, OSError: the report cannot be read.
    """
    answer = checked_erasure(check_erasure(report, log_dirs, public_key=public_key))
    if as_json:
        print_document(answer)
    else:
        table = (Column("subject"), Column("verdict"), Column("text", is_prose=True))
        rows = [[each.subject, str(each.verdict), each.text] for each in answer.findings]
        print_table("Checked", table, rows)
        print_text("the check failed" if answer.failed else "the check passed")
    return not answer.failed


class _Bar(VerificationProgress):
    """Shows how many bytes have been checked."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._row = progress.add_task("verifying", total=None)

    def begin(self, total_bytes: int) -> None:
        """Sets the length of the bar."""
        self._progress.update(self._row, total=total_bytes)

    def advance(self, name: str, size_bytes: int) -> None:
        """Moves the bar, with the name of the log."""
        self._progress.update(self._row, advance=size_bytes, description=f"verifying {name}")


@contextmanager
def _progress(screen: Screen, *, shown: bool) -> Iterator[VerificationProgress]:
    if not shown:
        yield VerificationProgress()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with screen.bars(*columns, transient=True) as bars:
        yield _Bar(bars)


_COLUMNS = (
    Column("partition"),
    Column("rule"),
    Column("file"),
    Column("byte", is_number=True),
    Column("offset", is_number=True),
    Column("what is wrong", is_prose=True),
)


#: A running broker may have hundreds: how many there are is said, and not which.
_COUNTED = frozenset({Rule.DELETED_FILE})


def _show(result: Verification, screen: Screen) -> None:
    show_notes(screen, in_use=result.in_use)
    for log_dir in result.unsettled:
        screen.line(f"{log_dir}: not checked: {'; '.join(NOT_CHECKED)}")
    rows = [_row("", finding) for finding in result.findings]
    rows += [
        _row(str(log.partition), each)
        for log in result.logs
        for each in log.findings
        if each.rule not in _COUNTED
    ]
    if rows:
        print_table("Findings", _COLUMNS, rows)
    for log in result.logs:
        if log.skipped:
            screen.line(f"{log.partition}: not checked: {log.skipped}")
        if log.unlisted:
            screen.line(f"{log.partition}: {log.unlisted:,} findings more are not shown")
    _show_remedies(result)
    print_text(_summary(result))


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
    """Prints remedies, once for each rule, in the order of the findings."""
    findings = [*result.findings, *(each for log in result.logs for each in log.findings)]
    for rule, count in Counter(each.rule for each in findings).items():
        of = ""
        if rule in _COUNTED:
            logs = sum(any(each.rule is rule for each in log.findings) for log in result.logs)
            of = f" {counted(count, 'file')} of {counted(logs, 'partition')}."
        print_text(f"{rule.code} ({rule.level}):{of} {rule.remedy}.")


def _summary(result: Verification) -> str:
    checked = [log for log in result.logs if log.facts]
    records = sum(log.facts.records for log in checked if log.facts)
    rate = f", {format_bytes(int(result.size_bytes / result.elapsed_s))}/s" if checked else ""
    read = (
        f"{counted(len(checked), 'partition')}, {records:,} records, "
        f"{format_bytes(result.size_bytes)} in {result.elapsed_s:.1f} s{rate}"
    )
    damaged = [log for log in result.logs if not _is_sound(log)]
    if result.is_sound:
        return f"sound: {read}"
    words = [counted(len(damaged), "partition") + " damaged"] if damaged else []
    if any(each.rule.level is Level.DAMAGED for each in result.findings):
        words.append("a checkpoint is damaged")
    return f"{', '.join(words)}; {read}"


def _is_sound(log: CheckedLog) -> bool:
    return not any(each.rule.level is Level.DAMAGED for each in log.findings)
