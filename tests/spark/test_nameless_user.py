"""Compaction for a user whose number has no name, as a container platform may choose it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from support.container import UID, contained, require_containers

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kafka-logs.tar.xz"
pytestmark = pytest.mark.spark


def test_a_user_without_a_name_compacts_in_a_container(tmp_path: Path) -> None:
    require_containers()
    with tarfile.open(EXAMPLE) as archive:
        archive.extractall(tmp_path / "data", filter="data")
    (log_dir,) = {path.parent for path in (tmp_path / "data").rglob("meta.properties")}
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    options = ("--force", "--yes", "--defaults")
    clean = (sys.executable, "-m", "cordwood", "clean", str(log_dir), *options)
    command = contained("env", f"TMPDIR={scratch}", *clean, writable=(tmp_path / "data", scratch))
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"as user {UID}: {done.stderr}"
    assert "Spark local[" in done.stdout + done.stderr
