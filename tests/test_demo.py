from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "tools" / "demo.py"
PROOF = re.compile(
    r"^(?P<records>[\d,]+) records read back, newest value of each of (?P<keys>[\d,]+) keys "
    r"present, 0 missing, 0 altered, 0 that should be gone$",
    re.MULTILINE,
)


@pytest.mark.spark
def test_the_demonstration_cleans_the_example_and_proves_the_result() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    proof = PROOF.search(done.stdout)
    assert proof is not None, done.stdout
    assert int(proof["records"].replace(",", "")) > 5_000
    assert int(proof["keys"].replace(",", "")) > 1_000
    assert "Plan" in done.stdout
    assert "Cleaned" in done.stdout


@pytest.mark.parametrize("lost", [False, True])
def test_the_proof_fails_when_a_record_is_lost(tmp_path: Path, lost: bool) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import demo; from pathlib import Path\n"
        "log_dir = demo.unpack(Path(sys.argv[2]))\n"
        "before = demo.read_partition(log_dir / 'prices-0')\n"
        "after = demo.read_partition(log_dir / 'prices-0')\n"
        "if sys.argv[3] == 'True': del after.settled[max(after.settled)]\n"
        "proof = demo.Proof(); proof.check(before, after, 0); sys.exit(0 if proof.holds else 7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(DEMO.parent), str(tmp_path), str(lost)],
        check=False,
        timeout=300,
    )
    assert done.returncode == (7 if lost else 0)
