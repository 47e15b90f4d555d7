"""The kernels as numba compiles them when they are called: the same tests, and declared types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cordwood.format.native import kernels

TESTS = Path(__file__).resolve().parents[3]
CALLERS = (
    "unit/format/native/test_kernels.py",
    "unit/cleanup/engine/test_rewrite.py",
    "unit/storage/reading/test_segment_reader.py",
    "unit/storage/test_replace.py",
    "unit/cleanup/schedule/test_cleaner_odd_logs.py",
    "unit/cleanup/rules/test_transactions.py",
    "unit/cleanup/estimate/test_distinct_kernels.py",
    "unit/format/native/test_record_fields.py",
    "unit/format/native/test_record_rows.py",
    "unit/format/native/test_contents.py",
    "unit/format/native/test_kernels_damaged_records.py",
    "unit/storage/append/test_record_walk.py",
    "unit/storage/segment/test_segment_recovery.py",
    "properties/test_estimate.py",
    "properties/test_reference_cleaner.py",
)


def test_tests_of_the_kernels_pass_with_numba_and_call_them_with_declared_types() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p"]
    command += ["support.declared_kernels", *CALLERS]
    done = subprocess.run(
        command,
        cwd=TESTS,
        env=os.environ | {"CORDWOOD_KERNELS": "numba"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    (called,) = [x for x in done.stdout.splitlines() if x.startswith("kernels called: ")]
    assert set(called.split()[2:]) == set(kernels.__all__) - {"FORM"}
