"""Requirements of a test on the machine: without them a loud skip, and in CI a failure."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def require(reason: str, *, holds: bool) -> None:
    """Skips the test if it does not hold, with the reason; under CI=true it fails."""
    if not holds:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def require_own_network() -> None:
    """Skips the test where no network namespace can be made, as `require` does."""
    require("ip is not installed: run `make setup`", holds=shutil.which("ip") is not None)
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    require("no network of its own can be made (unshare --net)", holds=done.returncode == 0)
