"""Runs seeds: `make simulate SEED=17` shows the history of one, and which guarantee it breaks."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from typing import Final

from support.simulation.bugs.table import BUGS
from support.simulation.run import FAILURES_S, Result, run_seed

_FREQUENT: Final = ("Watermark(", "Replica(", "ReadOn(", "Latest(", "Heard(")


def main() -> int:
    """Returns 1 if a checker has found something."""
    parser = argparse.ArgumentParser(prog="support.simulation", description=__doc__)
    parser.add_argument("seed", type=int, help="the seed, or the first one")
    parser.add_argument(
        "--count", type=int, default=1, help="how many seeds; no history of several"
    )
    parser.add_argument("--seconds", type=float, default=FAILURES_S, help="how long things fail")
    parser.add_argument("--bug", choices=sorted(BUGS), help="a bug to put in")
    parser.add_argument("--quiet", action="store_true", help="no history")
    parser.add_argument("--all", action="store_true", help="the history with fetches and replicas")
    given = parser.parse_args()
    show = None if given.quiet or given.count > 1 else print if given.all else _print
    results = []
    with BUGS[given.bug].put_in() if given.bug else nullcontext():
        for seed in range(given.seed, given.seed + given.count):
            results.append(run_seed(seed, failures_s=given.seconds, show=show))
            print(verdict(results[-1]), flush=True)  # noqa: T201
    if given.count > 1:
        print(summary(results))  # noqa: T201
    return int(any(each.violation is not None for each in results))


def _print(line: str) -> None:
    """Prints a line of a history, unless it is one of those that come all the time."""
    if not any(each in line for each in _FREQUENT):
        print(line)  # noqa: T201


def verdict(result: Result) -> str:
    """A line on a run."""
    found = "all guarantees hold" if result.violation is None else f"VIOLATION: {result.violation}"
    return (
        f"seed {result.seed}: {found} ({result.simulated_s:.0f} simulated seconds, "
        f"{result.events:,} events, {result.processor_s:.2f} s, {result.digest[:12]})"
    )


def summary(results: list[Result]) -> str:
    """Totals of several runs."""
    simulated_s = sum(each.simulated_s for each in results)
    processor_s = sum(each.processor_s for each in results)
    events = sum(each.events for each in results)
    broken = [each.seed for each in results if each.violation is not None]
    return (
        f"{len(results)} seeds, {simulated_s / 3600:.2f} simulated hours, {events:,} events in "
        f"{processor_s:.0f} s of processor time: {events / processor_s:,.0f} events a second, "
        f"{simulated_s / processor_s:.1f} simulated seconds a second; broken: {broken or 'none'}"
    )


if __name__ == "__main__":
    sys.exit(main())
