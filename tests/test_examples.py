"""The examples run, and say what they say they show."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_tour_of_a_partition_log_recovers_everything_and_ages_three_segments() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "partition_log.py")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "720 records in 5 segments",
        "offset 377 is in a batch of 10 records",
        "yesterday began at offset 480",
        "recovered to offset 720, nothing lost",
        "six days on, 3 segments are too old; the log starts at 450",
    ]
    assert "  00000000000000000450.log" in lines
    assert not any(line.endswith(".deleted") for line in lines)


def test_tests_pass_in_a_project_of_its_own(tmp_path: Path) -> None:
    names = ["test_a_week.py", "test_a_lost_broker.py", "test_faststream.py"]
    for name in names:
        shutil.copy(EXAMPLES / name, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
