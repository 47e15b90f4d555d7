"""Archives: which manifest is in force, commits of two writers, garbage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.model.errors import CorruptError
from cordwood.storage.archives.archive import (
    GRACE_MS,
    Archive,
    Garbage,
    ManifestConflictError,
)
from cordwood.storage.archives.manifest import ArchivedLogId
from cordwood.storage.objects.object_store import ObjectFacts, ObjectStore
from cordwood.testing.manual_clock import ManualClock
from support.archives import archive_in, archived_segment, manifest_of
from support.log_builder import NOW_MS, TOPIC_ID

LOG = ArchivedLogId("t", 0, TOPIC_ID)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return archive_in(tmp_path / "archive")


def test_an_archive_that_nobody_has_written_is_empty(archive: Archive) -> None:
    assert archive.numbers() == {}
    assert archive.manifests() == []
    assert archive.manifest(LOG) is None
    assert archive.garbage(ManualClock(NOW_MS)) == Garbage(keys=(), size_bytes=0)


def test_the_manifest_with_the_highest_number_is_in_force(archive: Archive) -> None:
    for number in range(1, 12):
        archive.commit(manifest_of(number=number, end_offset=number))
    other = manifest_of(topic="a", end_offset=7)
    archive.commit(other)
    archive.store.put("manifests/of-something-else.json", b"{}")
    assert archive.numbers() == {LOG: 11, other.log: 1}
    assert [each.end_offset for each in archive.manifests()] == [7, 11]
    assert [each.end_offset for each in archive.manifests([LOG, ArchivedLogId("b", 0)])] == [11]
    found = archive.manifest(LOG)
    assert found is not None
    assert found.number == 11


def test_of_writers_of_one_number_one_wins_and_nothing_of_the_others_is_in_force(
    archive: Archive,
) -> None:
    def commit(writer: int, number: int) -> bool:
        mine = manifest_of(number=number, run=f"writer {writer}", end_offset=writer)
        try:
            archive_in(Path(archive.url.removeprefix("file://"))).commit(mine)
        except ManifestConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        for number in range(1, 20):
            won = list(pool.map(lambda writer, number=number: commit(writer, number), range(6)))
            assert sum(won) == 1
            found = archive.manifest(LOG)
            assert found is not None
            assert (found.number, found.end_offset) == (number, won.index(True))


def test_a_conflict_names_the_archive_and_the_log(archive: Archive) -> None:
    archive.commit(manifest_of())
    with pytest.raises(ManifestConflictError, match="another writer has changed it") as raised:
        archive.commit(manifest_of(run="other"))
    assert str(raised.value).startswith(f"{archive.url}: t-0 (topic id ")


def test_a_commit_repeated_by_its_own_writer_is_none_of_another(archive: Archive) -> None:
    archive.commit(manifest_of())
    archive.commit(manifest_of())
    assert archive.numbers() == {LOG: 1}


def test_a_writer_that_comes_so_late_that_its_number_was_collected_is_refused(
    archive: Archive,
) -> None:
    archive.commit(manifest_of(number=3))
    with pytest.raises(ManifestConflictError):
        archive.commit(manifest_of(number=2, run="late"))
    assert archive.numbers() == {LOG: 3}
    assert [each.key for each in archive.store.list()] == [manifest_of(number=3).key]


@pytest.mark.parametrize("content", [b"{}", manifest_of(number=2).to_bytes(), b""])
def test_a_manifest_that_is_none_or_of_another_place_is_named(
    archive: Archive, content: bytes
) -> None:
    key = manifest_of().key
    archive.store.put(key, content)
    for read in (archive.manifests, lambda: archive.manifest(LOG)):
        with pytest.raises(CorruptError) as raised:
            read()
        assert str(raised.value).startswith(f"{archive.url}/{key}: ")


class TestGarbage:
    """Objects that no manifest needs, of an archive whose objects have ages."""

    @pytest.fixture
    def put(self, archive: Archive, tmp_path: Path) -> Callable[[str, bytes, int], None]:
        def put(key: str, content: bytes, age_ms: int) -> None:
            archive.store.put(key, content)
            at_s = (NOW_MS - age_ms) / 1000
            os.utime(tmp_path / "archive" / key, (at_s, at_s))

        return put

    @pytest.fixture
    def filled(self, archive: Archive, put: Callable[[str, bytes, int], None]) -> Archive:
        """Three manifests, each with a file of its own; and a file of none."""
        for number, age_ms in ((1, 3 * GRACE_MS), (2, 2 * GRACE_MS), (3, GRACE_MS // 2)):
            segment = archived_segment(0, 10 * number, run=f"{number}")
            manifest = manifest_of(segment, number=number)
            put(segment.files[0].key, b"0123456789", age_ms)
            put(manifest.key, manifest.to_bytes(), age_ms)
        return archive

    def test_what_was_followed_before_the_grace_is_garbage(self, filled: Archive) -> None:
        garbage = filled.garbage(ManualClock(NOW_MS))
        assert set(garbage.keys) == {
            manifest_of(number=1).key,
            archived_segment(0, 10, run="1").files[0].key,
        }
        manifest = filled.store.get(manifest_of(number=1).key)
        assert garbage.size_bytes == 10 + len(manifest)

    def test_all_but_what_is_in_force_is_garbage_after_the_grace(self, filled: Archive) -> None:
        later = ManualClock(NOW_MS + GRACE_MS)
        filled.collect(filled.garbage(later))
        assert {each.key for each in filled.store.list()} == {
            manifest_of(number=3).key,
            archived_segment(0, 30, run="3").files[0].key,
        }
        assert filled.garbage(later) == Garbage(keys=(), size_bytes=0)
        (found,) = filled.manifests()
        assert found.end_offset == 30

    def test_a_file_that_no_manifest_names_stays_until_it_is_old(
        self, filled: Archive, put: Callable[[str, bytes, int], None]
    ) -> None:
        put("data/t-x/0/young", b"12", GRACE_MS - 1)
        put("data/t-x/0/old", b"1", GRACE_MS + 1000)
        keys = filled.garbage(ManualClock(NOW_MS)).keys
        assert "data/t-x/0/old" in keys
        assert "data/t-x/0/young" not in keys

    def test_objects_of_another_kind_are_left_alone(
        self, filled: Archive, put: Callable[[str, bytes, int], None]
    ) -> None:
        for key in ("directory/meta.properties", "notes.txt", "manifests/readme"):
            put(key, b"1", 9 * GRACE_MS)
        filled.collect(filled.garbage(ManualClock(NOW_MS + GRACE_MS)))
        left = {each.key for each in filled.store.list()}
        assert {"directory/meta.properties", "notes.txt", "manifests/readme"} < left

    def test_a_file_that_two_manifests_name_is_needed_by_the_newer(
        self, archive: Archive, put: Callable[[str, bytes, int], None]
    ) -> None:
        segment = archived_segment(0, 10)
        put(segment.files[0].key, b"0123456789", 9 * GRACE_MS)
        for number in (1, 2):
            manifest = manifest_of(segment, number=number)
            put(manifest.key, manifest.to_bytes(), 9 * GRACE_MS)
        assert archive.garbage(ManualClock(NOW_MS)).keys == (manifest_of(number=1).key,)

    def test_nothing_is_garbage_where_a_manifest_cannot_be_understood(
        self, filled: Archive, put: Callable[[str, bytes, int], None]
    ) -> None:
        document = json.loads(manifest_of(number=4).to_bytes())
        document["version"] = 2
        put(manifest_of(number=4).key, json.dumps(document).encode(), 0)
        with pytest.raises(CorruptError, match="a manifest of version 2"):
            filled.garbage(ManualClock(NOW_MS))


def test_objects_of_earlier_manifests_are_unnamed_even_if_put_in_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_in(tmp_path)
    first = manifest_of(archived_segment(0, 10, run="one"))
    second = manifest_of(archived_segment(0, 10, run="two"), number=2, run="two")
    other = "data/" + first.log.place + "00000000000000000000-three.log"
    for key in (first.files[0].key, second.files[0].key, other):
        archive.store.put(key, b"0123456789")
    archive.commit(first)
    archive.commit(second)
    real = ObjectStore.list

    def at_one_moment(store: ObjectStore, prefix: str = "") -> Iterator[ObjectFacts]:
        return (replace(each, modified_ms=1000) for each in real(store, prefix))

    monkeypatch.setattr(ObjectStore, "list", at_one_moment)
    assert archive.unnamed(second) == [first.files[0].key]
