"""Whether the directory of a trash is the one that was made, or another, or nothing is there.

A disk that is not mounted leaves an empty directory, or none: what a broker took for its trash then
would hold nothing, and vanish behind the disk when it is mounted again. So a trash has a file with
an id, and every log directory notes the id by the path of the trash. A trash is made once:

1. The directory and its id are written, durably. *After a crash:* it is taken as it is.
2. Each log directory gets the note, durably. From the first on, a directory without the id is not
   the trash, and is left alone. A log directory whose disk is full gets it later; any other error
   takes the log directory offline.

Kafka ignores a file of this name in a log directory: its loader looks at directories only.

Source: org.apache.kafka.storage.internals.log.LogManager.loadLogs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from cordwood.format.file_names import TRASH_ID, TRASH_MARK
from cordwood.model.errors import CorruptError, TrashError, TrashMissingError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.rng import Rng
from cordwood.storage.failures import FailureChannel
from cordwood.storage.filesystem import OS, FileSystem

_log = logging.getLogger(__name__)


def noted_trashes(log_dir: Path, *, fs: FileSystem = OS) -> dict[str, str]:
    """The ids of the trashes that brokers of a log directory have used, by absolute path.

    Raises:
        CorruptError: the note cannot be understood.
        OSError: it cannot be read.
    """
    path = log_dir / TRASH_MARK
    try:
        value: Any = json.loads(fs.read_bytes(path))
        if value["version"] != 1:
            raise ValueError(f"version {value['version']}")
        return {str(where): str(trash_id) for where, trash_id in value["trashes"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(
            f"not the note of which trashes were used ({error}); remove it if the trash is there",
            path=str(path),
        ) from error


def _note(log_dir: Path, trashes: Mapping[str, str], fs: FileSystem) -> None:
    path = log_dir / TRASH_MARK
    is_new = not fs.exists(path)
    data = json.dumps({"version": 1, "trashes": dict(trashes)}, sort_keys=True).encode() + b"\n"
    fs.replace_durably(path, data)
    if is_new:
        fs.take_after_directory(path, log_dir)


class TrashPresence:
    """Knows the id that a trash has to have; any thread may call."""

    def __init__(
        self,
        directory: Path,
        log_dirs: Sequence[Path],
        *,
        fs: FileSystem,
        failures: FailureChannel | None = None,
    ) -> None:
        """Reads what the log directories have noted; one that fails has noted nothing.

        Args:
            directory: the trash.
            log_dirs: those of a broker, locked.
            fs: the file system of all.
            failures: takes log directories offline.

        Raises:
            CorruptError: a note cannot be understood.
        """
        self._directory = directory
        self._log_dirs = list(log_dirs)
        #: Those that may lack the note.
        self._unnoted = list(log_dirs)
        self._fs = fs
        self._failures = failures or FailureChannel()
        self._id: str | None = None
        for log_dir in log_dirs:
            with suppress(StorageError), self._guard(log_dir):
                self._id = self._id or noted_trashes(log_dir, fs=fs).get(str(directory))

    def _guard(self, log_dir: Path) -> AbstractContextManager[None]:
        return self._failures.guard(log_dir, "noting the trash in")

    @property
    def was_made(self) -> bool:
        """Whether there was a trash already, which is not to be made again."""
        return self._id is not None

    def note_made(self, rng: Rng) -> None:
        """Gives the trash, whose directory is there, its id, and notes it where it is not yet.

        A full log directory is logged, and gets its note with the next call; one that fails goes
        offline. The caller has no lock that listeners for failures wait for.

        Raises:
            OSError, NoSpaceError: the disk of the trash refused.
        """
        fs, path = self._fs, self._directory / TRASH_ID
        if self._id is None:
            if not fs.exists(path):
                fs.replace_durably(path, rng.unique_id().encode() + b"\n")
            self._id = fs.read_bytes(path).decode("ascii", "replace").strip()
        unnoted = []
        for log_dir in self._unnoted:
            try:
                with self._guard(log_dir):
                    noted = noted_trashes(log_dir, fs=fs)
                    if noted.get(str(self._directory)) != self._id:
                        _note(log_dir, {**noted, str(self._directory): self._id}, fs)
            except (StorageError, CorruptError) as error:
                if log_dir not in self._failures.offline:
                    _log.warning(
                        "%s cannot be written, and will be at a later check: %s",
                        log_dir / TRASH_MARK,
                        error,
                    )
                    unnoted.append(log_dir)
        self._unnoted = unnoted

    def require(self) -> None:
        """Requires that the directory is the trash.

        Raises:
            TrashMissingError: it is missing, or another directory is in its place.
            TrashError: its id cannot be read, which says neither.
        """
        try:
            found = self._fs.read_bytes(self._directory / TRASH_ID)
        except (FileNotFoundError, NotADirectoryError) as error:
            is_there = self._fs.exists(self._directory)
            what = "the directory is there, and is not this trash" if is_there else "it is missing"
            raise TrashMissingError(f"{what}: {self._remedy}") from error
        except OSError as error:
            raise TrashError(f"its {TRASH_ID} cannot be read: {error}") from error
        if found.decode("ascii", "replace").strip() != self._id:
            raise TrashMissingError(f"it is another trash: {self._remedy}")

    @property
    def _remedy(self) -> str:
        marks = ", ".join(str(each / TRASH_MARK) for each in self._log_dirs)
        return (
            "mount its disk, or move it back. What is removed stays in the log directories until "
            f"then. If it is lost, stop the broker and remove {marks}: the next start makes one"
        )
