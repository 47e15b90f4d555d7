"""Archives and restores in child processes that are killed in the middle.

`python -m support.archive_killing KIND LOG_DIR ARCHIVE AT...` forks a child for each AT, which dies
by SIGKILL before the step of that number, and prints how each ended: `killed`, or `done` with the
number of its steps. A `%` in LOG_DIR is the number of the child, from 0. Steps are the requests of
an archive, or the changes to files of a restore.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from cordwood.storage.filesystem import OsFile, OsFileSystem
from cordwood.storage.objects.object_store import ObjectStore
from support.archives import archive_in, archived, restored

ARCHIVE: Final = "archive"
RESTORE: Final = "restore"

_STEPS: Final[dict[str, tuple[tuple[type, str], ...]]] = {
    ARCHIVE: ((ObjectStore, "put"), (ObjectStore, "put_new"), (ObjectStore, "list")),
    RESTORE: (
        (OsFileSystem, "create"),
        (OsFileSystem, "make_directory"),
        (OsFileSystem, "rename"),
        (OsFileSystem, "remove_directory"),
        (OsFileSystem, "set_modified"),
        (OsFileSystem, "sync_directory"),
        (OsFile, "sync"),
        (OsFile, "write_at"),
    ),
}


def killed_at(kind: str, log_dir: Path, archive: Path, *steps: int) -> list[str]:
    """Runs one child for each step, one after another; how they ended."""
    command = [sys.executable, "-m", "support.archive_killing", kind, str(log_dir), str(archive)]
    ended = subprocess.run(
        [*command, *map(str, steps)], check=True, stdout=subprocess.PIPE, text=True, timeout=600
    )
    return ended.stdout.splitlines()


class _Steps:
    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def take(self) -> None:
        """Counts one, and dies if it is the last."""
        with self._lock:
            self.count += 1
            if self.count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def _counted(function: Callable[..., Any], steps: _Steps) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        steps.take()
        return function(*args, **options)

    return counted


def _in_child(kind: str, log_dir: Path, archive: Path, kill_at: int) -> int:
    """The number of steps of a run that was not killed."""
    steps = _Steps(kill_at)
    for owner, name in _STEPS[kind]:
        setattr(owner, name, _counted(getattr(owner, name), steps))
    if kind == ARCHIVE:
        is_complete = archived(archive_in(archive), log_dir, has_active=True).is_complete
    else:
        is_complete = restored(archive_in(archive), log_dir).is_complete
    assert is_complete, "a run that nothing disturbs is complete"
    return steps.count


def main(arguments: Sequence[str]) -> None:
    """Forks the children."""
    kind, log_dir, archive, *steps = arguments
    for number, each in enumerate(steps):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            count = -1
            try:
                count = _in_child(
                    kind, Path(log_dir.replace("%", str(number))), Path(archive), int(each)
                )
            finally:
                os.write(writer, str(count).encode())
                os._exit(0)
        os.close(writer)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        ended = "killed" if status == -signal.SIGKILL else f"done {said}"
        sys.stdout.write(f"{ended}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
