"""`cordwood verify`: checks every invariant of logs on disk, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.model.extras import NATIVE, require_extra
from cordwood.surfaces.cli.command import FAILED, JsonOption, command
from cordwood.surfaces.cli.error_text import os_error_text
from cordwood.surfaces.cli.failure import fail
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import OptionalLogDirsArgument, SetOption, TopicsOption
from cordwood.surfaces.cli.stopping import STOPPING
from cordwood.surfaces.cli.textfile import (
    METRICS_TEXTFILE,
    MetricsTextfileOption,
    textfile_metrics,
)
from cordwood.surfaces.cli.values import parse_path

EPILOG = """\b
Examples:
  cordwood verify /var/lib/kafka/data
  cordwood verify /data1 /data2 --topic 'orders*' --json
  cordwood verify ./backup/orders-0
  cordwood verify --cleaning ./before ./after
  cordwood verify --erasure erasure.json /var/lib/kafka/data

\b
Exit codes: 0 sound; 1 something is damaged, or cannot be read; 2 usage."""


@command("verify")
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
    topic: TopicsOption = None,
    set_: SetOption = None,
    metrics_textfile: MetricsTextfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check logs on disk: batches, records, indexes, snapshots, leader epochs, checkpoints.

    LOG_DIR is an entry of the broker's log.dirs, or one partition's directory in it. Nothing is
    changed or locked; a broker may run, and its logs are then looked at as they are at one moment.

    With --cleaning, two copies of a log directory are compared as consumers see them: nothing is
    invented or changed, the newest value of each key is kept, and transactions end alike. Which one
    is kept follows from cordwood.compaction.strategy in the metadata log of BEFORE, or from --set,
    as does cordwood.record.ttl.header: what has expired by now may be gone.

    With --erasure, a report is checked against LOG_DIR, or where it says: its signature, the hashes
    of files, and that no erased offset is there.

    A finding names the file, the byte in it, the offset, the rule that is broken, and what to do.
    """
    STOPPING.command("cordwood verify", note="nothing was changed")
    screen = context.with_resource(Screen())
    try:
        if public_key is not None and erasure is None:
            raise ConfigError("--public-key needs --erasure")
        if set_ and not cleaning:
            raise ConfigError("--set needs --cleaning")
        if not log_dirs and erasure is None:
            raise ConfigError("name at least one LOG_DIR")
        if metrics_textfile is not None and erasure is not None:
            raise ConfigError(f"{METRICS_TEXTFILE} is for LOG_DIR, not for --erasure")
        metrics = context.with_resource(
            textfile_metrics(
                "verify", metrics_textfile, log_dirs or (), clock=SystemClock(), screen=screen
            )
        )
        require_extra(NATIVE, what="cordwood verify")
        from cordwood.surfaces.cli import verify_run  # noqa: PLC0415  # loads compiled code

        if erasure is not None:
            is_sound = verify_run.check_report(erasure, log_dirs or (), public_key, as_json=as_json)
        else:
            metrics.result = verify_run.check_logs(
                _two(log_dirs or []) if cleaning else log_dirs or (),
                tuple(topic or ()),
                screen,
                is_cleaning=cleaning,
                set_options=tuple(set_ or ()),
                as_json=as_json,
            )
            is_sound = metrics.is_success = metrics.result.is_sound
    except OSError as error:
        fail("verify", os_error_text(error), FAILED)
    if not is_sound:
        raise typer.Exit(FAILED)


def _two(log_dirs: list[Path]) -> tuple[Path, Path]:
    """The directories BEFORE and AFTER.

    Raises:
        ConfigError: there are more, or fewer.
    """
    if len(log_dirs) != 2:
        raise ConfigError(
            f"--cleaning takes two directories, BEFORE and AFTER, not {len(log_dirs)}"
        )
    return log_dirs[0], log_dirs[1]
