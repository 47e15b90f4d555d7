"""Common parts of all benchmarks: options, and the file of figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import measure


def parser_of(
    doc: str | None,
    *,
    free: str,
    quick: str = "small, to see that it works",
    turns: str | None = None,
) -> argparse.ArgumentParser:
    """A parser with --quick, --work-dir and --json.

    Args:
        doc: of the program; its first line describes it.
        free: what --work-dir needs, as "6 GB are free".
        quick: what --quick does.
        turns: how many turns there are by default, in words; without it there is no --turns.
    """
    parser = argparse.ArgumentParser(description=str(doc).splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    if turns is not None:
        parser.add_argument("--turns", type=int, default=None, help=turns)
    parser.add_argument("--work-dir", type=Path, default=None, help=f"where {free}")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where the figures go, by default results/"
    )
    return parser


def write_figures(target: Path, **figures: Any) -> None:
    """Writes figures, and of which machine and commit they are; what was there is replaced."""
    document = {"machine": measure.machine(), "commit": measure.commit(), **figures}
    target.write_text(json.dumps(document, indent=1))
