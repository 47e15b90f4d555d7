"""Time of the machine for reading a log twice and writing the result once: a lower bound."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Seconds: both reads, the write, and its fsync."""

    read_twice: float
    write: float
    fsync: float

    @property
    def total(self) -> float:
        return self.read_twice + self.write + self.fsync


def floor_of(directory: Path, work: Path, out_bytes: int) -> Floor:
    """Measured with one thread on the segments in `directory`."""
    buffer = np.zeros(_READ_BYTES, dtype=np.uint8)
    view = memoryview(buffer)
    begun = time.monotonic()
    for _ in range(2):
        for path in sorted(directory.glob("*.log")):
            handle = os.open(path, os.O_RDONLY)
            position = 0
            while came := os.preadv(handle, [view], position):
                position += came
            os.close(handle)
    read = time.monotonic()
    target = work / "floor"
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    left = out_bytes
    while left > 0:
        left -= os.write(handle, view[: min(left, _READ_BYTES)])
    written = time.monotonic()
    os.fsync(handle)
    synced = time.monotonic()
    os.close(handle)
    target.unlink()
    return Floor(read_twice=read - begun, write=written - read, fsync=synced - written)
