"""The option --metrics-textfile: the file is checked first, and written at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.places import require_writable
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.values import parse_path

METRICS_TEXTFILE: Final = "--metrics-textfile"
_SUFFIX: Final = ".prom"

MetricsTextfileOption = Annotated[
    Path | None,
    typer.Option(
        METRICS_TEXTFILE,
        parser=parse_path,
        metavar="FILE.prom",
        help="Write metrics of the run here, for the node exporter.",
    ),
]


@dataclass(slots=True)
class RunMetrics:
    """Content of the file: the result of the run, None while there is none."""

    result: Any = None
    is_success: bool = False


@contextmanager
def textfile_metrics(
    command: str, file: Path | None, log_dirs: Sequence[Path], *, clock: Clock, screen: Screen
) -> Iterator[RunMetrics]:
    """Writes the file when the context ends, however it does; without a file nothing is done.

    Raises:
        ConfigError: there could be no such file; the context does not begin.
    """
    found = RunMetrics()
    if file is None:
        yield found
        return
    _require_file(file)
    begun_s = clock.monotonic_s()
    try:
        yield found
    finally:
        # The library is loaded where there is a file to write.
        from cordwood.surfaces.metrics.job_run import (  # noqa: PLC0415
            JobRun,
            last_success_s,
            write_textfile,
        )
        from cordwood.surfaces.metrics.jobs import JOBS  # noqa: PLC0415

        names = ",".join(map(_label, log_dirs))
        run = JobRun(
            log_dirs=names,
            ended_s=clock.now_ms() / 1000,
            duration_s=clock.monotonic_s() - begun_s,
            succeeded_s=last_success_s(file, command, names),
            is_success=found.is_success,
            result=found.result,
        )
        try:
            write_textfile(file, JOBS[command], run)
        except (OSError, ValueError) as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            screen.line(
                f"warning: {METRICS_TEXTFILE} {file}: cannot be written: {why}", style="yellow"
            )


def _label(path: Path) -> str:
    """A path as UTF-8, which the exposition format is: other bytes are shown as `\\xe9`."""
    return bytes(path).decode("utf-8", "backslashreplace")


def _require_file(file: Path) -> None:
    """Requires that the file can be written when the run ends, and that somebody reads it.

    Raises:
        ConfigError: it cannot, or nobody would.
    """
    if file.suffix != _SUFFIX:
        raise ConfigError(
            f"{METRICS_TEXTFILE} {file}: the node exporter reads only files that end in {_SUFFIX}"
        )
    require_writable(METRICS_TEXTFILE, file)
