"""The files of a partition's directory by its manifest: objects, and files that it implies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.leader_epoch_checkpoint import build_leader_epoch_checkpoint
from cordwood.format.partition_metadata import build_partition_metadata
from cordwood.storage.archives.manifest import ArchivedFile, ArchiveManifest
from cordwood.storage.archives.object_file import ObjectFile
from cordwood.storage.filesystem import File
from cordwood.storage.objects.object_store import ObjectStore
from cordwood.storage.read_only import BytesFile


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFile:
    """A file of a directory: an object, or a content that is known; `sha256` is "" if it is not.

    `modified_ns` is its modification time, nanoseconds since the epoch.
    """

    name: str
    size_bytes: int
    modified_ns: int
    key: str = ""
    sha256: str = ""
    content: bytes | None = None

    @classmethod
    def of(cls, file: ArchivedFile) -> DirectoryFile:
        """The file that an object is."""
        return cls(
            name=file.name,
            size_bytes=file.size_bytes,
            modified_ns=file.modified_ns,
            key=file.key,
            sha256=file.sha256,
        )

    @classmethod
    def made(cls, name: str, content: bytes, *, at_ms: int = 0) -> DirectoryFile:
        """A file with a content that is known."""
        return cls(
            name=name, size_bytes=len(content), modified_ns=at_ms * 1_000_000, content=content
        )

    def opened(self, store: ObjectStore) -> File:
        """The file, open; of an object nothing is read yet."""
        if self.content is not None:
            return BytesFile(self.name, self.content)
        return ObjectFile(store, self.key, self.size_bytes)


def directory_files(manifest: ArchiveManifest) -> dict[str, DirectoryFile]:
    """The files of a partition's directory, by name.

    They are those of the manifest, `leader-epoch-checkpoint`, `partition.metadata`, and the empty
    active segment of a log of which only closed segments are archived.
    """
    found = {each.name: DirectoryFile.of(each) for each in manifest.files}
    for name, content in _implied(manifest):
        found[name] = DirectoryFile.made(name, content, at_ms=manifest.at_ms)
    return found


def _implied(manifest: ArchiveManifest) -> Iterator[tuple[str, bytes]]:
    if not manifest.has_active_segment:
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            yield segment_file_name(manifest.end_offset, suffix), b""
    if manifest.leader_epochs:
        epochs = [(each.epoch, each.start_offset) for each in manifest.leader_epochs]
        yield LEADER_EPOCH_CHECKPOINT, build_leader_epoch_checkpoint(epochs)
    if manifest.log.topic_id.int:
        yield PARTITION_METADATA, build_partition_metadata(manifest.log.topic_id)
