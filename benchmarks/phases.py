"""Phases of a cleaning: the same work in this process, by one thread, without Spark.

What Spark costs is then the difference: processor time of the whole tree of processes less this.

usage: phases.py LOG_DIR (a copy made by loggen.py; it is cleaned)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.cleanup.schedule.clean import clean
from cordwood.format.file_names import LOG_SUFFIX, base_offset_of
from cordwood.model.clock import SystemClock
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import SegmentSource
from loggen import TOPIC
from support.in_process_engine import CompiledEngine
from support.whole_compaction import survivors_of

_NEXT_OFFSET_MAX = (1 << 63) - 1


@dataclass(slots=True)
class Cost:
    """Seconds on the clock, and of processor time of all threads."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def _timed(cost: Cost) -> Iterator[None]:
    wall, cpu = time.monotonic(), time.process_time()
    yield
    cost.wall += time.monotonic() - wall
    cost.cpu += time.process_time() - cpu


def sources_of(directory: Path) -> list[SegmentSource]:
    """The segments of a partition, to be read on their own."""
    return [
        SegmentSource(
            path=str(path),
            base_offset=base_offset_of(path.name),
            next_base_offset=_NEXT_OFFSET_MAX,
            size_bytes=path.stat().st_size,
            modified_ns=0,
        )
        for path in sorted(directory.glob(f"*{LOG_SUFFIX}"))
    ]


class _IndexingFirst:
    """An engine that first indexes each compaction by itself, timed, and then executes it."""

    def __init__(self, index: Cost) -> None:
        self._index = index
        self._inner = CompiledEngine()

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        """Indexes all compactions, then rewrites them, and times both."""
        with _timed(self._index):
            for committer in committers:
                survivors_of(committer.compaction)
        self._inner.run(committers)


def costs_of(log_dir: Path, topic: str = TOPIC) -> dict[str, Cost]:
    """Cleans a topic in `log_dir`; `clean` includes `index`, both include a `read and check`."""
    costs = {name: Cost() for name in ("read and check", "index", "clean")}
    with _timed(costs["read and check"]):
        for source in sources_of(log_dir / f"{topic}-0"):
            for _ in SegmentReader().blocks(source):
                pass
    settings = read_settings(SettingOptions(log_dirs=[log_dir]))
    clock = SystemClock()
    request = CleanRequest(
        log_dirs=(log_dir,), resolve=settings.resolve, now_ms=clock.now_ms(), topics=(topic,)
    )

    @contextmanager
    def engine() -> Iterator[_IndexingFirst]:
        yield _IndexingFirst(costs["index"])

    with _timed(costs["clean"]):
        report = clean(request, engine, clock=clock)
    assert not report.failed, report.failed
    costs["clean"].wall -= costs["index"].wall
    costs["clean"].cpu -= costs["index"].cpu
    return costs


def main() -> int:
    costs = costs_of(Path(sys.argv[1]))
    print(json.dumps({name: asdict(cost) for name, cost in costs.items()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
