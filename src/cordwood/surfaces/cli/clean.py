"""`cordwood clean`: what Kafka's own cleaner and retention would do to a stopped broker's logs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from cordwood.cleanup.engine.run_directory import temporary_directory
from cordwood.cleanup.plan.attempt import Limits
from cordwood.cleanup.plan.emptied import Emptied
from cordwood.cleanup.plan.report import Report
from cordwood.cleanup.plan.request import CleaningOrder, CleanRequest
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.clean import clean, require_cleanable
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import (
    ConfigError,
    CordwoodError,
    DirectoryInUseError,
)
from cordwood.queries.cleaning import cleaning_of
from cordwood.queries.settings import SettingOptions, Settings, read_settings
from cordwood.storage.filesystem import OS
from cordwood.storage.reread import reread
from cordwood.surfaces.cli.apply_erasures import apply_erasures
from cordwood.surfaces.cli.biggest import TOP, AllOption, Choice, TopOption, sort_option
from cordwood.surfaces.cli.clean_engine import (
    CleanEngine,
    clean_display,
    parse_memory,
    require_master,
)
from cordwood.surfaces.cli.clean_estimate import estimator_for
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.cli.clean_tables import SORTS, show_report
from cordwood.surfaces.cli.command import (
    FAILED,
    IN_USE,
    JsonOption,
    SettingSourceOptions,
    command,
    print_document,
)
from cordwood.surfaces.cli.failure import fail
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import (
    LogDirsArgument,
    TopicsOption,
)
from cordwood.surfaces.cli.setting_values import shown_sizes
from cordwood.surfaces.cli.stopping import STOPPING
from cordwood.surfaces.cli.textfile import (
    METRICS_TEXTFILE,
    MetricsTextfileOption,
    RunMetrics,
    textfile_metrics,
)
from cordwood.surfaces.cli.values import parse_path, parse_size, parse_time

_STOPPED: Final = {
    True: "nothing was changed",
    False: "replaced segments are kept, the next run continues",
}
"""What a signal leaves behind, by whether it is a dry run."""
_UNCHANGED: Final = "nothing was changed"
_ONLY_ERASED: Final = "nothing was changed but by --apply-erasures"
_IN_USE_ADVICE = "stop that process first, or look with --dry-run"

EPILOG = """\b
Examples:
  cordwood clean /var/lib/kafka/data --dry-run
  cordwood clean /var/lib/kafka/data --server-properties /etc/kafka/server.properties
  cordwood clean /var/lib/kafka/data --dry-run --exact
  cordwood clean /var/lib/kafka/data --dry-run --no-estimate
  cordwood clean /data1 /data2 --server-properties /etc/kafka/server.properties
  cordwood clean ./backup --topic 'orders*' --set orders:cleanup.policy=compact
  cordwood clean /var/lib/kafka/data --retention-only --trash /mnt/spare/trash

\b
Exit codes: 0 done or nothing to do; 1 a partition failed (the others are
done); 2 usage; 3 a directory is in use."""


@command("clean", audit=True)
def clean_command(
    context: typer.Context,
    log_dirs: LogDirsArgument,
    topic: TopicsOption = None,
    *,
    sources: SettingSourceOptions,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to clean at: ms or ISO 8601.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, write nothing; a broker may run.")
    ] = False,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="With --dry-run: measure what compaction would free."),
    ] = False,
    no_estimate: Annotated[
        bool,
        typer.Option(
            "--no-estimate",
            help="With --dry-run: read no records to estimate what compaction would free.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Compact whatever the dirty ratio is.")
    ] = False,
    retention_only: Annotated[
        bool, typer.Option("--retention-only", help="No compaction, and no Java.")
    ] = False,
    compaction_only: Annotated[
        bool, typer.Option("--compaction-only", help="No retention.")
    ] = False,
    trash: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="DIR",
            help="Move removed files here instead of deleting them.",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Empty topics of what looks like an archive without asking."),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Compare every rewritten segment with its source before it counts."
        ),
    ] = False,
    apply_erasures: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="FILE",
            help="First erase again what this ledger of `cordwood erase` has.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="For all Python processes together.  [default: 512MiB a core, at least 1GiB]",
        ),
    ] = None,
    max_extra_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Extra disk space a rewrite may take.")
    ] = None,
    max_bytes_read: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What compactions may read together, best first."),
    ] = None,
    throttle: Annotated[
        str | None, typer.Option(metavar="RATE", help="Bytes read per second, such as 50M.")
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark master, or sc:// for Spark Connect.")
    ] = "local[*]",
    sort: Annotated[str, sort_option("partitions", SORTS)] = SORTS[0],
    top: TopOption = TOP,
    all_: AllOption = False,
    as_json: JsonOption = False,
    metrics_textfile: MetricsTextfileOption = None,
) -> None:
    """Clean the log directories of a stopped Kafka broker, as its own cleaner would.

    LOG_DIR is an entry of the broker's log.dirs, or one partition's directory in it.

    Retention by log start offset, size and time; then compaction, on Spark; then retention again
    until nothing changes. Settings come from the metadata log in LOG_DIR, server.properties and the
    options here, at Kafka's own levels. A topic that no source describes is left alone. Where the
    broker's retention decides, --server-properties has to name its file.
    """
    STOPPING.command("cordwood clean", note=_STOPPED[dry_run], ends_processes=True)
    screen = context.with_resource(Screen())
    shown = not as_json and screen.is_terminal
    confirm = _Confirmation(is_given=yes or trash is not None, may_ask=shown)
    choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
    clock = SystemClock()
    metrics = context.with_resource(
        _metrics(metrics_textfile, log_dirs, clock, screen, dry_run=dry_run)
    )
    settings = _settings_of(replace(sources, log_dirs=log_dirs), dry_run=dry_run)
    require_master(master)
    request = CleanRequest(
        log_dirs=tuple(log_dirs),
        resolve=settings.resolve,
        now_ms=clock.now_ms() if now is None else parse_time(now, option="--now"),
        topics=tuple(topic or ()),
        named_topics=settings.named_topics,
        directory_limits=DirectoryLimits.of(settings.broker),
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        metadata_version=settings.metadata_version,
        order=CleaningOrder(settings.broker.cordwood_cleaner_order),
        dry_run=dry_run,
        measured=exact,
        force=force,
        retention=not compaction_only,
        compaction=not retention_only,
        limits=Limits(
            space_max=_size_of(max_extra_bytes, "--max-extra-bytes"),
            throttle_bytes=_size_of(throttle, "--throttle"),
            verify=verify,
        ),
        bytes_read_max=_size_of(max_bytes_read, "--max-bytes-read"),
        stages_in_archive=not master.startswith("local"),
        trash=trash,
    )
    _require_sensible(request, no_estimate=no_estimate)
    try:
        report = _cleaned(
            request,
            clock,
            screen,
            ledger=apply_erasures,
            master=master,
            memory_bytes=parse_memory(memory),
            estimates=not no_estimate,
            confirm=confirm,
        )
    except DirectoryInUseError as error:
        fail("clean", f"{error} {confirm.unchanged.capitalize()}: {_IN_USE_ADVICE}", IN_USE)
    metrics.result, metrics.is_success = report, not report.failed
    _end(report, settings.warnings, screen, choice, as_json=as_json)


def _shared_dirs(request: CleanRequest) -> list[Path]:
    """The directories that workers must see.

    Tasks of a measurement write to a scratch directory alone, those of an archive to object
    storage.
    """
    if request.measured:
        return [temporary_directory()]
    return [each for each in request.log_dirs if not OS.is_mounted(each)]


def _settings_of(options: SettingOptions, *, dry_run: bool) -> Settings:
    """The settings; those by which something is removed have to be all. Raises as `clean`."""
    if dry_run:  # a broker that runs may be writing to its metadata log
        return reread(lambda: read_settings(options))
    settings = read_settings(options)
    settings.require_known()
    return settings


def _cleaned(
    request: CleanRequest,
    clock: Clock,
    screen: Screen,
    *,
    ledger: Path | None,
    master: str,
    memory_bytes: int,
    estimates: bool,
    confirm: _Confirmation,
) -> Report:
    """The report of the cleaning, with its engine. Raises as `clean`."""
    with clean_display(screen, shown=confirm.may_ask) as display:
        confirm.display = display
        if ledger is not None and not request.dry_run:
            require_cleanable(request, clock=clock, confirm=confirm, listener=display)
        erased = apply_erasures(ledger, request, master, display)
        if ledger is not None and not request.dry_run:
            confirm.unchanged = _ONLY_ERASED
        engine = CleanEngine(
            master=master,
            memory_bytes=memory_bytes,
            shared_dirs=_shared_dirs(request),
            display=display,
        )
        with closing(engine):
            report = clean(
                request,
                engine.factory(),
                clock=clock,
                require_engine=engine.require,
                confirm=confirm,
                listener=display,
                estimator=estimator_for(display) if estimates else None,
            )
    report.engine = engine.facts
    report.warnings = [*erased, *report.warnings]
    return report


@dataclass(slots=True, kw_only=True)
class _Confirmation:
    """Asks before topics of what looks like an archive are emptied.

    `is_given` says that they may be, `may_ask` that somebody can be asked if standard input is a
    terminal, too; `display` is paused meanwhile. What is `agreed` is not asked for again.
    `unchanged` says what was done if the answer is no.
    """

    is_given: bool
    may_ask: bool
    unchanged: str = _UNCHANGED
    display: CleanProgress = field(default_factory=lambda: CleanProgress(None))
    agreed: set[str] = field(default_factory=set)

    def __call__(self, emptied: Emptied) -> None:
        """Returns if the topics may be emptied.

        Raises:
            ConfigError: nobody can be asked.
            CordwoodError: the answer is no.
        """
        if self.is_given or self.agreed.issuperset(emptied.topics):
            return
        what = shown_sizes(str(emptied))
        if not self.may_ask or not sys.stdin.isatty():
            raise ConfigError(
                f"{what}. {self.unchanged.capitalize()}: --now TIME cleans at another moment, "
                "--trash DIR keeps what is removed, and --yes removes it"
            )
        with self.display.paused():
            typer.echo(f"cordwood clean: {what}. With --trash DIR it could be put back.", err=True)
            if not typer.confirm("Remove these records for good?", err=True):
                raise CordwoodError(self.unchanged)
        self.agreed.update(emptied.topics)


def _metrics(
    file: Path | None, log_dirs: Sequence[Path], clock: Clock, screen: Screen, *, dry_run: bool
) -> AbstractContextManager[RunMetrics]:
    """The context that writes metrics of the run; raises ConfigError."""
    if file is not None and dry_run:
        raise ConfigError(f"{METRICS_TEXTFILE} is for a cleaning, and --dry-run cleans nothing")
    return textfile_metrics("clean", file, log_dirs, clock=clock, screen=screen)


def _require_sensible(request: CleanRequest, *, no_estimate: bool) -> None:
    """Checks options that depend on each other; raises ConfigError."""
    if not request.retention and not request.compaction:
        raise ConfigError("--retention-only and --compaction-only exclude each other")
    if request.measured and not request.dry_run:
        raise ConfigError("--exact says how --dry-run measures: use both, or neither")
    if no_estimate and (request.measured or not request.dry_run):
        raise ConfigError("--no-estimate is for --dry-run without --exact: nothing else estimates")


def _size_of(text: str | None, option: str) -> int | None:
    return None if text is None else parse_size(text, option=option)


def _end(
    report: Report, warnings: Sequence[str], screen: Screen, choice: Choice, *, as_json: bool
) -> None:
    """Shows the report, after warnings about settings; a partition that failed ends with 1."""
    report.warnings = [*warnings, *report.warnings]
    if as_json:
        print_document(cleaning_of(report))
    else:
        show_report(report, screen, choice)
    if report.failed:
        raise typer.Exit(FAILED)
