"""Mounts archives, so that a URL names a log directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cordwood.storage.archives.archive import Archive
from cordwood.storage.archives.archive_filesystem import ArchiveFileSystem
from cordwood.storage.filesystem import OS
from cordwood.storage.objects.object_store import ObjectStore

_MARK: Final = "://"


def mount_archive(url: str, options: Mapping[str, str] | None = None) -> Path:
    """The directory at which the archive below a URL is mounted in this process: `/s3:/BUCKET/…`.

    Its manifests are read when they are needed; where it is mounted already, again.

    Args:
        url: of the archive.
        options: as of `ObjectStore`.

    Raises:
        ConfigError: the URL is not one of object storage.
    """
    store = ObjectStore(url, options)
    root = directory_of(store.url)
    mounted = OS.mounted(root)
    if isinstance(mounted, ArchiveFileSystem) and options is None:
        mounted.refresh()
    else:
        OS.mount(root, ArchiveFileSystem(Archive(store), root))
    return root


def mounted_archive(url: str, options: Mapping[str, str] | None = None) -> ArchiveFileSystem:
    """The files of the archive below a URL, which is mounted.

    Takes and raises what `mount_archive` does.
    """
    found = OS.mounted(mount_archive(url, options))
    assert isinstance(found, ArchiveFileSystem), "an archive is mounted"
    return found


def directory_of(url: str) -> Path:
    """The directory at which an archive is mounted."""
    scheme, _, rest = url.partition(_MARK)
    return Path("/", f"{scheme}:", rest.strip("/"))
