"""The files of a partition's directory that a manifest names, and those that it implies."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.model.uuids import ZERO_UUID, uuid_text
from cordwood.storage.archives.directory_files import DirectoryFile, directory_files
from cordwood.storage.archives.manifest import ArchiveManifest, LeaderEpoch
from cordwood.storage.objects.object_store import ObjectStore
from support.archives import archived_segment, manifest_of

EPOCHS = (LeaderEpoch(epoch=0, start_offset=0), LeaderEpoch(epoch=3, start_offset=7))


def test_a_log_of_closed_segments_gets_an_empty_active_one() -> None:
    manifest = manifest_of(archived_segment(0, 10), leader_epochs=EPOCHS)
    found = directory_files(manifest)
    base = "00000000000000000010"
    assert set(found) == {
        "00000000000000000000.log",
        *(f"{base}{suffix}" for suffix in (".log", ".index", ".timeindex")),
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert found["00000000000000000000.log"] == DirectoryFile(
        name="00000000000000000000.log",
        size_bytes=10,
        modified_ns=1,
        key=manifest.segments[0].files[0].key,
        sha256="0" * 64,
    )
    assert found[f"{base}.log"] == DirectoryFile.made(f"{base}.log", b"", at_ms=manifest.at_ms)
    assert found["leader-epoch-checkpoint"].content == b"0\n2\n0 0\n3 7\n"
    metadata = b"version: 0\ntopic_id: b3JkZXJzAAAAAAAAAAAAAQ"
    assert (found["partition.metadata"].content or b"").strip() == metadata


@pytest.mark.parametrize(
    ("manifest", "names"),
    [
        (manifest_of(archived_segment(5, 9), has_active_segment=True), {f"{5:020d}.log"}),
        (manifest_of(has_active_segment=True), set()),
        (
            manifest_of(end_offset=4, log_start_offset=4),
            {f"{4:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")},
        ),
    ],
)
def test_other_logs_have_what_was_archived(manifest: ArchiveManifest, names: set[str]) -> None:
    assert set(directory_files(manifest)) == {*names, "partition.metadata"}


def test_a_topic_without_an_id_has_no_partition_metadata() -> None:
    manifest = manifest_of(topic_id=uuid_text(ZERO_UUID), has_active_segment=True)
    assert directory_files(manifest) == {}


def test_files_are_opened_with_their_contents(tmp_path: Path) -> None:
    store = ObjectStore(f"file://{tmp_path}")
    manifest = manifest_of(archived_segment(0, 10), leader_epochs=EPOCHS)
    store.put(manifest.segments[0].files[0].key, b"0123456789")
    found = directory_files(manifest)
    read = {
        name: (each.opened(store).read_at(100, 0), each.opened(store).size())
        for name, each in found.items()
    }
    assert read["00000000000000000000.log"] == (b"0123456789", 10)
    assert read["00000000000000000010.log"] == (b"", 0)
    assert read["leader-epoch-checkpoint"] == (b"0\n2\n0 0\n3 7\n", 12)
