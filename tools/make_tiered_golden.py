"""Makes the golden data of tiered storage with a real Apache Kafka, for tests/golden.

usage: make_tiered_golden.py
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from support.tiered_golden import ARCHIVE, TieredGolden


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="make-golden-") as scratch:
        made = TieredGolden.make(Path(scratch) / "tiered", Path(scratch))
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            archive.add(made.root, made.root.name)
    print(ARCHIVE.stat().st_size, ARCHIVE)


if __name__ == "__main__":
    main()
