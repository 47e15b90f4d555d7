"""The process that executes compactions, or its replacement, on a file system that fails on demand.

`FAULTS` in the environment names the control directory and the directory below which it fails, with
a colon between; `FAULTS_SPARK` says whether Spark runs in it.
"""

from __future__ import annotations

import os
from pathlib import Path

from cordwood.cleanup.engine.spark import child
from support import stand_in_child
from support.faulty_filesystem import Faults, FaultyFileSystem


def main() -> None:
    """Serves as the module that it stands for does."""
    control, root = os.environ["FAULTS"].split(":")
    fs = FaultyFileSystem(Faults(Path(control), Path(root)))
    if os.environ.get("FAULTS_SPARK"):
        child.main(fs)
    else:
        stand_in_child.main(fs)


if __name__ == "__main__":
    main()
