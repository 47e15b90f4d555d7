from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "tools" / "demo.py"


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
