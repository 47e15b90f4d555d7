"""An archive as a file system: looked at as a log directory is, and never changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID, uuid_text
from cordwood.storage.archives.archive import Archive
from cordwood.storage.archives.archive_filesystem import ArchiveFileSystem
from support.archives import archive_in, archived_segment, manifest_of

ROOT = Path("/file:/archive")
PARTITION = ROOT / "t-0"
LOG = "00000000000000000000.log"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = archive_in(tmp_path)
    segment = archived_segment(0, 10)
    archive.store.put(segment.files[0].key, b"0123456789")
    archive.store.put("directory/meta.properties", b"version=1\n")
    archive.commit(manifest_of(segment, log_start_offset=3, cleaner_offset=5))
    archive.commit(manifest_of(topic="__cluster_metadata", has_active_segment=True))
    return archive


@pytest.fixture
def fs(archive: Archive) -> ArchiveFileSystem:
    return ArchiveFileSystem(archive, ROOT)


def test_the_directory_is_one_of_a_broker_that_stopped_in_good_order(
    fs: ArchiveFileSystem,
) -> None:
    entries = {entry.name: entry for entry in fs.entries_in(ROOT)}
    assert {name for name, each in entries.items() if each.is_directory} == {
        "t-0",
        "__cluster_metadata-0",
    }
    assert {name for name, each in entries.items() if each.is_regular} == {
        ".kafka_cleanshutdown",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert fs.names_in(ROOT) == sorted(entries)
    assert fs.read_bytes(ROOT / "meta.properties") == b"version=1\n"
    assert [each.name for each in fs.directory_objects()] == ["meta.properties"]


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("recovery-point-offset-checkpoint", 10),
        ("replication-offset-checkpoint", 10),
        ("log-start-offset-checkpoint", 3),
        ("cleaner-offset-checkpoint", 5),
    ],
)
def test_checkpoints_are_made_of_manifests(fs: ArchiveFileSystem, name: str, offset: int) -> None:
    lines = parse_offset_checkpoint(fs.read_bytes(ROOT / name))
    assert lines == {TopicPartition("t", 0): offset}


def test_files_of_a_partition_are_found_and_read(fs: ArchiveFileSystem) -> None:
    assert LOG in fs.names_in(PARTITION)
    assert fs.exists(PARTITION / LOG)
    assert fs.is_directory(PARTITION)
    assert fs.is_directory(ROOT)
    assert not fs.is_directory(PARTITION / LOG)
    facts = fs.facts_of(PARTITION / LOG)
    assert (facts.size_bytes, facts.modified_ns) == (10, 1)
    assert fs.read_bytes(PARTITION / LOG) == b"0123456789"
    assert fs.identity_of(PARTITION) != fs.identity_of(PARTITION / LOG)
    assert fs.facts_of(PARTITION).size_bytes == 0


@pytest.mark.parametrize(
    "path", [PARTITION / "x.log", ROOT / "u-0" / LOG, ROOT / "t-0" / "a" / LOG]
)
def test_what_is_not_there_is_a_missing_file(fs: ArchiveFileSystem, path: Path) -> None:
    assert not fs.exists(path)
    for ask in (fs.facts_of, fs.open, fs.identity_of, fs.entries_in):
        with pytest.raises(FileNotFoundError) as raised:
            ask(path)
        assert raised.value.filename == str(path)


def test_a_directory_is_not_opened(fs: ArchiveFileSystem) -> None:
    with pytest.raises(IsADirectoryError):
        fs.open(PARTITION)


@pytest.mark.parametrize(
    "change",
    [
        lambda fs: fs.open(PARTITION / LOG, write=True),
        lambda fs: fs.create(PARTITION / "new.log"),
        lambda fs: fs.rename(PARTITION / LOG, PARTITION / "other.log"),
        lambda fs: fs.remove(PARTITION / LOG),
        lambda fs: fs.make_directory(ROOT / "u-0"),
        lambda fs: fs.remove_directory(PARTITION),
        lambda fs: fs.set_modified(PARTITION / LOG, 5),
        lambda fs: fs.replace_durably(PARTITION / LOG, b"x"),
        lambda fs: fs.replace_durably(ROOT / "cleaner-offset-checkpoint", b"x"),
    ],
)
def test_no_file_of_a_log_is_changed(
    fs: ArchiveFileSystem, change: Callable[[Any], object]
) -> None:
    before = sorted(fs.archive.store.list())
    with pytest.raises(OSError, match="Read-only file system"):
        change(fs)
    assert sorted(fs.archive.store.list()) == before


def test_manifests_are_read_once_and_again_when_that_is_asked_for(
    fs: ArchiveFileSystem, archive: Archive
) -> None:
    assert fs.exists(PARTITION)
    archive.commit(manifest_of(topic="u"))
    gets = archive.store.usage.requests["get"]
    assert not fs.exists(ROOT / "u-0")
    assert archive.store.usage.requests["get"] == gets
    fs.refresh()
    assert fs.exists(ROOT / "u-0")


def test_of_a_topic_that_was_made_again_its_last_log_is_there(
    fs: ArchiveFileSystem, archive: Archive
) -> None:
    for topic_id, at_ms, end in ((uuid_text(ZERO_UUID), 1_800_000_000_000, 77),):
        archive.commit(manifest_of(topic_id=topic_id, at_ms=at_ms, end_offset=end))
    assert fs.manifests()[TopicPartition("t", 0)].end_offset == 77
    assert LOG not in fs.names_in(PARTITION)


def test_a_manifest_that_cannot_be_understood_is_named(
    fs: ArchiveFileSystem, archive: Archive
) -> None:
    archive.store.put(manifest_of(number=2).key, b"{}")
    with pytest.raises(CorruptError, match=manifest_of(number=2).key):
        fs.entries_in(ROOT)


def test_it_has_no_lock_and_no_end(fs: ArchiveFileSystem) -> None:
    fs.lock(ROOT).release()
    fs.lock(ROOT).release()
    fs.sync_directory(ROOT)
    assert fs.free_bytes(ROOT) > 1 << 60
    assert fs.space(ROOT)[0] == -1


def test_a_file_of_the_log_directory_itself_is_an_object(fs: ArchiveFileSystem) -> None:
    path = ROOT / "cordwood-holds.json"
    for content in (b"one", b"another"):
        fs.replace_durably(path, content)
        assert fs.read_bytes(path) == content
        assert fs.archive.store.get("directory/cordwood-holds.json") == content
    assert path.name in fs.names_in(ROOT)
