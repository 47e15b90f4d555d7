"""`cordwood whatif`: what a changed setting would do to the next cleaning, before it is changed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cleanup.engine.run_directory import temporary_directory
from cordwood.cleanup.engine.spark.machine import has_java
from cordwood.model.errors import ConfigError
from cordwood.model.extras import NATIVE, SPARK, missing_packages, require_extra
from cordwood.queries.brokers import find_brokers
from cordwood.queries.whatif.answer import WhatIf
from cordwood.queries.whatif.question import DAYS, DAYS_MAX, WhatIfQuestion, merged
from cordwood.surfaces.cli.biggest import TOP, AllOption, Choice, TopOption, sort_option
from cordwood.surfaces.cli.clean_engine import (
    CleanEngine,
    clean_display,
    parse_memory,
    require_master,
)
from cordwood.surfaces.cli.clean_estimate import estimator_for
from cordwood.surfaces.cli.command import (
    FAILED,
    JsonOption,
    PlaceOptions,
    SettingSourceOptions,
    asks_directories,
    command,
    print_brokers,
    print_document,
    require_absent,
    sources_given,
)
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import OptionalLogDirsArgument, TopicsOption
from cordwood.surfaces.cli.values import parse_time
from cordwood.surfaces.cli.whatif_tables import SORTS, show_answer

if TYPE_CHECKING:
    from cordwood.queries.whatif.directories import DirectoryQuestion

_MASTER: Final = "local[*]"

EPILOG = """\b
Examples:
  cordwood whatif /var/lib/kafka/data --set clicks:retention.ms=1d
  cordwood whatif /var/lib/kafka/data --set '*:retention.ms=1d'
  cordwood whatif /data1 /data2 --set log.retention.bytes=1G --json
  cordwood whatif /var/lib/kafka/data --set users:cleanup.policy=compact
  cordwood whatif /data1 --set users:min.cleanable.dirty.ratio=0.1 --estimate
  cordwood whatif --bootstrap-server localhost:9092 --set clicks:retention.ms=1d

\b
LOG_DIR may be in use by a broker or a Kafka: its files are only read.

\b
Exit codes: 0 done; 1 a partition or the broker could not be asked (other
partitions are shown); 2 usage, or a value that the broker refuses."""


@command("whatif")
def whatif_command(
    context: typer.Context,
    log_dirs: OptionalLogDirsArgument = None,
    topic: TopicsOption = None,
    *,
    settings: SettingSourceOptions,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment to clean at: ms or ISO 8601.")
    ] = None,
    days: Annotated[int, typer.Option(metavar="N", help="Days to look ahead.")] = DAYS,
    no_groups: Annotated[
        bool, typer.Option("--no-groups", help="Do not look at consumer groups.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="For all Python processes together.")
    ] = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark master, or sc:// for Spark Connect.")
    ] = _MASTER,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Estimate compactions from a sample, without Java."),
    ] = False,
    place: PlaceOptions,
    sort: Annotated[str, sort_option("partitions", SORTS)] = SORTS[0],
    top: TopOption = TOP,
    all_: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare what a cleaning would do under the settings in force, and under changed ones.

    With LOG_DIR from the files of log directories, which are only read; settings come from the same
    places as those of `cordwood clean`. Or from the memory of a running broker, given by --log-dir,
    --bootstrap-server or --url. --set gives the changed settings.
    """
    screen = context.with_resource(Screen())
    choice = Choice.of(sort, top, shows_all=all_, keys=SORTS)
    changes, topics = tuple(settings.set_options), tuple(topic or ())
    if not changes:
        raise ConfigError("nothing is changed: give a setting with --set [TOPIC:]KEY=VALUE")
    if not 0 <= days <= DAYS_MAX:
        raise ConfigError(f"--days {days}: expected 0 to {DAYS_MAX}")
    if asks_directories(log_dirs, place):
        # What a directory needs is not loaded to ask a broker.
        from cordwood.queries.whatif.directories import DirectoryQuestion  # noqa: PLC0415

        question = DirectoryQuestion(
            options=replace(settings, log_dirs=log_dirs or (), set_options=()),
            changes=changes,
            topics=topics,
            now_ms=None if now is None else parse_time(now, option="--now"),
            days=days,
            groups=not no_groups,
        )
        answer = _of_directories(
            question,
            screen,
            shown=not as_json and screen.is_terminal,
            master=master,
            memory=memory,
            estimate=estimate,
        )
    else:
        own_master = "" if master == _MASTER else master
        require_absent(
            {"--now": now, **sources_given(settings)}
            | {"--memory": memory, "--estimate": estimate, "--master": own_master}
        )
        brokers = find_brokers(place, or_directory=True)
        asked = WhatIfQuestion(changes=changes, topics=topics, days=days, groups=not no_groups)
        answer = merged(brokers.ask(asked.to_brokers(alone=len(brokers.brokers) == 1)))
        print_brokers(brokers, as_json=as_json)
    if as_json:
        print_document(answer)
    else:
        show_answer(answer, screen, choice)
    if answer.failed or any(each.reason for each in answer.partitions):
        raise typer.Exit(FAILED)


def _of_directories(
    question: DirectoryQuestion,
    screen: Screen,
    *,
    shown: bool,
    master: str,
    memory: str | None,
    estimate: bool,
) -> WhatIf:
    """The answer, with its engine and a progress bar if it is `shown`. Raises as the question."""
    from cordwood.queries.whatif.directories import what_if_directories  # noqa: PLC0415

    require_master(master)
    if estimate:
        require_extra(NATIVE, what="an estimate of compactions")
    with clean_display(screen, shown=shown) as display:
        engine = CleanEngine(
            master=master,
            memory_bytes=parse_memory(memory),
            shared_dirs=[temporary_directory()],
            display=display,
            otherwise="A change of retention alone needs no Java, and --estimate measures nothing.",
        )
        measures = estimate or _has_spark(master) or not question.is_of_retention
        with closing(engine):
            return what_if_directories(
                question,
                engine.factory() if measures else None,
                listener=display,
                estimator=estimator_for(display) if estimate else None,
                reading=lambda name, done, total: display.bytes_done(name, "reading", done, total),
            )


def _has_spark(master: str) -> bool:
    return not missing_packages(SPARK) and (not master.startswith("local") or has_java())
