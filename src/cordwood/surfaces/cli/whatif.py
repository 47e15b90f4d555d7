"""`cordwood whatif`: what a changed setting would do to the logs of a directory."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer

from cordwood.cleanup.clean import offline_groups
from cordwood.cleanup.cleaner_settings import CleanerSettings
from cordwood.cleanup.request import CleanRequest
from cordwood.cleanup.run_directory import temporary_directory
from cordwood.cleanup.shared_retention import DirectoryLimits
from cordwood.cleanup.spark.session import cores_here
from cordwood.insight.compared_cleanings import (
    Compared,
    Comparison,
    compare,
)
from cordwood.insight.whatif import Outcome, Unread, cost_of, forecast, unread
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import ConfigError, CordwoodError, NotALogDirError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.storage.reread import reread
from cordwood.surfaces.cli.clean_engine import (
    CleanEngine,
    clean_display,
    parse_memory,
    require_master,
)
from cordwood.surfaces.cli.clean_progress import CleanProgress
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
from cordwood.surfaces.cli.setting_options import (
    ConfigFileOption,
    DefaultsOption,
    LogDirsArgument,
    MetadataDirOption,
    ServerPropertiesOption,
    SetOption,
    TopicsOption,
)
from cordwood.surfaces.cli.values import parse_time
from cordwood.surfaces.cli.whatif_answer import SIDES, Answer
from cordwood.surfaces.cli.whatif_tables import show_answer
from cordwood.surfaces.settings import SettingOptions, Settings, read_settings

_EXIT_FAILED, _EXIT_USAGE = 1, 2
_DAYS: Final = 7
_DAYS_MAX: Final = 366

EPILOG = """\b
Examples:
  cordwood whatif /var/lib/kafka/data --set clicks:retention.ms=86400000
  cordwood whatif /data1 /data2 --set log.retention.bytes=1073741824 --json
  cordwood whatif /var/lib/kafka/data --set users:cleanup.policy=compact

\b
Exit codes: 0 done; 1 a partition could not be read (the others are done);
2 usage."""


def whatif_command(
    context: typer.Context,
    log_dirs: LogDirsArgument,
    set_: SetOption = None,
    topic: TopicsOption = None,
    config_file: ConfigFileOption = None,
    server_properties: ServerPropertiesOption = None,
    metadata_dir: MetadataDirOption = None,
    defaults: DefaultsOption = False,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to clean at: ms or ISO 8601.")
    ] = None,
    days: Annotated[int, typer.Option(metavar="N", help="Days to look ahead.")] = _DAYS,
    no_groups: Annotated[
        bool, typer.Option("--no-groups", help="Do not look at consumer groups.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="For all Python processes together.")
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark master, or sc:// for Spark Connect.")
    ] = "local[*]",
    json_: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_file: LogFileOption = None,
) -> None:
    """Compare what a cleaning would do under the settings in force, and under changed ones.

    LOG_DIR is an entry of the broker's log.dirs, or one partition's directory in it; a broker may
    run on it. Nothing is written to it. --set gives the changed settings; all other options are
    those of `cordwood clean`.
    """
    screen = context.with_resource(Screen())
    try:
        log = LogOptions(level=log_level or LogLevel.WARN, format=log_format, file=log_file)
        context.with_resource(logging_to(screen.line, log))
        if not set_:
            raise ConfigError("nothing is changed: give a setting with --set [TOPIC:]KEY=VALUE")
        if not 0 <= days <= _DAYS_MAX:
            raise ConfigError(f"--days {days}: expected 0 to {_DAYS_MAX}")
        require_master(master)
        options = SettingOptions(
            log_dirs=log_dirs,
            config_file=config_file,
            server_properties=server_properties,
            metadata_dir=metadata_dir,
            defaults=defaults,
        )
        clock = SystemClock()
        asked = _Asked(
            options=options,
            changes=tuple(set_),
            topics=tuple(topic or ()),
            now_ms=clock.now_ms() if now is None else parse_time(now, option="--now"),
            days=days,
            groups=not no_groups,
        )
        with clean_display(screen, shown=not json_ and screen.is_terminal) as display:
            engine = CleanEngine(
                master=master,
                memory_bytes=parse_memory(memory),
                shared_dirs=[temporary_directory()],
                display=display,
                otherwise="A change of retention alone needs no Java.",
            )
            with closing(engine):
                answer = _answer(asked, engine, display, clock)
    except (ConfigError, NotALogDirError) as error:
        _stop(error, _EXIT_USAGE)
    except (CordwoodError, OSError) as error:
        _stop(error, _EXIT_FAILED)
    if json_:
        print(json.dumps(answer.to_json()))  # noqa: T201  # the JSON document is the output
    else:
        show_answer(answer, screen)
    if any(each.reason for each in answer.comparison.partitions):
        raise typer.Exit(_EXIT_FAILED)


def _stop(error: object, code: int) -> None:
    typer.echo(f"cordwood whatif: {error}", err=True)
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The question."""

    options: SettingOptions
    changes: tuple[str, ...]
    topics: tuple[str, ...]
    now_ms: int
    days: int
    groups: bool

    def settings(self, changes: tuple[str, ...]) -> Settings:
        """The settings with so many of the changes; a broker may be writing its metadata log."""
        return reread(lambda: read_settings(replace(self.options, set_options=changes)))

    def request(self, settings: Settings) -> CleanRequest:
        """The cleaning under these settings."""
        return CleanRequest(
            log_dirs=tuple(self.options.log_dirs),
            resolve=settings.resolve,
            now_ms=self.now_ms,
            topics=self.topics,
            named_topics=settings.named_topics,
            directory_limits=DirectoryLimits.of(settings.broker),
            producer_expiration_ms=settings.broker.producer_id_expiration_ms,
            dry_run=True,
        )


def _answer(asked: _Asked, engine: CleanEngine, display: CleanProgress, clock: Clock) -> Answer:
    before, after = asked.settings(()), asked.settings(asked.changes)
    now, then = asked.request(before), asked.request(after)
    comparison = compare(now, then, engine.factory(), clock=clock, listener=display)
    warnings = [*after.warnings, *comparison.warnings]
    answer = Answer(now_ms=asked.now_ms, days=asked.days, comparison=comparison, warnings=warnings)
    cleaners = {
        side: CleanerSettings.of(settings.broker)
        for side, settings in (("now", before), ("then", after))
    }
    for compared in comparison.partitions:
        _add_costs(answer, compared, cleaners)
        for side, view in (("now", compared.view), ("then", compared.then_view)):
            sizes = forecast(view, now_ms=asked.now_ms, days=asked.days) if asked.days else None
            if sizes is not None:
                answer.forecasts.setdefault(side, {})[compared.name] = sizes
    if asked.groups:
        answer.unread = _unread(now, comparison, display)
    return answer


def _add_costs(answer: Answer, compared: Compared, cleaners: dict[str, CleanerSettings]) -> None:
    for side in SIDES:
        outcome: Outcome | None = getattr(compared, side)
        if outcome is not None and outcome.bytes_read:
            view = compared.view
            keys = outcome.keys
            if keys is None:
                keys = view.log_end_offset - view.log_start_offset
            answer.costs.setdefault(side, {})[compared.name] = cost_of(
                outcome.bytes_read, keys, cores=cores_here(), cleaner=cleaners[side]
            )


def _unread(
    request: CleanRequest, comparison: Comparison, display: CleanProgress
) -> list[Unread] | None:
    """What groups lose where the log start offset moves; None if there are no groups to look at."""
    starts = {
        each.name: (each.view.log_start_offset, each.then.log_start_offset)
        for each in comparison.partitions
        if each.then is not None and each.then.offsets_gone > 0
    }
    if not starts:
        return []
    groups = offline_groups(request)
    if not groups.has_partitions:
        return None
    name = GROUP_METADATA_TOPIC
    done, total = 0, groups.size_bytes

    def progress(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        display.bytes_done(name, "reading", done, total)

    return unread(groups.read(progress), starts)
