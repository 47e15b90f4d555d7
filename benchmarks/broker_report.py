"""The command line of benchmarks of brokers, and what they print and write: rows as they come."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import measure
from command import parser_of, write_figures
from log_rows import HEADING, Row, print_markdown


def section_parser(
    doc: str | None, sections: Sequence[str], *, free: str
) -> argparse.ArgumentParser:
    """The flags that all have.

    Args:
        doc: the program's description.
        sections: what it can measure.
        free: how much space it needs, as "5 GB are free".
    """
    parser = parser_of(doc, free=free, turns="how often each is measured")
    parser.add_argument("--sections", default=",".join(sections), help="by default %(default)s")
    return parser


def chosen_sections(
    parser: argparse.ArgumentParser, options: argparse.Namespace, sections: Sequence[str]
) -> list[str]:
    """The sections to measure; ends the program if there is no such section."""
    chosen: list[str] = options.sections.split(",")
    if unknown := [name for name in chosen if name not in sections]:
        parser.error(f"no such section: {unknown}; there are {tuple(sections)}")
    return chosen


def report(measured: Iterable[Row], target: Path) -> list[Row]:
    """Prints each row when it was measured, and has all so far in the file; returns them."""
    rows: list[Row] = []
    print(HEADING)
    for row in measured:
        rows.append(row)
        print(row.line(), flush=True)
        write_figures(target, rows=[each.document() for each in rows])
    missed = [row.what for row in rows if row.is_met is False]
    print(f"targets missed: {', '.join(missed) or 'none'}")
    return rows


class Sizes(Protocol):
    """Sizes of the measurements: a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def turns(self) -> int:
        """The number of turns of each measurement."""


S = TypeVar("S", bound=Sizes)


class Bench(Protocol):
    """Measures sections."""

    def run(self, names: Sequence[str], /) -> Iterable[Row]:
        """The rows of the sections of those names."""


def run_benchmark(
    doc: str | None,
    name: str,
    sections: Sequence[str],
    bench: Callable[[S, Path], Bench],
    *,
    sizes: S,
    quick: S,
    free: str,
    arguments: Sequence[str] | None,
) -> int:
    """A whole program without flags of its own.

    Args:
        doc: its description.
        name: of the benchmark, in the names of files.
        sections: what it can measure.
        bench: measures in a directory, which is removed afterwards.
        sizes: how much.
        quick: how much with --quick.
        free: as `section_parser`.
        arguments: of the command line; those of the process if None.

    Returns:
        The exit code.
    """
    parser = section_parser(doc, sections, free=free)
    options = parser.parse_args(arguments)
    chosen = chosen_sections(parser, options, sections)
    if options.quick:
        sizes = quick
    if options.turns is not None:
        sizes = replace(sizes, turns=options.turns)
    target = options.json or measure.results_file(f"{name}-")
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-", dir=options.work_dir) as work:
        rows = report(bench(sizes, Path(work)).run(chosen), target)
    print_markdown(rows, other="Kafka")
    print(f"written to {target}")
    return 0
