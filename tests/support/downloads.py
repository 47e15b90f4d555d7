"""Downloads of tests, fetched once, and kept below `~/.cache/cordwood`."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cordwood.model.errors import CordwoodError

DOWNLOAD_SECONDS_MAX: Final = 1800
"""For one attempt."""
DOWNLOAD_ATTEMPTS: Final = 3


class DownloadError(CordwoodError):
    """Something could not be fetched; the last words of the program that tried are in the text."""


def copy_dependencies(
    pom: Path, target: Path, properties: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Has Maven put the jars that `pom` names into a directory.

    One run of Maven at a time: its local repository is not made for several. A run that failed is
    tried again, as the network may have. `properties` are of `pom`, such as a version.

    Raises:
        DownloadError: what Maven said.
    """
    goals = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    defined = [f"-D{name}={value}" for name, value in properties.items()]
    command = ["mvn", "-q", "-B", "-f", str(pom), *goals, *defined, f"-DoutputDirectory={target}"]
    home = Path.home() / ".cache" / "cordwood"
    home.mkdir(parents=True, exist_ok=True)
    said = ""
    with (home / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(DOWNLOAD_ATTEMPTS):
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=DOWNLOAD_SECONDS_MAX,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                said = f"it took longer than {DOWNLOAD_SECONDS_MAX} s"
                continue
            if done.returncode == 0:
                return
            said = (done.stdout + done.stderr).strip()[-1500:]
    raise DownloadError(f"Maven could not fetch what {pom} names: {said}")
