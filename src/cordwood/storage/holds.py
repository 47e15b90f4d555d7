"""The legal holds of a process's log directories, kept in a file of each.

Every directory has all holds, so that the cleaning of any one of them sees those on the partitions
that may be moved there. A hold counts while one directory has it: where the last write of a
directory failed, or it was offline, more is held than has to be, never less. If a directory's file
cannot be read, all of its partitions count as held.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cordwood.format.file_names import HOLDS_FILE
from cordwood.format.holds import build_holds, parse_holds
from cordwood.model.audit import HoldReleased, audit
from cordwood.model.documents import ABSENT
from cordwood.model.errors import ConfigError, CordwoodError, CorruptError, NoSpaceError
from cordwood.model.hold import Hold, require_line
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem

_log = logging.getLogger(__name__)

#: Stands for the ids of a file that cannot be read.
UNREADABLE = f"{HOLDS_FILE} cannot be read"


class HoldRegistry:
    """The holds in force; any thread may call, and `ids` takes no lock."""

    def __init__(
        self, fs: FileSystem, is_offline: Callable[[Path], bool] = lambda _: False
    ) -> None:
        """Empty until `read`; nothing is written to a directory that `is_offline`."""
        self._fs = fs
        self._is_offline = is_offline
        self._lock = threading.Lock()
        self._files: dict[Path, tuple[Hold, ...]] = {}
        self._damage: Mapping[Path, str] = {}
        # Replaced as a whole, for readers without the lock.
        self._by_topic: Mapping[str, tuple[Hold, ...]] = {}

    def read(self, log_dirs: Iterable[Path]) -> None:
        """Reads the files of these directories; what is wrong with one is in `damage`."""
        with self._lock:
            for log_dir in log_dirs:
                self._read_one(log_dir)
            self._index()

    def _read_one(self, log_dir: Path) -> None:
        damage = {path: text for path, text in self._damage.items() if path != log_dir}
        path = log_dir / HOLDS_FILE
        try:
            self._files[log_dir] = parse_holds(self._fs.read_bytes(path))
        except FileNotFoundError:
            self._files[log_dir] = ()
        except CorruptError as error:
            damage[log_dir] = str(error.located(path=str(path)))
        except OSError as error:
            damage[log_dir] = f"{path}: {error.strerror or error}"
        if log_dir in damage:
            self._files.setdefault(log_dir, ())
        self._damage = damage

    def _index(self) -> None:
        found: dict[str, dict[str, Hold]] = {}
        for holds in self._files.values():
            for hold in holds:
                found.setdefault(hold.topic, {}).setdefault(hold.id, hold)
        self._by_topic = {topic: tuple(holds.values()) for topic, holds in found.items()}

    def spread(self) -> None:
        """Writes all holds to directories that lack some; a write that fails is logged."""
        with self._lock:
            everything = self._all()
            for log_dir in self._writable():
                if len(self._files[log_dir]) == len(everything):
                    continue
                try:
                    self._write(log_dir, everything)
                except (OSError, NoSpaceError) as error:
                    _log.warning("The legal holds cannot be written to %s: %s", log_dir, error)

    # ---- queries

    def ids(self, partition: TopicPartition, log_dir: Path) -> tuple[str, ...]:
        """The ids of the holds on a partition in a directory."""
        if log_dir in self._damage:
            return (UNREADABLE,)
        holds = self._by_topic.get(partition.topic)
        return () if holds is None else tuple([h.id for h in holds if h.covers(partition)])

    def ids_of_topic(self, topic: str) -> tuple[str, ...]:
        """The ids of the holds on a topic or on one of its partitions."""
        return tuple([hold.id for hold in self._by_topic.get(topic, ())])

    def damage(self) -> Mapping[Path, str]:
        """Why the file of a directory cannot be read, by directory."""
        return self._damage

    def all(self) -> list[tuple[Hold, list[Path]]]:
        """Every hold, the oldest first, and the directories that have it."""
        with self._lock:
            holds = sorted(self._all(), key=lambda hold: (hold.created_ms, hold.id))
            return [(hold, self._having(hold.id)) for hold in holds]

    def _all(self) -> tuple[Hold, ...]:
        found: dict[str, Hold] = {}
        for holds in self._files.values():
            for hold in holds:
                found.setdefault(hold.id, hold)
        return tuple(found.values())

    def _having(self, hold_id: str) -> list[Path]:
        return [path for path, holds in self._files.items() if any(h.id == hold_id for h in holds)]

    # ---- changes

    def add(self, hold: Hold) -> None:
        """Writes a hold to every directory; on return it lasts.

        One that was added before with this id and target is completed where it is missing.

        Raises:
            ConfigError: there is another hold with this id.
            CordwoodError: the file of a directory cannot be read.
            OSError, NoSpaceError: it could not be written everywhere; where it is, it counts.
        """
        with self._lock:
            self._require_readable()
            known = next((each for each in self._all() if each.id == hold.id), None)
            lacking = [path for path in self._writable() if path not in self._having(hold.id)]
            if known is not None and (known.target != hold.target or not lacking):
                raise ConfigError(
                    f"--id {hold.id}: there is a hold with this id already, on {known.target}: "
                    f"{known.reason}"
                )
            for log_dir in lacking:
                self._write(log_dir, (*self._files[log_dir], known or hold))

    def release(self, hold_id: str, *, by: str) -> Hold:
        """Removes a hold from every directory, and returns it; notes in the audit log `by` whom.

        Raises:
            ConfigError: there is none with this id, or `by` is no name.
            CordwoodError: the file of a directory cannot be read.
            OSError, NoSpaceError: it could not be removed everywhere, and still counts.
        """
        require_line("--by", by)
        with self._lock:
            self._require_readable()
            known = next((each for each in self._all() if each.id == hold_id), None)
            if known is None:
                names = ", ".join(sorted(hold.id for hold in self._all())) or "none"
                raise ConfigError(f"--id {hold_id}: there is no such hold; there are: {names}")
            for log_dir in self._having(hold_id):
                if not self._is_offline(log_dir):
                    rest = tuple([each for each in self._files[log_dir] if each.id != hold_id])
                    self._write(log_dir, rest)
        audit(
            HoldReleased(
                hold=known.id,
                target=known.target,
                reason=known.reason,
                added_by=known.by,
                added_ms=known.created_ms,
                released_by=by,
            )
        )
        return known

    def _require_readable(self) -> None:
        """Reads damaged files again, which may have been repaired.

        Raises:
            CordwoodError: one still cannot be read.
        """
        for log_dir in list(self._damage):
            self._read_one(log_dir)
        self._index()
        for log_dir, text in self._damage.items():
            if not self._is_offline(log_dir):
                raise CordwoodError(text)

    def _writable(self) -> list[Path]:
        return [
            path for path in self._files if path not in self._damage and not self._is_offline(path)
        ]

    def _write(self, log_dir: Path, holds: tuple[Hold, ...]) -> None:
        path = log_dir / HOLDS_FILE
        is_new = not self._fs.exists(path)
        self._fs.replace_durably(path, build_holds(holds))
        if is_new:
            self._fs.take_after_directory(path, log_dir)
        self._files[log_dir] = holds
        self._index()


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldAnswer:
    """A hold, and the directories that note it; `partition` is None for a whole topic.

    `node_id` is the broker of a cluster that has it.
    """

    id: str
    topic: str
    partition: int | None
    reason: str
    by: str
    created_ms: int
    target: str
    log_dirs: Sequence[str]
    node_id: int | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """The holds, the oldest first, and by directory why its holds cannot be read."""

    holds: Sequence[HoldAnswer]
    unreadable: Mapping[str, str]


def holds_of(registry: HoldRegistry) -> Holds:
    """The holds of log directories."""
    return Holds(
        holds=[
            HoldAnswer(**asdict(hold), target=hold.target, log_dirs=[*map(str, log_dirs)])
            for hold, log_dirs in registry.all()
        ],
        unreadable={str(path): text for path, text in registry.damage().items()},
    )
