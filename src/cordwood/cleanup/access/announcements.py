"""The files by which a compaction's tasks and the owner of its log communicate.

They are beside the segments, with the suffix of staged files, and are removed with these:

- `wanted`: the compaction's mark. The owner creates it before the compaction begins and removes it
to cancel it. A task that does not find it ends. Removing a file needs no space on a full disk.
- `manifest`: a group is staged and durable. The owner removes it when the group is in place.
- one file for each running task: the number of bytes it has processed.

Every write of a compaction beside the segments is inside `staging_errors`, so that its failure is
never taken for a failure of the log.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.model.errors import EngineError, NoSpaceError, StagingError
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.replace import STAGED_SUFFIX


@contextmanager
def staging_errors(path: Path) -> Iterator[None]:
    """Raises the errors of a write beside the segments as errors of staging.

    Raises:
        NoSpaceError: the file system is full.
        FileNotFoundError: the directory no longer exists.
        StagingError: any other error of the file system.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StagingError(
            f"the staged file {path} cannot be written: {error}; the log is as it was"
        ) from error


def wanted_mark(directory: Path, attempt: str) -> Path:
    """The mark of one attempt at a compaction."""
    return directory / f"cordwood.wanted.{attempt}{STAGED_SUFFIX}"


def begin_attempt(directory: Path, attempt: str, *, fs: FileSystem) -> None:
    """Creates the mark of an attempt; its tasks may start.

    Raises:
        NoSpaceError, StagingError, FileNotFoundError: it cannot be created.
    """
    mark = wanted_mark(directory, attempt)
    with staging_errors(mark):
        fs.create(mark).close()


def end_attempt(directory: Path, attempt: str, *, fs: FileSystem) -> None:
    """Removes the mark: the tasks of this attempt end.

    Raises:
        NoSpaceError, StagingError: the mark cannot be removed.
    """
    mark = wanted_mark(directory, attempt)
    with staging_errors(mark), suppress(FileNotFoundError):
        fs.remove(mark)


def require_wanted(directory: Path, attempt: str, *, fs: FileSystem) -> None:
    """Checks that the owner of the log has not given the compaction up.

    Raises:
        EngineError: it has.
    """
    if not fs.exists(wanted_mark(directory, attempt)):
        raise EngineError("the compaction was given up")


def announce(directory: Path, manifest: Manifest, *, fs: FileSystem) -> Path:
    """Makes a manifest visible to the owner of the log; its file.

    Raises:
        NoSpaceError, StagingError, FileNotFoundError: it cannot be written; nothing is left of it.
    """
    path = manifest_path(directory, manifest.base_offset, manifest.token)
    temporary = path.with_name(f"{uuid.uuid4().hex[:8]}.announcing{STAGED_SUFFIX}")
    with staging_errors(path):
        try:
            fs.write_file(temporary, json.dumps(manifest.to_json()).encode())
            fs.rename(temporary, path)
        except (OSError, NoSpaceError):
            with suppress(OSError, NoSpaceError):
                fs.remove(temporary)
            raise
    return path


def remove_staged(directory: Path, *, fs: FileSystem) -> None:
    """Removes what a run that was killed has staged in a directory.

    Raises:
        OSError, NoSpaceError: a file cannot be removed.
    """
    for name in _names(directory, "", fs):
        fs.remove(directory / name)


def manifest_path(directory: Path, base_offset: int, token: str) -> Path:
    """The path of a group's manifest."""
    return directory / f"{base_offset:020d}.manifest.{token}{STAGED_SUFFIX}"


def announced(
    directory: Path, base_offset: int, attempt: str, *, fs: FileSystem
) -> Manifest | None:
    """The manifest of a group, once a task of this attempt at the compaction has announced it."""
    prefix = f"{base_offset:020d}.manifest.{attempt}"
    for name in _names(directory, prefix, fs):
        with suppress(FileNotFoundError, ValueError):
            return Manifest.from_json(json.loads(fs.read_bytes(directory / name)))
    return None


def progress_path(directory: Path, phase: str) -> Path:
    """A new file for a task to report in how many bytes it has processed."""
    return directory / f"cordwood.{phase}.{uuid.uuid4().hex[:12]}{STAGED_SUFFIX}"


def write_progress(path: Path, count: int, *, fs: FileSystem) -> None:
    """Reports `count` bytes. If it cannot be written, the compaction continues without it."""
    with suppress(OSError, NoSpaceError):
        fs.write_file(path, str(count).encode())


def progress_bytes(directory: Path, phase: str, *, fs: FileSystem) -> int:
    """The sum of what the tasks of a phase have reported so far."""
    total = 0
    for name in _names(directory, f"cordwood.{phase}.", fs):
        with suppress(OSError, ValueError):
            total += int(fs.read_bytes(directory / name))
    return total


def _names(directory: Path, prefix: str, fs: FileSystem) -> list[str]:
    """The staged files whose names begin with `prefix`; none if the directory does not exist."""
    try:
        names = fs.names_in(directory)
    except FileNotFoundError:
        return []
    return [name for name in names if name.startswith(prefix) and name.endswith(STAGED_SUFFIX)]
