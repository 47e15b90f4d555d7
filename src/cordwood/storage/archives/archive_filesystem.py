"""An archive as a file system: each log that it has is a partition's directory of Kafka's files.

The directory of the archive is one of a broker that has stopped in good order; its checkpoints are
made from the manifests, which are read once. Of a topic that was deleted and created again, its
last log is there. Only files of the log directory itself can be written, as that of legal holds,
and what tasks of a compaction stage.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NoReturn

from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_DIR,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from cordwood.format.offset_checkpoint import build_offset_checkpoint
from cordwood.format.varint import Buffer
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.archives.archive import Archive
from cordwood.storage.archives.directory_files import DirectoryFile, directory_files
from cordwood.storage.archives.manifest import DATA, DIRECTORY, ArchiveManifest
from cordwood.storage.archives.object_file import ObjectFile
from cordwood.storage.archives.staging import Staging
from cordwood.storage.filesystem import Entry, File, FileFacts, FileSystem, Lock
from cordwood.storage.read_only import missing, refuse

_MODE: Final = 0o644
#: How long to wait between two looks at what is staged.
_LOOK_AGAIN_S: Final = 0.5
#: What a file system without a limit has free.
_UNLIMITED: Final = 1 << 62

#: The lines of the checkpoints.
_LINES: Final[Mapping[str, Callable[[ArchiveManifest], int | None]]] = {
    RECOVERY_POINT_CHECKPOINT: lambda manifest: manifest.end_offset,
    REPLICATION_OFFSET_CHECKPOINT: lambda manifest: manifest.end_offset,
    LOG_START_OFFSET_CHECKPOINT: lambda manifest: manifest.log_start_offset,
    CLEANER_OFFSET_CHECKPOINT: lambda manifest: manifest.cleaner_offset,
}

Files = dict[str, DirectoryFile]


class ArchiveFileSystem(FileSystem):
    """The files of an archive, below the directory at which it is mounted.

    Every method raises `OSError` where object storage refuses or does not answer, and
    `CorruptError` where a manifest cannot be understood.
    """

    def __init__(self, archive: Archive, root: Path) -> None:
        """Reads nothing yet."""
        self.archive = archive
        self.root = root
        self.staging = Staging(archive.store, root / "staging")
        self._guard = threading.Lock()
        self._read: _Content | None = None

    def __getstate__(self) -> tuple[Archive, Path]:
        return self.archive, self.root

    def __setstate__(self, state: tuple[Archive, Path]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # an archive, and where it is mounted

    def refresh(self) -> None:
        """Has the manifests read again when they are next needed."""
        with self._guard:
            self._read = None

    def manifests(self) -> Mapping[TopicPartition, ArchiveManifest]:
        """The manifests of the logs that are there."""
        return self._content.manifests

    def object_path(self, key: str) -> Path:
        """The path of an object below `data/`, which is read without a manifest."""
        return self.root / key

    def commit(self, manifest: ArchiveManifest) -> None:
        """Puts the next manifest of a log, which is then what is there.

        Raises as `Archive.commit`.
        """
        self.archive.commit(manifest)
        self._content.take(manifest)

    def directory_objects(self) -> list[DirectoryFile]:
        """The files of the log directory itself that are objects, as `meta.properties`."""
        return [each for each in self._content.root.values() if each.key]

    @property
    def _content(self) -> _Content:
        with self._guard:
            if self._read is None:
                self._read = _Content(self.archive)
            return self._read

    def _directory(self, path: Path) -> Files | None:
        """The files of a directory, None where there is no such directory."""
        if path == self.root:
            return self._content.root
        return self._content.partitions.get(path.name) if path.parent == self.root else None

    def _file(self, path: Path) -> DirectoryFile:
        found = (self._directory(path.parent) or {}).get(path.name)
        if found is None:
            raise missing(path)
        return found

    # ---- looking

    def entries_in(self, directory: Path) -> list[Entry]:
        """Lists a directory by manifests."""
        if self.staging.has(directory):
            names = self.staging.names_in(directory)
            return [Entry(name, is_directory=False, is_regular=True) for name in names]
        files = self._directory(directory)
        if files is None:
            raise missing(directory)
        entries = [Entry(name, is_directory=False, is_regular=True) for name in files]
        if directory == self.root:
            entries += [Entry(name, is_directory=True) for name in self._content.partitions]
        return sorted(entries, key=lambda entry: entry.name)

    def exists(self, path: Path) -> bool:
        """Looks a path up."""
        if self.staging.has(path):
            return self.staging.size_of(path) is not None
        return self.is_directory(path) or path.name in (self._directory(path.parent) or {})

    def is_directory(self, path: Path) -> bool:
        """Looks a path up."""
        return not self.staging.has(path) and self._directory(path) is not None

    def facts_of(self, path: Path) -> FileFacts:
        """Gives a file the owner of this process."""
        size_bytes, modified_ns = 0, 0
        key = self._key_of(path)
        if key is not None:
            known = self._known(key)
            if known is None:
                size_bytes = ObjectFile(self.archive.store, key).size()
            else:
                size_bytes, modified_ns = known.size_bytes, known.modified_ns
        elif not self.is_directory(path):
            found = self._file(path)
            size_bytes, modified_ns = found.size_bytes, found.modified_ns
        return FileFacts(
            size_bytes=size_bytes,
            modified_ms=modified_ns // 1_000_000,
            modified_ns=modified_ns,
            mode=_MODE,
            uid=os.geteuid(),
            gid=os.getegid(),
        )

    def free_bytes(self, path: Path) -> int:
        """Has no limit."""
        return _UNLIMITED

    def identity_of(self, path: Path) -> object:
        """Returns the path."""
        if not self.exists(path):
            raise missing(path)
        return path

    def open(self, path: Path, *, write: bool = False) -> File:
        """Opens an object, for reading only."""
        if self.staging.has(path):
            return self.staging.opened(path)
        if write:
            refuse(path)
        key = self._key_of(path)
        if key is not None:
            known = self._known(key)
            return ObjectFile(self.archive.store, key, None if known is None else known.size_bytes)
        if self.is_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return self._file(path).opened(self.archive.store)

    def _known(self, key: str) -> DirectoryFile | None:
        """An object of a log; None for one of an earlier manifest, or if none was read here."""
        return None if self._read is None else self._read.by_key().get(key)

    def _key_of(self, path: Path) -> str | None:
        """The key of an object that a path names, None for a path that manifests explain."""
        if not path.is_relative_to(self.root / DATA):
            return None
        return str(path.relative_to(self.root))

    # ---- changing

    def replace_durably(self, path: Path, data: Buffer, *, model: FileFacts | None = None) -> None:
        """Puts a file of the log directory itself, as that of legal holds; refuses any other."""
        del model
        if path.parent != self.root or path.name in _LINES:
            refuse(path)
        self.archive.store.put(f"{DIRECTORY}{path.name}", bytes(data))
        self._content.read_objects()

    def create(self, path: Path) -> File:
        """Makes a staged file; refuses any other."""
        return self._staging_of(path).create(path)

    def rename(self, path: Path, target: Path) -> None:
        """Renames a staged file; refuses any other."""
        self._staging_of(target)
        fs = self._staging_of(path)
        fs.rename(path, target)

    def remove(self, path: Path) -> None:
        """Removes a staged file, or one of the log directory itself; refuses any other."""
        if path.parent == self.root and path.name not in _LINES:
            self.archive.store.delete([f"{DIRECTORY}{path.name}"])
            self._content.read_objects()
            return
        self._staging_of(path).remove(path)

    def digest_of(self, path: Path) -> str:
        """Knows the digest of a staged file."""
        return self._staging_of(path).digest_of(path)

    def look_again_s(self, path: Path) -> float:
        """Asks rarely: each look is a request."""
        return _LOOK_AGAIN_S

    def _staging_of(self, path: Path) -> Staging:
        if not self.staging.has(path):
            refuse(path)
        return self.staging

    def make_directory(self, path: Path) -> None:
        """Does nothing for what is staged; refuses any other."""
        self._staging_of(path)

    def remove_directory(self, path: Path) -> NoReturn:
        """Refuses."""
        refuse(path)

    def sync_directory(self, path: Path) -> None:
        """Does nothing: an object lasts when it is put."""

    def set_modified(self, path: Path, modified_ns: int) -> None:
        """Does nothing for what is staged; refuses any other."""
        self._staging_of(path)

    def take_after(self, path: Path, model: FileFacts) -> None:
        """Does nothing: an object has no owner."""

    def lock(self, directory: Path) -> Lock:
        """Takes none: of two writers, the commit of one is refused."""
        return _NoLock()


class _NoLock:
    def release(self) -> None:
        """Does nothing."""


class _Content:
    """The files of each directory, by the manifests."""

    def __init__(self, archive: Archive) -> None:
        self.manifests = _last_logs(archive.manifests())
        self.partitions = {
            str(partition): directory_files(manifest)
            for partition, manifest in self.manifests.items()
        }
        self._by_key: Files | None = None
        self._store = archive.store
        self.read_objects()

    def read_objects(self) -> None:
        """Lists the files of the log directory itself that are objects."""
        self._objects: Files = {}
        self._root: Files | None = None
        for each in self._store.list(DIRECTORY):
            name = each.key.removeprefix(DIRECTORY)
            self._objects[name] = DirectoryFile(
                name=name,
                key=each.key,
                size_bytes=each.size_bytes,
                modified_ns=each.modified_ms * 1_000_000,
            )

    def by_key(self) -> Files:
        """The objects of all logs, by their keys."""
        if self._by_key is None:
            self._by_key = {
                file.key: file
                for files in self.partitions.values()
                for file in files.values()
                if file.key
            }
        return self._by_key

    def take(self, manifest: ArchiveManifest) -> None:
        """Has a log be as its next manifest says."""
        partition = manifest.log.topic_partition
        self.manifests[partition] = manifest
        self.partitions[str(partition)] = directory_files(manifest)
        self._root = self._by_key = None

    @property
    def root(self) -> Files:
        """The files of the log directory itself: objects, and its checkpoints."""
        if self._root is None:
            self._root = {**self._objects, **self._checkpoints()}
        return self._root

    def _checkpoints(self) -> Files:
        found = {CLEAN_SHUTDOWN: DirectoryFile.made(CLEAN_SHUTDOWN, b"")}
        for name, line in _LINES.items():
            lines = {
                partition: offset
                for partition, manifest in self.manifests.items()
                if str(partition) != CLUSTER_METADATA_DIR and (offset := line(manifest)) is not None
            }
            found[name] = DirectoryFile.made(name, build_offset_checkpoint(lines))
        return found


def _last_logs(manifests: Iterable[ArchiveManifest]) -> dict[TopicPartition, ArchiveManifest]:
    """The manifests of each partition's last log; there is more than one if it was made again."""
    last: dict[TopicPartition, ArchiveManifest] = {}
    for manifest in sorted(manifests, key=lambda each: each.at_ms):
        last[manifest.log.topic_partition] = manifest
    return last
