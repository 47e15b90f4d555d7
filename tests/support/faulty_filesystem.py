"""The machine's files, of which operations of one kind on files of one kind fail.

What fails is in a file of a control directory, so that a test can change it at any moment, for this
process and for others that were given the file system: it is picklable.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cordwood.format.varint import Buffer
from cordwood.model.errors import NoSpaceError
from cordwood.storage.filesystem import FileFacts, OsFile, OsFileSystem

#: What every operation is made to fail with.
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES}

_FULL = {errno.ENOSPC, errno.EDQUOT}
_TOKEN = re.compile(
    r"(?<=[.])[0-9a-f]{8,32}(?=[.])|^[0-9a-f]{8}(?=\.announcing)|(?<=\.)[0-9a-f]{32}"
)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One kind of operation on one kind of file: `file` has * for tokens and N for numbers."""

    kind: str
    file: str


def kind_of_file(path: Path) -> str:
    """A file by its directory and its name, without numbers and tokens."""
    names = (_NUMBER.sub("N", _TOKEN.sub("*", name)) for name in path.parts[-2:])
    return "/".join(names)


class Faults:
    """Failures below a directory, by a control directory, and the operations there."""

    def __init__(self, control: Path, root: Path) -> None:
        """Nothing fails.

        Args:
            control: holds the plan and the trace; outside of `root`.
            root: only what lies below it fails, and is noted.
        """
        self.control = control
        self.root = root
        control.mkdir(parents=True, exist_ok=True)

    def begin(self, site: Site, number: int) -> None:
        """Has all operations of a kind fail with that error number."""
        temporary = self.control / "plan.new"
        temporary.write_text(json.dumps(asdict(site) | {"errno": number}))
        temporary.replace(self.control / "plan")

    def end(self) -> None:
        """Has nothing fail any more."""
        (self.control / "plan").unlink(missing_ok=True)

    def watch(self) -> None:
        """Notes what is done from now on."""
        (self.control / "trace").write_text("")

    def seen(self) -> list[Site]:
        """Each kind of operation that was done since `watch`, once; no more are noted."""
        lines = (self.control / "trace").read_text().splitlines()
        (self.control / "trace").unlink()
        return sorted({Site(*line.split("\t")) for line in lines})

    def check(self, kind: str, path: Path) -> None:
        """Checks an operation that changes something, before it is done.

        Raises:
            NoSpaceError, OSError: it is to fail.
        """
        if not path.is_relative_to(self.root):
            return
        with suppress(FileNotFoundError):
            handle = os.open(self.control / "trace", os.O_WRONLY | os.O_APPEND)
            os.write(handle, f"{kind}\t{kind_of_file(path)}\n".encode())
            os.close(handle)
        try:
            plan = json.loads((self.control / "plan").read_bytes())
        except FileNotFoundError:
            return
        if plan["kind"] == kind and plan["file"] == kind_of_file(path):
            with (self.control / "failed").open("a") as file:
                file.write(f"{kind}\t{path}\n")
            if plan["errno"] in _FULL:
                raise NoSpaceError(f"{path}: the file system is full")
            raise OSError(plan["errno"], os.strerror(plan["errno"]), str(path))

    def failures(self) -> int:
        """The number of operations that have failed since the last call."""
        path = self.control / "failed"
        count = len(path.read_text().splitlines()) if path.exists() else 0
        path.unlink(missing_ok=True)
        return count


class FaultyFileSystem(OsFileSystem):
    """See the module."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults

    def open(self, path: Path, *, write: bool = False) -> OsFile:
        """Opens a file whose reads are counted."""
        return _File(path, os.O_RDWR if write else os.O_RDONLY, self.faults)

    def create(self, path: Path) -> OsFile:
        """Creates a file, unless that is to fail."""
        self.faults.check("create", path)
        return _File(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, self.faults)

    def rename(self, path: Path, target: Path) -> None:
        """Renames, unless that is to fail; the operation is known by the new name."""
        self.faults.check("rename", target)
        super().rename(path, target)

    def remove(self, path: Path) -> None:
        """Removes a file, unless that is to fail."""
        if self.exists(path):
            self.faults.check("remove", path)
        super().remove(path)

    def make_directory(self, path: Path) -> None:
        """Makes a directory, unless that is to fail."""
        if not self.exists(path):
            self.faults.check("make directory", path)
        super().make_directory(path)

    def remove_directory(self, path: Path) -> None:
        """Removes a directory, unless that is to fail."""
        self.faults.check("remove directory", path)
        super().remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        """Syncs a directory, unless that is to fail."""
        self.faults.check("sync directory", path)
        super().sync_directory(path)

    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Sets a modification time, unless that is to fail."""
        self.faults.check("set modified", path)
        super().set_modified(path, modified_ns)

    def take_after(self, path: Path, model: FileFacts) -> None:
        """Copies owner and mode, unless that is to fail."""
        self.faults.check("take after", path)
        super().take_after(path, model)


class _File(OsFile):
    __slots__ = ("_at", "_faults")

    def __init__(self, path: Path, flags: int, faults: Faults) -> None:
        super().__init__(path, flags)
        self._at = path
        self._faults = faults

    def write_at(self, parts: Sequence[Buffer], position: int) -> None:
        self._faults.check("write", self._at)
        super().write_at(parts, position)

    def truncate(self, size_bytes: int) -> None:
        self._faults.check("truncate", self._at)
        super().truncate(size_bytes)

    def sync(self) -> None:
        self._faults.check("sync", self._at)
        super().sync()
