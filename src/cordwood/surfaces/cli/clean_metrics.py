"""`cordwood clean --metrics-textfile`: the file is checked first, and written at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from cordwood.cleanup.report import Report
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.places import require_writable
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.values import parse_path

_OPTION: Final = "--metrics-textfile"
_SUFFIX: Final = ".prom"

MetricsTextfileOption = Annotated[
    Path | None,
    typer.Option(
        _OPTION,
        parser=parse_path,
        metavar="FILE.prom",
        help="Write metrics of the run here, for the node exporter.",
    ),
]


class CleanMetrics:
    """What the file is to say: `report` is that of the run, None while there is none."""

    def __init__(self) -> None:
        self.report: Report | None = None


@contextmanager
def clean_metrics(
    file: Path | None, log_dirs: Sequence[Path], *, clock: Clock, screen: Screen, dry_run: bool
) -> Iterator[CleanMetrics]:
    """Writes the file when the context ends, however it does; without a file nothing is done.

    Raises:
        ConfigError: there could be no such file; the context does not begin.
    """
    found = CleanMetrics()
    if file is None:
        yield found
        return
    _require_file(file, dry_run=dry_run)
    begun_s = clock.monotonic_s()
    try:
        yield found
    finally:
        # The library is loaded where there is a file to write.
        from cordwood.surfaces.metrics.clean_run import (  # noqa: PLC0415
            CleanRun,
            last_success_s,
            write_textfile,
        )

        names = ",".join(str(each) for each in log_dirs)
        run = CleanRun(
            log_dirs=names,
            ended_s=clock.now_ms() / 1000,
            duration_s=clock.monotonic_s() - begun_s,
            succeeded_s=last_success_s(file, names),
            report=found.report,
        )
        try:
            write_textfile(file, run)
        except OSError as error:
            screen.line(
                f"warning: {_OPTION} {file}: cannot be written: {error.strerror}", style="yellow"
            )


def _require_file(file: Path, *, dry_run: bool) -> None:
    """Requires that the file can be written when the run ends.

    Raises:
        ConfigError: it cannot, or nobody would read it.
    """
    if dry_run:
        raise ConfigError(f"{_OPTION} is for a cleaning, and --dry-run cleans nothing")
    if file.suffix != _SUFFIX:
        raise ConfigError(
            f"{_OPTION} {file}: the node exporter reads only files that end in {_SUFFIX}"
        )
    require_writable(_OPTION, file)
