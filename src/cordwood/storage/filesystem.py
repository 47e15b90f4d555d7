"""The operating system's files, in one place: everything that opens, writes, renames or removes.

`FileSystem` is what the storage layer needs of one: a dozen primitives, and what can be made of
them. `OS` is the real one; `cordwood.testing.simulated_filesystem` is another, which crashes.

Durability is explicit: bytes last after `File.sync`, names after `sync_directory`.
`replace_durably` and its like do both. Source of the replace:
org.apache.kafka.common.utils.Utils.atomicMoveWithFallback and
org.apache.kafka.server.common.CheckpointFile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import stat
import struct
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from cordwood.format.varint import Buffer
from cordwood.model.errors import DirectoryInUseError, NoSpaceError, NotARegularFileError

_FULL = {errno.ENOSPC, errno.EDQUOT}
# IOV_MAX of Linux: what one call takes.
_PARTS_MAX = 1024
# Linux's struct flock of 64 bits: type, whence, start, length, process.
_FLOCK = "hhqqi4x"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """The metadata of a file."""

    size_bytes: int
    modified_ms: int
    modified_ns: int
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a directory; `is_directory` is true of a link to one, too.

    `is_regular` is true of a regular file; not of a link, which has to be looked at.
    """

    name: str
    is_directory: bool
    is_link: bool = False
    is_regular: bool = False


class File(Protocol):
    """An open file. It closes itself when nothing refers to it any more."""

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Reads up to `size_bytes` from `position`; fewer at the end of the file."""

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads from `position` into `view`; how many bytes came, 0 at the end of the file."""

    def read_ahead(self) -> None:
        """Hints that the file will be read from start to end."""

    def write_at(self, parts: Sequence[Buffer], position: int) -> None:
        """Writes all of `parts`, one behind the other, from `position` on.

        Raises:
            NoSpaceError: the file system is full; some of it may have been written.
        """

    def truncate(self, size_bytes: int) -> None:
        """Cuts the file off, or extends it by zeros."""

    def sync(self) -> None:
        """Returns when the file's bytes and length are on disk."""

    def size(self) -> int:
        """The file's length in bytes."""

    def fileno(self) -> int:
        """The descriptor, for sendfile.

        Raises:
            OSError: the file has none.
        """

    def close(self) -> None:
        """Closes the file now."""


class Lock(Protocol):
    """A directory's `.lock`, held."""

    def release(self) -> None:
        """Removes the file and lets go of the lock."""


class FileSystem(ABC):
    """Files and directories by path."""

    # ---- looking

    @abstractmethod
    def entries_in(self, directory: Path) -> list[Entry]:
        """The entries of a directory, by name."""

    @abstractmethod
    def exists(self, path: Path) -> bool:
        """Whether there is such a file or directory."""

    @abstractmethod
    def is_directory(self, path: Path) -> bool:
        """Whether there is such a directory."""

    @abstractmethod
    def facts_of(self, path: Path) -> FileFacts:
        """Size, modification time, owner and mode of a file or directory.

        Raises:
            OSError: it cannot be reached.
        """

    @abstractmethod
    def free_bytes(self, path: Path) -> int:
        """The free bytes of the file system of `path`."""

    def open_files_max(self) -> int:
        """The number of files that this process may have open at a time."""
        return 1024

    def space(self, path: Path) -> tuple[int, int]:
        """Bytes of the file system that holds `path`: in all, and left to use; -1 if not known."""
        return -1, self.free_bytes(path)

    def identity_of(self, path: Path) -> object:
        """A key that is equal for two paths exactly if they are the same file or directory.

        Raises:
            OSError: it cannot be reached.
        """
        return path.resolve()

    def is_same_file_system(self, path: Path, other: Path) -> bool:
        """Whether two directories share the space of one file system.

        Raises:
            OSError: one cannot be reached.
        """
        return True

    def require_regular(self, path: Path) -> None:
        """Checks that a file, if there is one, is a regular one or a link to one.

        Raises:
            NotARegularFileError, IsADirectoryError: it is something else.
        """
        if self.is_directory(path):
            raise _not_regular(path, is_directory=True)

    def is_open_for_writing(self, path: Path) -> bool:
        """Whether another process has a file open for writing; False where that is not known."""
        return False

    def is_mounted(self, path: Path) -> bool:
        """Whether a path is of another file system, which was mounted in this one."""
        return False

    def digest_of(self, path: Path) -> str:
        """The SHA-256, in hexadecimal, of a file that this process has written; "" if not known."""
        return ""

    def look_again_s(self, path: Path) -> float:
        """Seconds to wait, at least, between two looks at a file that somebody else may write."""
        return 0.0

    def lock_holder(self, directory: Path) -> int | None:
        """The process that holds Kafka's `.lock` of a directory, as `DirectoryLock.holder`."""
        return None

    @abstractmethod
    def open(self, path: Path, *, write: bool = False) -> File:
        """Opens a file that is there.

        Raises:
            NotARegularFileError, IsADirectoryError: it is no regular file.
            OSError: it cannot be opened.
        """

    # ---- changing

    @abstractmethod
    def create(self, path: Path) -> File:
        """A new, empty file in the place of any of that name, open for reading and writing."""

    @abstractmethod
    def rename(self, path: Path, target: Path) -> None:
        """Renames a file or directory, replacing a file; lasting after `sync_directory`."""

    @abstractmethod
    def remove(self, path: Path) -> None:
        """Removes a file; one that is gone already is no error."""

    @abstractmethod
    def make_directory(self, path: Path) -> None:
        """Makes a directory, and those above it; one that is there is no error."""

    @abstractmethod
    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""

    @abstractmethod
    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory, and their removal, last through a power loss."""

    @abstractmethod
    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Sets a file's modification time, nanoseconds since the epoch."""

    @abstractmethod
    def take_after(self, path: Path, model: FileFacts) -> None:
        """Sets the owner, group and mode of `path` to those of `model`; the owner needs root."""

    @abstractmethod
    def lock(self, directory: Path) -> Lock:
        """Takes Kafka's `.lock` of a directory.

        Raises:
            DirectoryInUseError: somebody else holds it.
        """

    # ---- made of these

    def names_in(self, directory: Path) -> list[str]:
        """The names in a directory, sorted."""
        return [entry.name for entry in self.entries_in(directory)]

    def read_bytes(self, path: Path) -> bytes:
        """A whole file."""
        file = self.open(path)
        try:
            return file.read_at(file.size(), 0)
        finally:
            file.close()

    def make_directory_durably(self, directory: Path) -> None:
        """Makes a directory with a name that lasts: nothing in it lasts longer."""
        missing = [path for path in (directory, *directory.parents) if not self.exists(path)]
        if missing:
            self.make_directory(directory)
        for path in missing:
            self.sync_directory(path.parent)

    def write_file(self, path: Path, data: Buffer) -> None:
        """Writes a whole file, without making it durable."""
        file = self.create(path)
        try:
            file.write_at([data], 0)
        finally:
            file.close()

    def write_durably(self, path: Path, data: Buffer) -> None:
        """Writes a whole file and its directory entry; on return both are on disk."""
        self._write(path, data)
        self.sync_directory(path.parent)

    def replace_durably(self, path: Path, data: Buffer, *, model: FileFacts | None = None) -> None:
        """Replaces a small file at once: a crash leaves the old content or the new, no mixture.

        The new file takes owner and mode of the one it replaces, or of `model` when there is none.
        """
        temporary = path.with_name(path.name + ".tmp")
        with suppress(FileNotFoundError):
            model = self.facts_of(path)
        try:
            self._write(temporary, data)
            if model is not None:
                self.take_after(temporary, model)
            self.rename(temporary, path)
        except (OSError, NoSpaceError):
            with suppress(OSError, NoSpaceError):
                self.remove(temporary)
            raise
        self.sync_directory(path.parent)

    def append_durably(self, path: Path, data: Buffer) -> None:
        """Adds to the end of a small file; on return it is on disk."""
        file = self.open(path, write=True)
        try:
            file.write_at([data], file.size())
            file.sync()
        finally:
            file.close()

    def take_after_directory(self, path: Path, directory: Path) -> None:
        """Sets a file's owner and group to those of its directory; does nothing unless root."""
        owner, own = self.facts_of(directory), self.facts_of(path)
        self.take_after(
            path,
            FileFacts(
                size_bytes=own.size_bytes,
                modified_ms=own.modified_ms,
                modified_ns=own.modified_ns,
                mode=own.mode,
                uid=owner.uid,
                gid=owner.gid,
            ),
        )

    def remove_tree(self, directory: Path) -> None:
        """Removes a directory and all in it; one that is gone already is no error."""
        try:
            entries = self.entries_in(directory)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_directory and not entry.is_link:
                self.remove_tree(directory / entry.name)
            else:
                self.remove(directory / entry.name)
        self.remove_directory(directory)

    def _write(self, path: Path, data: Buffer) -> None:
        file = self.create(path)
        try:
            file.write_at([data], 0)
            file.sync()
        finally:
            file.close()


class FileWriter:
    """A new file, written once from start to end.

    Raises:
        NoSpaceError: the file system is full.
    """

    def __init__(self, path: Path, *, fs: FileSystem | None = None) -> None:
        self.path = path
        self.size_bytes = 0
        self._file = (fs or OS).create(path)

    def write(self, data: Buffer) -> None:
        """Appends all of `data`."""
        view = memoryview(data).cast("B")
        self._file.write_at([view], self.size_bytes)
        self.size_bytes += view.nbytes

    def close(self, *, durably: bool = True) -> None:
        """Closes the file, by default after an fsync."""
        try:
            if durably:
                self._file.sync()
        finally:
            self._file.close()


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Turns the system's error of a full disk into `NoSpaceError`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpaceError(f"{path}: the file system is full") from error
        raise


def _not_regular(path: Path, *, is_directory: bool) -> OSError:
    if is_directory:
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return NotARegularFileError(errno.EINVAL, "not a regular file", str(path))


class OsFile:
    """A `File` of the operating system."""

    __slots__ = ("_handle", "_path")

    def __init__(self, path: Path, flags: int) -> None:
        self._handle = -1
        self._path = path
        with room_for(path):
            # Without O_NONBLOCK the open of a FIFO waits for its other end.
            self._handle = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        mode = os.fstat(self._handle).st_mode
        if not stat.S_ISREG(mode):
            self.close()
            raise _not_regular(path, is_directory=stat.S_ISDIR(mode))

    def __del__(self) -> None:
        self.close()

    def read_at(self, size_bytes: int, position: int) -> bytes:
        """Reads by pread."""
        try:
            return os.pread(self._handle, size_bytes, position)
        except OSError as error:
            raise self._named(error) from error

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads by preadv, into the caller's memory."""
        assert position >= 0, f"{self._path}: position {position}"  # -1 is where it last stood
        try:
            return os.preadv(self._handle, [view], position)
        except OSError as error:
            raise self._named(error) from error

    def read_ahead(self) -> None:
        """Advises the kernel; a file system that refuses is ignored."""
        with suppress(OSError):
            os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def write_at(self, parts: Sequence[Buffer], position: int) -> None:
        """Writes by pwritev, again until all is written."""
        assert position >= 0, f"{self._path}: position {position}"  # -1 is where it last stood
        if len(parts) > _PARTS_MAX:
            parts = [b"".join(parts)]
        try:
            written = os.pwritev(self._handle, parts, position)
            total = sum([len(part) for part in parts])
            if written < total:
                rest = memoryview(b"".join(parts))[written:]
                while rest:
                    position += written
                    written = os.pwrite(self._handle, rest, position)
                    rest = rest[written:]
        except OSError as error:
            raise self._named(error) from error

    def truncate(self, size_bytes: int) -> None:
        """Calls ftruncate."""
        try:
            os.ftruncate(self._handle, size_bytes)
        except OSError as error:
            raise self._named(error) from error

    def sync(self) -> None:
        """Calls fsync, of bytes and length."""
        if self._handle < 0:  # which the function takes for a bug of its caller
            raise self._named(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise self._named(error) from error

    def size(self) -> int:
        """Calls fstat."""
        return os.fstat(self._handle).st_size

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._handle

    def close(self) -> None:
        """Closes the descriptor, once."""
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            os.close(handle)

    def _named(self, error: OSError) -> Exception:
        """The error with the file's name, which the system does not give for a descriptor."""
        if error.errno in _FULL:
            return NoSpaceError(f"{self._path}: the file system is full")
        return OSError(error.errno, error.strerror, str(self._path))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a circle of links
        return False


class OsFileSystem(FileSystem):
    """The machine's file system."""

    def entries_in(self, directory: Path) -> list[Entry]:
        """Lists a directory by scandir, sorted by name."""
        with os.scandir(directory) as found:
            entries = [
                Entry(entry.name, is_directory=False, is_regular=True)
                if entry.is_file(follow_symlinks=False)
                else Entry(entry.name, _is_directory(entry), entry.is_symlink())
                for entry in found
            ]
        entries.sort(key=lambda entry: entry.name)
        return entries

    def names_in(self, directory: Path) -> list[str]:
        """Lists a directory without a look at each entry."""
        return sorted(os.listdir(directory))

    def exists(self, path: Path) -> bool:
        """Looks a path up; follows links."""
        return os.path.exists(path)  # three times as fast as the method

    def is_directory(self, path: Path) -> bool:
        """Looks a path up; follows links."""
        return path.is_dir()

    def facts_of(self, path: Path) -> FileFacts:
        """Calls stat."""
        status = os.stat(path)  # as above
        return FileFacts(
            size_bytes=status.st_size,
            modified_ms=status.st_mtime_ns // 1_000_000,
            modified_ns=status.st_mtime_ns,
            mode=status.st_mode & 0o7777,
            uid=status.st_uid,
            gid=status.st_gid,
        )

    def is_same_file_system(self, path: Path, other: Path) -> bool:
        """Compares the devices."""
        return path.stat().st_dev == other.stat().st_dev

    def identity_of(self, path: Path) -> tuple[int, int]:
        """Returns device and inode, which bind mounts share."""
        status = os.stat(path)
        return status.st_dev, status.st_ino

    def require_regular(self, path: Path) -> None:
        """Checks the type by stat."""
        with suppress(FileNotFoundError):
            mode = os.stat(path).st_mode
            if not stat.S_ISREG(mode):
                raise _not_regular(path, is_directory=stat.S_ISDIR(mode))

    def is_open_for_writing(self, path: Path) -> bool:
        """Asks for a read lease, which the kernel refuses if a writer has the file open.

        Not known are files of other users, to all but root, and those of network file systems.
        """
        with closing(OsFile(path, os.O_RDONLY)) as file:
            try:
                fcntl.fcntl(file.fileno(), fcntl.F_SETLEASE, fcntl.F_RDLCK)
                fcntl.fcntl(file.fileno(), fcntl.F_SETLEASE, fcntl.F_UNLCK)
            except OSError as error:
                return error.errno == errno.EAGAIN
        return False

    def free_bytes(self, path: Path) -> int:
        """Reads the free space of the file system."""
        return shutil.disk_usage(path).free

    def space(self, path: Path) -> tuple[int, int]:
        """Reads total and free space of the file system."""
        usage = shutil.disk_usage(path)
        return usage.total, usage.free

    def open_files_max(self) -> int:
        """Returns the soft limit of open files of this process."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft if soft != resource.RLIM_INFINITY else sys.maxsize

    def lock_holder(self, directory: Path) -> int | None:
        """Asks the system for the holder of the lock."""
        return DirectoryLock.holder(directory)

    def open(self, path: Path, *, write: bool = False) -> OsFile:
        """Opens a file, for reading or for both."""
        return OsFile(path, os.O_RDWR if write else os.O_RDONLY)

    def create(self, path: Path) -> OsFile:
        """Opens a file, emptied or new."""
        return OsFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def rename(self, path: Path, target: Path) -> None:
        """Calls rename, which replaces a file at once."""
        with room_for(target):
            path.replace(target)

    def remove(self, path: Path) -> None:
        """Unlinks a file."""
        with room_for(path):
            path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Makes a directory and its parents."""
        with room_for(path):
            path.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""
        with room_for(path):
            path.rmdir()

    def sync_directory(self, path: Path) -> None:
        """Calls fsync on the directory."""
        with room_for(path):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from error
            finally:
                os.close(handle)

    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Sets both times of a file, in nanoseconds."""
        with room_for(path):
            os.utime(path, ns=(modified_ns, modified_ns))

    def take_after(self, path: Path, model: FileFacts) -> None:
        """Changes mode, and as root owner and group."""
        with room_for(path):
            if os.geteuid() == 0:
                os.chown(path, model.uid, model.gid)
            path.chmod(model.mode)

    def lock(self, directory: Path) -> Lock:
        """Takes a POSIX record lock on `.lock`."""
        return DirectoryLock(directory)

    def copy_link(self, path: Path, target: Path) -> None:
        """Makes `target` a link that leads where the link `path` leads."""
        with room_for(target):
            os.symlink(os.readlink(path), target)


class MountedFileSystem(FileSystem):
    """The machine's file system, and others, each below a directory that the machine does not have.

    So an archive in object storage is read as a log directory is. A path is given to the file
    system that it is of.
    """

    def __init__(self, base: OsFileSystem) -> None:
        self._base = base
        self._mounts: dict[Path, FileSystem] = {}

    def mount(self, directory: Path, fs: FileSystem) -> None:
        """Has paths at and below `directory` be those of `fs`, in this process.

        One that is mounted below another hides what that one has there.
        """
        self._mounts[directory] = fs

    def mounted(self, directory: Path) -> FileSystem | None:
        """The file system mounted at a directory, None if there is none."""
        return self._mounts.get(directory)

    def is_mounted(self, path: Path) -> bool:
        """Whether a path is of a file system that was mounted."""
        return self.at(path) is not self._base

    def at(self, path: Path) -> FileSystem:
        """The file system that a path is of."""
        if not self._mounts:
            return self._base
        mounts = self._mounts
        found = [each for each in (path, *path.parents) if each in mounts]
        return mounts[found[0]] if found else self._base

    def entries_in(self, directory: Path) -> list[Entry]:
        """Lists a directory, sorted by name."""
        return self.at(directory).entries_in(directory)

    def names_in(self, directory: Path) -> list[str]:
        """Lists the names in a directory, sorted."""
        return self.at(directory).names_in(directory)

    def exists(self, path: Path) -> bool:
        """Looks a path up."""
        return self.at(path).exists(path)

    def is_directory(self, path: Path) -> bool:
        """Looks a path up."""
        return self.at(path).is_directory(path)

    def facts_of(self, path: Path) -> FileFacts:
        """Looks a file up."""
        return self.at(path).facts_of(path)

    def free_bytes(self, path: Path) -> int:
        """Asks for free space."""
        return self.at(path).free_bytes(path)

    def open_files_max(self) -> int:
        """Asks for the limit of this process."""
        return self._base.open_files_max()

    def space(self, path: Path) -> tuple[int, int]:
        """Asks for total and free space."""
        return self.at(path).space(path)

    def identity_of(self, path: Path) -> object:
        """Asks for a key of the file or directory."""
        return self.at(path).identity_of(path)

    def is_same_file_system(self, path: Path, other: Path) -> bool:
        """Compares the file systems of two directories."""
        fs = self.at(path)
        return fs is self.at(other) and fs.is_same_file_system(path, other)

    def require_regular(self, path: Path) -> None:
        """Checks that a file is regular."""
        self.at(path).require_regular(path)

    def is_open_for_writing(self, path: Path) -> bool:
        """Asks whether another process writes to a file."""
        return self.at(path).is_open_for_writing(path)

    def lock_holder(self, directory: Path) -> int | None:
        """Asks for the holder of a lock."""
        return self.at(directory).lock_holder(directory)

    def open(self, path: Path, *, write: bool = False) -> File:
        """Opens a file."""
        return self.at(path).open(path, write=write)

    def create(self, path: Path) -> File:
        """Makes a file."""
        return self.at(path).create(path)

    def rename(self, path: Path, target: Path) -> None:
        """Renames within one file system.

        Raises:
            OSError: the paths are of two.
        """
        fs = self.at(path)
        if fs is not self.at(target):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(path), None, str(target))
        fs.rename(path, target)

    def remove(self, path: Path) -> None:
        """Removes a file."""
        self.at(path).remove(path)

    def make_directory(self, path: Path) -> None:
        """Makes a directory and its parents."""
        self.at(path).make_directory(path)

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""
        self.at(path).remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        """Has the names in a directory last."""
        self.at(path).sync_directory(path)

    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Sets a file's times."""
        self.at(path).set_modified(path, modified_ns)

    def take_after(self, path: Path, model: FileFacts) -> None:
        """Sets owner and mode."""
        self.at(path).take_after(path, model)

    def replace_durably(self, path: Path, data: Buffer, *, model: FileFacts | None = None) -> None:
        """Replaces a small file at once."""
        fs = self.at(path)
        # The machine's is made of primitives: of those of this object, which a test may replace.
        if fs is self._base:
            super().replace_durably(path, data, model=model)
        else:
            fs.replace_durably(path, data, model=model)

    def digest_of(self, path: Path) -> str:
        """Asks for the digest of a file."""
        return self.at(path).digest_of(path)

    def look_again_s(self, path: Path) -> float:
        """Asks how long to wait."""
        return self.at(path).look_again_s(path)

    def lock(self, directory: Path) -> Lock:
        """Takes the lock of a directory."""
        return self.at(directory).lock(directory)

    def copy_link(self, path: Path, target: Path) -> None:
        """Copies a link of the machine's file system."""
        self._base.copy_link(path, target)


#: The file system of this machine, and what is mounted in it.
OS = MountedFileSystem(OsFileSystem())


class DirectoryLock:
    """Kafka's `.lock`: while held, no broker starts on the directory, nor a second `clean`.

    Source: org.apache.kafka.storage.internals.utils.FileLock (a POSIX record lock on an empty
    file, removed again when released).
    """

    # A process does not exclude itself by such a lock, and loses it when it closes the file again.
    # The value is the process: a forked child has the names, and not the locks.
    _held: ClassVar[dict[Path, int]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, directory: Path) -> None:
        self._path = directory.resolve() / ".lock"
        with self._guard:
            if self._held.get(self._path) == os.getpid():
                raise self._in_use(directory)
            existed = self._path.exists()
            with room_for(self._path):
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(self._handle)
                if error.errno not in {errno.EACCES, errno.EAGAIN}:
                    raise
                raise self._in_use(directory) from None
            self._held[self._path] = os.getpid()
        if not existed:
            OS.take_after_directory(self._path, directory)

    @staticmethod
    def _in_use(directory: Path) -> DirectoryInUseError:
        return DirectoryInUseError(
            f"Failed to acquire lock on file .lock in {directory}. A Kafka instance in another "
            "process or thread is using this directory."
        )

    @classmethod
    def holder(cls, directory: Path) -> int | None:
        """The process that holds the lock, None if none does; the lock is not taken to see it.

        0 stands for a process of another machine or container.

        Raises:
            OSError: the file cannot be opened.
        """
        path = directory.resolve() / ".lock"
        with cls._guard:
            if cls._held.get(path) == os.getpid():  # closing the file would let go of the lock
                return os.getpid()
            try:
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, _, _, _, pid = struct.unpack(
                    _FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked)
                )
            finally:
                os.close(handle)
        return None if kind == fcntl.F_UNLCK else max(0, pid)

    def release(self) -> None:
        """Removes the file and lets go of the lock, of this even if the file cannot be removed."""
        try:
            OS.remove(self._path)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with self._guard:
            self._held.pop(self._path, None)
            os.close(self._handle)
