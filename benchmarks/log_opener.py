"""Opens a log directory in a process that does nothing else, and says in JSON what that took.

usage: log_opener.py LOG_DIR
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from cordwood.storage.log_manager import LogManager

#: What a process that only stores logs must not have loaded.
LARGE_MODULES = ("numba", "numpy", "pandas", "pyarrow", "pyspark")


def open_directory(directory: Path) -> dict[str, Any]:
    """Memory in bytes; seconds of the loading alone, and of the clean stop after it."""
    before = _resident_bytes()
    manager = LogManager([directory])
    begun, cpu = time.perf_counter(), time.process_time()
    manager.load()
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    answer = {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "logs": len(manager.logs()),
        "resident_bytes": _resident_bytes(),
        "resident_before_bytes": before,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "large_modules": [name for name in LARGE_MODULES if name in sys.modules],
    }
    begun = time.perf_counter()
    manager.shutdown()
    return answer | {"stop_seconds": time.perf_counter() - begun}


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(open_directory(Path(sys.argv[1]))))
