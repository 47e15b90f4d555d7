"""Modules that a process loads before there is anything to compact."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "numba", "pyarrow", "pandas", "pyspark")


@pytest.mark.parametrize(
    "module",
    [
        "schedule.cleaner_manager",
        "schedule.log_cleaner",
        "schedule.cleaning",
        "access.online.running_log",
        "schedule.retention_pass",
        "schedule.paused_changes",
    ],
)
def test_a_broker_with_nothing_to_compact_loads_no_compiled_code(module: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, cordwood.cleanup.{module}\n"
            f"print([name for name in {HEAVY} if name in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
