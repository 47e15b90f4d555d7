"""Topics of which a cleaning would leave nothing, where that is hardly meant: in an archive.

Retention by the time of today removes every record of a directory that no broker has written to
for a while. Of a directory in use that is right, and Kafka does the same; of a backup it is its
loss. The newest record shows which of the two a directory is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cordwood.cleanup.rules.log_view import LogView
from cordwood.format.file_names import LOG_SUFFIX, TIME_INDEX_SUFFIX
from cordwood.format.time_index import ENTRY_BYTES
from cordwood.storage.filesystem import OS, FileSystem

_DAY_MS: Final = 86_400_000
#: A directory whose newest record is older is taken for an archive: Kafka's own default retention.
ARCHIVE_MS: Final = 7 * _DAY_MS
_FUTURE_MS: Final = _DAY_MS
_NAMED_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """Topics that a cleaning at `now_ms` would empty, and how many bytes that is.

    `newest_ms` is the timestamp of the newest record of the log directories, None where it is not
    known; `clock_ms` the time by the clock. All times are in ms since the epoch.
    """

    topics: tuple[str, ...]
    size_bytes: int
    newest_ms: int | None
    now_ms: int
    clock_ms: int

    @property
    def is_suspicious(self) -> bool:
        """Whether it is to be asked about: of an archive, or by a time that has not come."""
        return bool(self.topics) and (self._is_future or self._is_archive)

    @property
    def _is_future(self) -> bool:
        return self.now_ms - self.clock_ms > _FUTURE_MS

    @property
    def _is_archive(self) -> bool:
        return self.newest_ms is not None and self.now_ms - self.newest_ms > ARCHIVE_MS

    def __str__(self) -> str:
        named = ", ".join(self.topics[:_NAMED_MAX])
        if len(self.topics) > _NAMED_MAX:
            named += f" and {len(self.topics) - _NAMED_MAX} more"
        if self._is_future:
            days = (self.now_ms - self.clock_ms) // _DAY_MS
            why = f"--now, {_date(self.now_ms)}, is {days} days in the future"
        else:
            assert self.newest_ms is not None, "an archive is known by it"
            days = (self.now_ms - self.newest_ms) // _DAY_MS
            why = (
                f"the newest record is of {_date(self.newest_ms)}, {days} days before the moment "
                "of the cleaning, as in an archive or a backup"
            )
        return (
            f"retention leaves no record of {len(self.topics)} "
            f"topic{'s' if len(self.topics) > 1 else ''}, {self.size_bytes} bytes: "
            f"{named}; {why}"
        )


def emptied_topics(
    logs: Sequence[tuple[LogView, LogView]],
    others: Iterable[Path],
    *,
    now_ms: int,
    clock_ms: int,
    fs: FileSystem = OS,
) -> Emptied:
    """The topics of which retention leaves nothing that a reader can get.

    Args:
        logs: each as it is, and as retention would leave it.
        others: directories of the other partitions, for the newest record alone.
        now_ms: the moment of the cleaning.
        clock_ms: the time by the clock.
        fs: where the directories are.
    """
    readable: dict[str, int] = {}
    left: set[str] = set()
    for before, after in logs:
        topic = before.topic_partition.topic
        if before.size_bytes and before.log_start_offset < before.log_end_offset:
            readable[topic] = readable.get(topic, 0) + before.size_bytes
        if after.size_bytes:
            left.add(topic)
    gone = {topic: size for topic, size in readable.items() if topic not in left}
    newest = [segment.largest_record_timestamp for before, _ in logs for segment in before.segments]
    if gone:
        newest += [_newest_in(path, fs) for path in others]
    return Emptied(
        topics=tuple(sorted(gone)),
        size_bytes=sum(gone.values()),
        newest_ms=max([each for each in newest if 0 < each <= clock_ms], default=None),
        now_ms=now_ms,
        clock_ms=clock_ms,
    )


def _newest_in(directory: Path, fs: FileSystem) -> int:
    """The newest timestamp of a partition by its time indexes, else by its files; -1 for none."""
    try:
        names = sorted(fs.names_in(directory), reverse=True)
        for name in names:
            if name.endswith(TIME_INDEX_SUFFIX):
                timestamp = _last_entry(directory / name, fs)
                if timestamp > 0:
                    return timestamp
        times = [
            facts.modified_ns // 1_000_000
            for facts in (fs.facts_of(directory / n) for n in names if n.endswith(LOG_SUFFIX))
            if facts.size_bytes
        ]
        return max(times, default=-1)
    except OSError:  # it is not looked at for itself
        return -1


def _last_entry(path: Path, fs: FileSystem) -> int:
    with closing(fs.open(path)) as file:
        size = file.size() // ENTRY_BYTES * ENTRY_BYTES
        if not size:
            return -1
        timestamp: int = struct.unpack(">q", file.read_at(8, size - ENTRY_BYTES))[0]
        return timestamp


def _date(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
