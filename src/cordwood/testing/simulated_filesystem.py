"""A file system in memory that can lose power at any moment of a test.

It promises what POSIX and Linux promise, and no more:

- `File.sync` persists a file's bytes and length, but not its name; `sync_directory` persists the
  names in one directory, but not that directory's own name, nor any bytes.
- An unsynced write may persist, or not, or in part: its first bytes, or any of its 512-byte
  sectors. Later writes may persist when earlier ones do not.
- Where a write is lost, the file may still have the new length: with zeros, with its previous
  bytes, or with any bytes where it had none.
- An unsynced truncation may be undone, also beneath later writes.
- Of the unsynced changes of names in a directory, those up to some moment persist, in order; each
  directory has a moment of its own. A rename is atomic: one between directories persists together
  with all earlier changes in both. If a directory's name is lost, everything below it is lost.
- After a failed sync, the bytes that were to be synced are lost, even if a later sync succeeds;
  programs can read them until the system goes down. Names that failed to sync may still persist.
- When a process is killed nothing is lost. Its locks are released, their files remain.

Simplified: modes and owners are not checked, times and owners are never lost, there are no links.

`on_operation` and `fail` are called before an operation takes effect, on the thread that calls it,
with the file system locked; they may inspect it and copy it. They are not called for operations
that fail or that change nothing, such as the removal of a missing file.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from cordwood.format.varint import Buffer
from cordwood.model.clock import Clock
from cordwood.model.errors import DirectoryInUseError, NoSpaceError
from cordwood.storage.filesystem import Entry, File, FileFacts, FileSystem, Lock
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_disk import (
    ROOT,
    ByChance,
    Content,
    DataChange,
    DirectoryNode,
    EverythingLasted,
    FileNode,
    Nodes,
    NothingLasted,
    Outcome,
    Ownership,
    after_power_loss,
    fingerprint,
    reachable,
    sync_names,
    unsettled,
)
from cordwood.testing.simulated_tree import Tree, system_error

_PLENTY = 1 << 50
_FULL = {errno.ENOSPC, errno.EDQUOT}
_TRIES_PER_IMAGE = 4


class FileOperationKind(Enum):
    """The kind of a file operation; kinds from READ on change nothing."""

    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    RENAME = "rename"
    REMOVE = "remove"
    MAKE_DIRECTORY = "make directory"
    REMOVE_DIRECTORY = "remove directory"
    SYNC_DIRECTORY = "sync directory"
    SET_MODIFIED = "set modified"
    TAKE_AFTER = "take after"
    READ = "read"
    OPEN = "open"
    LIST = "list"
    LOOK = "look"


_LOOKING = {
    FileOperationKind.READ,
    FileOperationKind.OPEN,
    FileOperationKind.LIST,
    FileOperationKind.LOOK,
}


class FileOperation(NamedTuple):
    """One operation, before it takes effect.

    `size` is the bytes of a read or write, or the length of a truncation. `path` of a file opened
    before its rename is its old path.
    """

    kind: FileOperationKind
    path: Path
    size: int = 0
    target: Path | None = None


class SimulatedFileSystem(FileSystem):
    """Files in memory, by absolute path; see the module for what persists.

    Args:
        clock: for modification times.
        capacity_bytes: the limit of the lengths of all files together; None for no limit.

    Attributes:
        operations: how many changing operations have begun.
        on_operation: called before each of them; if it raises, the operation does not happen.
        fail: called before each operation, reads too; the error that it returns is raised.
    """

    def __init__(self, clock: Clock | None = None, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.on_operation: Callable[[FileOperation], None] | None = None
        self.fail: Callable[[FileOperation], OSError | None] | None = None
        self._clock = clock or ManualClock()
        self._mutex = threading.RLock()
        self._locked: dict[int, object] = {}
        self._open_files: WeakSet[_SimulatedFile] = WeakSet()
        self._tree = Tree({ROOT: DirectoryNode(self._new_owner(0o755), {}, {})})

    # ---- copies

    def crash_images(self, limit: int, rng: random.Random) -> Iterator[SimulatedFileSystem]:
        """File systems in the states that are possible after a power loss at this moment.

        First the one where only synced changes persisted, then the one where all changes did, then
        random different ones, up to `limit` in all; fewer if fewer states are possible. Each is
        independent of this one.
        """
        with self._mutex:
            nodes = reachable(self._tree.nodes, [ROOT])
        return self._images(nodes, limit, rng)

    def _images(
        self, nodes: Nodes, limit: int, rng: random.Random
    ) -> Iterator[SimulatedFileSystem]:
        open_to_chance = unsettled(nodes)
        sure: tuple[Outcome, ...] = (NothingLasted(), EverythingLasted())
        seen = set()
        for outcome in sure[:limit]:
            found = after_power_loss(nodes, outcome)
            seen.add(fingerprint(found, open_to_chance))
            yield self._copy(found)
        made = len(sure)
        tries = _TRIES_PER_IMAGE * limit if open_to_chance else 0
        for _ in range(tries):
            if made >= limit:
                return
            found = after_power_loss(nodes, ByChance(rng))
            mark = fingerprint(found, open_to_chance)
            if mark not in seen:
                seen.add(mark)
                made += 1
                yield self._copy(found)

    def process_crash(self) -> SimulatedFileSystem:
        """The file system that the next process sees if all processes are killed at this moment.

        Bytes and names are there; unsynced changes may still be lost to a power loss. Locks are
        released.
        """
        with self._mutex:
            return self._copy(reachable(self._tree.nodes, [ROOT]))

    def clone(self) -> SimulatedFileSystem:
        """A copy of the file system, with its locks, but without hooks or open files."""
        with self._mutex:
            copy = self.process_crash()
            copy._locked = dict(self._locked)
            return copy

    def _copy(self, nodes: Nodes) -> SimulatedFileSystem:
        copy = SimulatedFileSystem(self._clock, capacity_bytes=self.capacity_bytes)
        copy._tree = Tree(nodes, self._tree.next_id)
        return copy

    def load(self, source: Path, at: Path | None = None) -> None:
        """Copies a real directory into this file system; then all there is is on disk.

        Args:
            source: the real directory.
            at: where it is to be, `source` itself unless given.
        """
        at = source.absolute() if at is None else at
        with self._mutex:
            self._load(source, at)
            nodes = self._tree.nodes
            for node_id, node in nodes.items():
                if isinstance(node, FileNode):
                    nodes[node_id] = node.synced()
                else:
                    nodes[node_id] = node._replace(durable=node.live, pending=())

    def _load(self, source: Path, at: Path) -> None:
        self._make_directories(at)
        for path in sorted(source.iterdir()):
            target = at / path.name
            if path.is_dir():
                self._load(path, target)
                continue
            facts = path.stat()
            content = Content.of(path.read_bytes())
            owner = Ownership(facts.st_mode & 0o7777, facts.st_uid, facts.st_gid, facts.st_mtime_ns)
            node = FileNode(owner, live=content, durable=content)
            place = self._tree.place_of(target)
            self._change_names((*place, self._tree.add(node)))

    def store(self, target: Path, of: Path = Path("/")) -> None:
        """Copies the directory `of`, as programs see it, to a real directory."""
        with self._mutex:
            target.mkdir(parents=True, exist_ok=True)
            for name, node_id in self._tree.find_directory(of)[1].live.items():
                node = self._tree.nodes[node_id]
                if isinstance(node, DirectoryNode):
                    self.store(target / name, of / name)
                    continue
                path = target / name
                path.write_bytes(node.live.read(0, node.live.size))
                path.chmod(node.ownership.mode)
                os.utime(path, ns=(node.ownership.modified_ns, node.ownership.modified_ns))

    # ---- looking

    def entries_in(self, directory: Path) -> list[Entry]:
        """The entries of a directory, by name."""
        with self._mutex:
            _, node = self._tree.find_directory(directory)
            self._announce(FileOperation(FileOperationKind.LIST, directory))
            found = []
            for name, node_id in sorted(node.live.items()):
                is_directory = isinstance(self._tree.nodes[node_id], DirectoryNode)
                found.append(Entry(name, is_directory, is_regular=not is_directory))
            return found

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory."""
        with self._mutex:
            return self._tree.look(path) is not None

    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory."""
        with self._mutex:
            return isinstance(self._tree.look(path), DirectoryNode)

    def facts_of(self, path: Path) -> FileFacts:
        """Size, owner, mode and time of modification."""
        with self._mutex:
            node = self._tree.nodes[self._tree.find(path)]
            self._announce(FileOperation(FileOperationKind.LOOK, path))
            owner = node.ownership
            return FileFacts(
                size_bytes=node.live.size if isinstance(node, FileNode) else 0,
                modified_ms=owner.modified_ns // 1_000_000,
                modified_ns=owner.modified_ns,
                mode=owner.mode,
                uid=owner.uid,
                gid=owner.gid,
            )

    def identity_of(self, path: Path) -> object:
        """The identity of a file: one that replaces another is another one."""
        with self._mutex:
            return self._tree.find(path)

    def free_bytes(self, path: Path) -> int:
        """The free space of the simulated disk."""
        with self._mutex:
            self._tree.find(path)
            return self._room()

    def open(self, path: Path, *, write: bool = False) -> File:
        """Opens a file."""
        with self._mutex:
            node_id = self._tree.find(path)
            if isinstance(self._tree.nodes[node_id], DirectoryNode):
                raise system_error(errno.EISDIR, path)
            self._announce(FileOperation(FileOperationKind.OPEN, path))
            return self._opened(node_id, path, write=write)

    # ---- changing

    def create(self, path: Path) -> File:
        """Creates a file, or empties the one there is."""
        with self._mutex:
            place = self._tree.place_of(path)
            node_id = self._tree.named(place)
            if node_id is not None and isinstance(self._tree.nodes[node_id], DirectoryNode):
                raise system_error(errno.EISDIR, path)
            self._announce(FileOperation(FileOperationKind.CREATE, path))
            if node_id is None:
                node_id = self._tree.add(FileNode(self._new_owner(0o644)))
                self._change_names((*place, node_id))
            else:
                self._tree.change(node_id, DataChange(0, None), self._now_ns())
            return self._opened(node_id, path, write=True)

    def rename(self, path: Path, target: Path) -> None:
        """Renames a file or a directory; a sync of the directory makes the new name last."""
        with self._mutex:
            try:
                node_id, source_place, target_place = self._rename_of(path, target)
            except OSError as error:
                raise system_error(error.errno or errno.EIO, path, target) from None
            if self._tree.named(target_place) == node_id:
                return
            self._announce(FileOperation(FileOperationKind.RENAME, path, target=target))
            self._change_names((*source_place, None), (*target_place, node_id))

    def _rename_of(self, path: Path, target: Path) -> tuple[int, tuple[int, str], tuple[int, str]]:
        """(node, its place, the new one) of a rename that is allowed."""
        source_place, target_place = self._tree.place_of(path), self._tree.place_of(target)
        node_id, replaced_id = self._tree.find(path), self._tree.named(target_place)
        if node_id == replaced_id:
            return node_id, source_place, target_place
        if target.is_relative_to(path):
            raise system_error(errno.EINVAL, path)
        if path.is_relative_to(target):
            raise system_error(errno.ENOTEMPTY, path)
        if replaced_id is not None:
            replaced = self._tree.nodes[replaced_id]
            if isinstance(self._tree.nodes[node_id], FileNode):
                if isinstance(replaced, DirectoryNode):
                    raise system_error(errno.EISDIR, path)
            elif isinstance(replaced, FileNode):
                raise system_error(errno.ENOTDIR, path)
            elif replaced.live:
                raise system_error(errno.ENOTEMPTY, path)
        return node_id, source_place, target_place

    def remove(self, path: Path) -> None:
        """Removes a file; a sync of the directory makes that last."""
        with self._mutex:
            try:
                place = self._tree.place_of(path)
            except FileNotFoundError:
                return
            node_id = self._tree.named(place)
            if node_id is None:
                return
            if isinstance(self._tree.nodes[node_id], DirectoryNode):
                raise system_error(errno.EISDIR, path)
            self._announce(FileOperation(FileOperationKind.REMOVE, path))
            self._change_names((*place, None))

    def make_directory(self, path: Path) -> None:
        """Creates a directory and its parents."""
        with self._mutex:
            self._make_directories(path, announce=True)

    def _make_directories(self, path: Path, *, announce: bool = False) -> None:
        node = self._tree.look(path)
        if node is not None:
            if isinstance(node, FileNode):
                raise system_error(errno.EEXIST, path)
            return
        try:
            place = self._tree.place_of(path)
        except FileNotFoundError:
            self._make_directories(path.parent, announce=announce)
            place = self._tree.place_of(path)
        if announce:
            self._announce(FileOperation(FileOperationKind.MAKE_DIRECTORY, path))
        node_id = self._tree.add(DirectoryNode(self._new_owner(0o755), {}, {}))
        self._change_names((*place, node_id))

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""
        with self._mutex:
            _, node = self._tree.find_directory(path)
            if node.live:
                raise system_error(errno.ENOTEMPTY, path)
            place = self._tree.place_of(path)
            self._announce(FileOperation(FileOperationKind.REMOVE_DIRECTORY, path))
            self._change_names((*place, None))

    def sync_directory(self, path: Path) -> None:
        """Makes the names of the directory last."""
        with self._mutex:
            node_id, _ = self._tree.find_directory(path)
            self._announce(FileOperation(FileOperationKind.SYNC_DIRECTORY, path))
            sync_names(self._tree.nodes, node_id)

    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Sets the time of modification."""
        with self._mutex:
            node_id = self._tree.find(path)
            self._announce(FileOperation(FileOperationKind.SET_MODIFIED, path))
            owner = self._tree.nodes[node_id].ownership
            self._tree.own(node_id, owner._replace(modified_ns=modified_ns))

    def take_after(self, path: Path, model: FileFacts) -> None:
        """Copies owner and mode, as root can."""
        with self._mutex:
            node_id = self._tree.find(path)
            self._announce(FileOperation(FileOperationKind.TAKE_AFTER, path))
            owner = self._tree.nodes[node_id].ownership
            self._tree.own(node_id, Ownership(model.mode, model.uid, model.gid, owner.modified_ns))

    def lock(self, directory: Path) -> Lock:
        """Locks a directory; a lock held by the same process counts as held."""
        with self._mutex:
            node_id, _ = self._tree.find_directory(directory)
            if node_id in self._locked:
                raise DirectoryInUseError(
                    f"Failed to acquire lock on file .lock in {directory}. A Kafka instance in "
                    "another process or thread is using this directory."
                )
            path = directory / ".lock"
            if not self.exists(path):
                self.create(path)
                self.take_after_directory(path, directory)
            lock = self._locked[node_id] = _SimulatedLock(self, node_id, path)
            return lock

    # ---- inside

    def _announce(self, operation: FileOperation) -> None:
        if operation.kind not in _LOOKING:
            self.operations += 1
            if self.on_operation is not None:
                self.on_operation(operation)
        error = self.fail(operation) if self.fail is not None else None
        if error is not None:
            if error.errno in _FULL:
                raise NoSpaceError(f"{operation.path}: the file system is full") from error
            raise error

    def _opened(self, node_id: int, path: Path, *, write: bool) -> _SimulatedFile:
        file = _SimulatedFile(self, node_id, path, writable=write)
        self._open_files.add(file)
        return file

    def _open_ids(self) -> list[int]:
        return [file.node_id for file in self._open_files if not file.closed]

    def _new_owner(self, mode: int) -> Ownership:
        return Ownership(mode, 0, 0, self._now_ns())

    def _now_ns(self) -> int:
        return self._clock.now_ms() * 1_000_000

    def _change_names(self, *steps: tuple[int, str, int | None]) -> None:
        self._tree.change_names(*steps, now_ns=self._now_ns())
        self._tree.clear_away(self._open_ids())

    def _room(self) -> int:
        if self.capacity_bytes is None:
            return _PLENTY
        return max(0, self.capacity_bytes - self._tree.used_bytes(self._open_ids()))


class _SimulatedFile:
    """An open file; it is that file still when another takes its name."""

    __slots__ = ("__weakref__", "_fs", "_path", "_writable", "closed", "node_id")

    def __init__(
        self, fs: SimulatedFileSystem, node_id: int, path: Path, *, writable: bool
    ) -> None:
        self._fs = fs
        self._path = path
        self._writable = writable
        self.node_id = node_id
        self.closed = False

    def _node(self, *, write: bool = False) -> FileNode:
        self._require_open(write=write)
        node = self._fs._tree.nodes[self.node_id]
        if isinstance(node, DirectoryNode):
            raise system_error(errno.EISDIR, self._path)
        return node

    def _require_open(self, *, write: bool = False) -> None:
        if self.closed or (write and not self._writable):
            raise system_error(errno.EBADF, self._path)

    def _change(self, change: DataChange) -> None:
        self._fs._tree.change(self.node_id, change, self._fs._now_ns())

    def read_at(self, size_bytes: int, position: int) -> bytes:
        fs = self._fs
        with fs._mutex:
            node = self._node()
            if position < 0:
                raise system_error(errno.EINVAL, self._path)
            fs._announce(FileOperation(FileOperationKind.READ, self._path, size_bytes))
            return node.live.read(position, size_bytes)

    def read_into(self, view: memoryview, position: int) -> int:
        assert position >= 0, f"{self._path}: position {position}"
        data = self.read_at(view.nbytes, position)
        view.cast("B")[: len(data)] = data
        return len(data)

    def read_ahead(self) -> None:
        pass

    def write_at(self, parts: Sequence[Buffer], position: int) -> None:
        assert position >= 0, f"{self._path}: position {position}"
        fs = self._fs
        data = b"".join(parts)
        with fs._mutex:
            node = self._node(write=True)
            if not data:
                return
            fs._announce(FileOperation(FileOperationKind.WRITE, self._path, len(data)))
            more = position + len(data) - node.live.size
            kept = len(data) - max(0, more - fs._room()) if more > 0 else len(data)
            if kept > 0:
                self._change(DataChange(position, data[:kept]))
            if kept < len(data):
                raise NoSpaceError(f"{self._path}: the file system is full")

    def truncate(self, size_bytes: int) -> None:
        fs = self._fs
        with fs._mutex:
            self._require_open()
            if not self._writable or size_bytes < 0:
                raise system_error(errno.EINVAL, self._path)
            if self._node().live.size != size_bytes:
                fs._announce(FileOperation(FileOperationKind.TRUNCATE, self._path, size_bytes))
                self._change(DataChange(size_bytes, None))

    def sync(self) -> None:
        fs = self._fs
        with fs._mutex:
            self._require_open()
            nodes = fs._tree.nodes
            node = nodes[self.node_id]
            if isinstance(node, DirectoryNode):
                fs._announce(FileOperation(FileOperationKind.SYNC_DIRECTORY, self._path))
                sync_names(nodes, self.node_id)
                return
            try:
                fs._announce(FileOperation(FileOperationKind.SYNC, self._path, node.live.size))
            except (OSError, NoSpaceError):
                nodes[self.node_id] = node.failed_to_sync()
                raise
            nodes[self.node_id] = node.synced()

    def size(self) -> int:
        with self._fs._mutex:
            self._require_open()
            node = self._fs._tree.nodes[self.node_id]
            return node.live.size if isinstance(node, FileNode) else 0

    def fileno(self) -> int:
        raise OSError(errno.ENOTSUP, "a file in memory has no descriptor", str(self._path))

    def close(self) -> None:
        self.closed = True


class _SimulatedLock:
    """A lock held on a directory."""

    def __init__(self, fs: SimulatedFileSystem, node_id: int, path: Path) -> None:
        self._fs = fs
        self._node_id = node_id
        self._path = path

    def release(self) -> None:
        fs = self._fs
        with fs._mutex:
            if fs._locked.get(self._node_id) is self:
                try:
                    fs.remove(self._path)
                finally:
                    del fs._locked[self._node_id]
