"""Processor time and memory of a tree of processes, and what the rest of the machine was doing.

Memory is PSS: a page that several processes share counts once among them. Run as a program, it
samples a tree until its standard input ends, and prints the peaks as a JSON document.
"""

from __future__ import annotations

import json
import os
import platform
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
RESULTS = Path(__file__).resolve().parent / "results"
_INTERVAL_S = 0.1
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(slots=True)
class Peaks:
    """The highest PSS of each kind of process, and of all together at one moment, in bytes."""

    by_kind: dict[str, int] = field(default_factory=dict)
    together: int = 0


@dataclass(slots=True)
class Spent:
    """Seconds: on the clock, of processor time by kind of process, and by all other programs."""

    wall: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    others: float = 0.0

    @property
    def others_cores(self) -> float:
        """The number of cores that other programs kept busy."""
        return self.others / self.wall if self.wall else 0.0


def tree_of(root: int) -> dict[int, str]:
    """The living processes below `root` by id, each with its kind: jvm, driver or workers."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            stat = Path(entry.path, "stat").read_text()
            name, _, rest = stat.partition("(")[2].rpartition(")")
            parents[int(entry.name)] = int(rest.split()[1])
            names[int(entry.name)] = name
    kinds: dict[int, str] = {}
    pending = [root] if root in parents else []
    while pending:
        process = pending.pop()
        above = kinds.get(parents[process])
        if names[process] == "java":
            kinds[process] = "jvm"
        elif _is_warm_daemon(process):
            kinds[process] = "workers"
        else:
            kinds[process] = "workers" if above in {"jvm", "workers"} else "driver"
        pending += [child for child, parent in parents.items() if parent == process]
    return kinds


def _is_warm_daemon(process: int) -> bool:
    """Whether workers are forked from this process, which the driver has started."""
    with suppress(OSError):
        return b"spark.warm_daemon" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def _cpu_of(process: int) -> float:
    """Seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(value) for value in fields[11:15]) / _TICKS


def _cpu_by_kind(root: int) -> dict[str, float]:
    total: dict[str, float] = {}
    for process, kind in tree_of(root).items():
        with suppress(OSError):
            total[kind] = total.get(kind, 0.0) + _cpu_of(process)
    return total


def _busy() -> float:
    """Seconds that all processors have worked since the machine started."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / _TICKS


def busy_cores(seconds: float) -> float:
    """The number of cores that are busy while this process sleeps."""
    before = _busy()
    time.sleep(seconds)
    return (_busy() - before) / seconds


@contextmanager
def spent_by(root: int, spent: Spent) -> Iterator[None]:
    """Writes down what a tree of processes, and the rest of the machine, spend meanwhile."""
    cpu, busy, started = _cpu_by_kind(root), _busy(), time.monotonic()
    yield
    spent.wall = time.monotonic() - started
    after = _cpu_by_kind(root)
    spent.cpu = {kind: after[kind] - cpu.get(kind, 0.0) for kind in after}
    spent.others = max(0.0, _busy() - busy - sum(spent.cpu.values()))


def sampling(peaks: Peaks) -> Callable[[int], AbstractContextManager[None]]:
    """A context by process id, in which a process of its own samples that tree into `peaks`."""

    @contextmanager
    def watch(root: int) -> Iterator[None]:
        sampler = subprocess.Popen(
            [sys.executable, "-S", __file__, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield
        finally:
            out, _ = sampler.communicate()
        found = json.loads(out)
        peaks.by_kind, peaks.together = found["by_kind"], found["together"]

    return watch


def _pss_of(process: int) -> int:
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _sample_until_end_of_input(root: int) -> Peaks:
    peaks = Peaks()
    while True:
        now: dict[str, int] = {}
        for process, kind in tree_of(root).items():
            with suppress(OSError):
                now[kind] = now.get(kind, 0) + _pss_of(process)
        for kind, size in now.items():
            peaks.by_kind[kind] = max(size, peaks.by_kind.get(kind, 0))
        peaks.together = max(peaks.together, sum(now.values()))
        if select.select([sys.stdin], [], [], _INTERVAL_S)[0]:
            return peaks


def drop_page_cache() -> bool:
    """Has files read from disk again, as after a start; returns False where that is not allowed."""
    os.sync()
    try:
        _DROP_CACHES.write_text("3")
    except OSError:
        return False
    return True


def machine() -> dict[str, Any]:
    """Facts about the machine, for readers of the figures."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith(("model name", "Model"))
        ),
        platform.machine(),
    )
    memory = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": java.stderr.strip().splitlines()[-1] if java.stderr else "",
    }


def results_file(name: str = "") -> Path:
    """The default file for a benchmark's figures; the directory exists.

    Args:
        name: what the name of the file begins with.
    """
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{name}{time.strftime('%Y%m%dT%H%M%S')}-{commit()}.json"


def commit() -> str:
    """The short name of what is checked out."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    here = Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    peaks = _sample_until_end_of_input(int(sys.argv[1]))
    print(json.dumps({"by_kind": peaks.by_kind, "together": peaks.together}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
