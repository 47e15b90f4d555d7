"""URLs as log directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.model.errors import ConfigError
from cordwood.storage.archives.archive_filesystem import ArchiveFileSystem
from cordwood.storage.archives.mount import directory_of, mount_archive, mounted_archive
from cordwood.storage.filesystem import OS
from support.archives import archive_in, manifest_of


@pytest.mark.parametrize(
    ("url", "directory"),
    [
        ("s3://bucket/some/prefix", "/s3:/bucket/some/prefix"),
        ("s3://bucket", "/s3:/bucket"),
        ("file:///mnt/archive", "/file:/mnt/archive"),
    ],
)
def test_a_url_has_a_directory_of_its_own(url: str, directory: str) -> None:
    assert directory_of(url) == Path(directory)


def test_a_mounted_archive_is_read_by_the_paths_below_it(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    archive.commit(manifest_of())
    root = mount_archive(f"{archive.url}/")
    assert root == Path(f"/file:{tmp_path}")
    assert OS.is_directory(root)
    assert OS.is_directory(root / "t-0")
    assert "partition.metadata" in OS.names_in(root / "t-0")
    assert not OS.exists(tmp_path / "t-0")


def test_an_archive_that_is_mounted_again_is_read_again(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    root = mount_archive(archive.url)
    assert not OS.exists(root / "t-0")
    archive.commit(manifest_of())
    assert not OS.exists(root / "t-0")
    mounted = OS.mounted(root)
    assert mount_archive(archive.url) == root
    assert OS.mounted(root) is mounted
    assert OS.exists(root / "t-0")


def test_one_that_is_mounted_with_options_takes_the_place_of_the_other(tmp_path: Path) -> None:
    first = mounted_archive(f"file://{tmp_path}")
    assert isinstance(first, ArchiveFileSystem)
    assert mounted_archive(f"file://{tmp_path}") is first
    assert mounted_archive(f"file://{tmp_path}", {}) is not first


@pytest.mark.parametrize("url", ["ftp://host/archive", "s3://", "hdfs://namenode/archive"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        mount_archive(url)
