"""Golden archives: log directories of a real Kafka before and after its own cleaning."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_MAKER: Final = Path(__file__).resolve().parents[2] / "tools" / "make_golden.py"
_STAGES: Final = ("before", "after", "before-2", "after-2")
# In the archive that does not say when Kafka cleaned, it did within a minute of the writing.
_CLEANED_AFTER_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """An unpacked golden archive: directories not to be changed, and when Kafka had them.

    `made_at_ms` is when the writing began, `cleaned_at_ms` when the cleaning did: any moment up to
    a minute later gives the same result. `root` holds `before` and `after`, then `before-2` and
    `after-2`: more was written to `after`. `cleaned_first` are the partitions that Kafka may have
    compacted before its first pass of retention, where that is known; see
    `support.live.Pair`.
    """

    root: Path
    made_at_ms: int
    made_at_2_ms: int
    cleaned_at_ms: int
    cleaned_at_2_ms: int
    topics: dict[str, dict[str, str]]
    cleaned_first: frozenset[str]

    @classmethod
    def read(cls, root: Path) -> Self:
        """The archive that was unpacked, or generated, in `root`."""
        facts = json.loads((root / "topics.json").read_text())
        return cls(
            root=root,
            made_at_ms=facts["made_at_ms"],
            made_at_2_ms=facts["made_at_2_ms"],
            cleaned_at_ms=facts.get("cleaned_at_ms", facts["made_at_ms"] + _CLEANED_AFTER_MS),
            cleaned_at_2_ms=facts.get("cleaned_at_2_ms", facts["made_at_2_ms"] + _CLEANED_AFTER_MS),
            topics=facts["topics"],
            cleaned_first=frozenset(facts.get("cleaned_first", ())),
        )

    @classmethod
    def unpack(cls, archive: Path, root: Path) -> Self:
        """Unpacks an archive whose only entry is one directory below `root`."""
        with tarfile.open(archive) as packed:
            packed.extractall(root, filter="data")
        (top,) = root.iterdir()
        return cls.read(top)

    @classmethod
    def make(cls, root: Path, *, seed: int, version: str) -> Self:
        """Has a real Kafka of this version make them in `root`, which must not exist."""
        command = [sys.executable, str(_MAKER), "--kafka", version, "--seed", str(seed)]
        subprocess.run([*command, "--out", str(root)], check=True, timeout=900)
        return cls.read(root)

    @property
    def stages(self) -> list[Path]:
        """The log directories, in the order in which Kafka left them."""
        return [self.root / name for name in _STAGES]

    def files(self, pattern: str) -> list[Path]:
        """The files of all log directories whose paths there match a pattern."""
        return [file for stage in self.stages for file in sorted(stage.glob(pattern))]
