"""Scenarios of transactions in text files: each event, and the effects that it must have.

`support.transaction_scenarios` says what the files contain. `python
tests/unit/coordinator/transaction/test_machine_scenarios.py FILE...` writes the effects of today
into files, to be reviewed line by line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.scenario_files import parse, rewritten
from support.transaction_scenarios.run import Run

SCENARIOS = Path(__file__).with_name("scenarios")


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_events_of_a_scenario_have_the_effects_that_it_names(path: Path) -> None:
    _, cases = parse(path.read_text(encoding="utf-8"))
    run = Run()
    for case in cases:
        assert list(run.run(case.command)) == case.expected, case.command


if __name__ == "__main__":
    for scenario in sys.argv[1:]:
        text = Path(scenario).read_text(encoding="utf-8")
        Path(scenario).write_text(rewritten(text, Run().run))
