"""Compacted logs of which the dirty ratio says little: what each order of cleaning reads of them.

Most have new keys only, as those of events that somebody has set to `compact`; they are all dirty,
and a compaction frees nothing. The others write few keys again and again, behind a clean section.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.plan.request import CleaningOrder
from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.storage.filesystem import OsFile, OsFileSystem
from support.in_process_engine import CompiledEngine
from support.key_distributions import CONFIG, Distribution
from support.log_builder import NOW_MS, write_log_dir
from support.running_logs import RunningLogs


def _unique(_: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    return np.arange(count)


def _state(clean: float, hot: float) -> Callable[[np.random.Generator, int], npt.NDArray[np.int64]]:
    """Every key once, which is clean; then a share of them again and again."""

    def keys(rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
        once = round(count * clean)
        again = rng.integers(0, max(1, round(once * hot)), count - once)
        return np.concatenate([np.arange(once), again])

    return keys


#: By name; how many of each there are.
KINDS: Final = {
    "events": (9, Distribution(keys=_unique)),
    "sessions": (1, Distribution(keys=lambda rng, n: rng.integers(0, n // 2, n))),
    "orders": (1, Distribution(keys=_state(0.5, 0.8), clean=0.5)),
    "prices": (2, Distribution(keys=_state(0.25, 0.05), clean=0.25)),
    "stock": (2, Distribution(keys=_state(0.35, 0.3), clean=0.35)),
}


class _CountedFile(OsFile):
    """A file whose reads are counted."""

    __slots__ = ("_count",)

    def __init__(self, path: Path, flags: int, count: Callable[[int], None]) -> None:
        super().__init__(path, flags)
        self._count = count

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Counts the bytes read."""
        data = super().read_at(size_bytes, position)
        self._count(len(data))
        return data

    def read_into(self, view: memoryview, position: int) -> int:
        """Counts the bytes read."""
        count = super().read_into(view, position)
        self._count(count)
        return count


class CountingFileSystem(OsFileSystem):
    """Counts the bytes that are read, by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bytes_read = 0

    def _add(self, count: int) -> None:
        with self._lock:
            self.bytes_read += count

    def open(self, path: Path, *, write: bool = False) -> OsFile:
        """Opens a file whose reads are counted."""
        return _CountedFile(path, os.O_RDWR if write else os.O_RDONLY, self._add)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One log that was compacted, and the bytes of all steps up to here.

    `bytes_read` is all that was read: by compactions, and by estimates for the order.
    """

    name: str
    bytes_read: int
    bytes_freed: int


def write_skewed_logs(root: Path, *, records: int) -> None:
    """Writes the logs, of so many records each, as a broker leaves them behind."""
    logs = [
        distribution.log(f"{name}-{number}", records=records, seed=number)
        for name, (count, distribution) in KINDS.items()
        for number in range(count)
    ]
    write_log_dir(root / "logs-0", logs)


def clean_in_order(root: Path, order: CleaningOrder) -> list[Step]:
    """Has a broker's cleaner compact all that is due; what it did, log by log."""
    fs = CountingFileSystem()
    # No two segments become one, so that one of which all records stay is only read.
    config = replace(CONFIG, segment_bytes=1_000)
    logs = RunningLogs(root, dict.fromkeys(KINDS, config), fs=fs)
    logs.clock.advance(max(0, NOW_MS - logs.clock.now_ms()))
    logs.cleaning.schedule.order = order
    engine = CompiledEngine()
    engine.fs = fs
    steps: list[Step] = []
    cleaner = OnlineCleaner(logs.cleaning, engine)
    before, fs.bytes_read = _size_bytes(logs), 0
    while cleaner.clean_once():
        assert cleaner.last_chosen is not None, "a log was compacted"
        name = str(cleaner.last_chosen.topic_partition)
        freed = before - _size_bytes(logs)
        steps.append(Step(name=name, bytes_read=fs.bytes_read, bytes_freed=freed))
    logs.manager.shutdown()
    return steps


def bytes_read_for(share: float, steps: Sequence[Step]) -> int:
    """The bytes read until this share of all that is freed was freed."""
    wanted = share * steps[-1].bytes_freed
    return next(step.bytes_read for step in steps if step.bytes_freed >= wanted)


def _size_bytes(logs: RunningLogs) -> int:
    return sum(log.size_bytes for log in logs.manager.logs())
