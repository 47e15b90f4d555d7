"""Runs that archive logs of directories, one after another, beside each other, and broken off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.archiving import archive_logs as archive_logs_module
from cordwood.archiving.archive_logs import archive_logs
from cordwood.archiving.report import ArchiveReport, ArchiveRequest, ArchiveStatus, Silent
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.model.errors import ConfigError, NotALogDirError
from cordwood.model.rng import SystemRng
from cordwood.model.uuids import uuid_text
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.archives.archive import Archive
from cordwood.storage.objects.object_store import ObjectStore, ObjectStoreError
from cordwood.testing.manual_clock import ManualClock
from support.archives import archive_in, archived, contents, restored, row_of, stop
from support.clean import digest_tree
from support.golden import Golden
from support.log_builder import NOW_MS, TOPIC_ID, LogBuilder, write_log_dir
from support.random_log import Contents, random_log


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return archive_in(tmp_path / "archive")


def log_of(name: str, segments: int = 3, *, start: int = 0) -> LogBuilder:
    """A log of segments with two records each, the last of which is active."""
    log = LogBuilder(name, start_offset=start)
    for number in range(segments):
        if number:
            log.roll()
        log.batch([(b"k%d" % number, b"v" * 50), (b"other", b"w")])
    return log


def statuses(report: ArchiveReport) -> set[ArchiveStatus]:
    return {row.status for row in report.partitions}


def restored_contents(archive: Archive, directory: Path) -> dict[str, bytes]:
    shutil.rmtree(directory, ignore_errors=True)
    report = restored(archive, directory)
    assert report.is_complete, report
    return contents(directory)


@pytest.mark.parametrize("stage", ["before", "before-2"])
def test_a_kafkas_directory_comes_back_as_it_was(
    golden_a: Golden, archive: Archive, tmp_path: Path, stage: str
) -> None:
    source = golden_a.root / stage
    before = digest_tree(source)
    report = archived(archive, source, has_active=True)
    assert digest_tree(source) == before
    assert report.is_complete, report
    assert report.warnings == []
    partitions = {f"{row.topic}-{row.partition}" for row in report.partitions}
    left = {row.topic for row in report.partitions if row.status is ArchiveStatus.LEFT_ALONE}
    assert left == {"__cluster_metadata"}
    assert statuses(report) == {ArchiveStatus.ARCHIVED, ArchiveStatus.LEFT_ALONE}
    into = tmp_path / "restored"
    assert restored_contents(archive, into) == contents(source)
    for name in (each for each in contents(source) if each.endswith(".log")):
        assert (into / name).stat().st_mtime_ns == (source / name).stat().st_mtime_ns
    assert {path.name for path in into.iterdir() if path.is_dir()} == partitions
    # Nothing is archived twice.
    written = archive.store.usage.bytes_written
    again = archived(archive, source, has_active=True)
    assert statuses(again) == {ArchiveStatus.UNCHANGED, ArchiveStatus.LEFT_ALONE}
    identity = [source / name for name in ("meta.properties", "bootstrap.checkpoint")]
    assert archive.store.usage.bytes_written - written == sum(
        path.stat().st_size for path in identity if path.exists()
    )


@pytest.mark.parametrize("seed", range(4))
def test_any_log_comes_back_as_it_was(archive: Archive, tmp_path: Path, seed: int) -> None:
    logs = [
        random_log(10 * seed + number, Contents(batches=25), name=f"log-{number}", start=start)
        for number, start in enumerate((0, 17, 1 << 33))
    ]
    for log in logs:
        log.log_start_offset = None  # segments below it are not archived
    source = write_log_dir(tmp_path / "data", logs)
    archived(archive, source, has_active=True)
    assert restored_contents(archive, tmp_path / "restored") == contents(source)


def test_segments_with_offsets_far_apart_come_back(archive: Archive, tmp_path: Path) -> None:
    log = LogBuilder("sparse-0")
    log.put(b"a", b"0")
    for base in (2_147_483_000, 4_294_967_000):
        log.skip(base - log.next_offset)
        log.roll()
        log.batch([(b"a", b"1"), (b"b", b"2")])
    source = write_log_dir(tmp_path / "data", [log])
    (row,) = archived(archive, source, has_active=True).partitions
    assert (row.segments, row.log_start_offset, row.end_offset) == (3, 0, 4_294_967_002)
    assert restored_contents(archive, tmp_path / "restored") == contents(source)
    (manifest,) = archive.manifests()
    assert [each.base_offset for each in manifest.segments] == [0, 2_147_483_000, 4_294_967_000]


def test_a_log_is_archived_as_it_grows_and_each_segment_once(
    archive: Archive, tmp_path: Path
) -> None:
    log = LogBuilder("t-0")
    for number in range(5):
        log.batch([(b"k", b"%d" % number * 100)])
        log.roll()
        source = write_log_dir(tmp_path / "data", [log])
        row = row_of(archived(archive, source), "t-0")
        assert (row.status, row.segments) == (ArchiveStatus.ARCHIVED, 1)
        assert (row.log_start_offset, row.end_offset) == (0, number + 1)
        assert row.bytes_left == 0
    (manifest,) = archive.manifests()
    assert manifest.number == 5
    logs = [each for each in archive.store.list("data/") if each.key.endswith(".log")]
    assert len(logs) == 5
    assert restored_contents(archive, tmp_path / "restored") == contents(source)


def test_the_active_segment_of_a_broker_that_runs_is_left(archive: Archive, tmp_path: Path) -> None:
    log = log_of("t-0")
    source = write_log_dir(tmp_path / "data", [log], clean_shutdown=False)
    row = row_of(archived(archive, source, has_active=True), "t-0")
    assert (row.segments, row.end_offset) == (2, 4)
    assert row.bytes_left == log.active.size_bytes
    stop(source)
    row = row_of(archived(archive, source), "t-0")
    assert row.status is ArchiveStatus.UNCHANGED
    row = row_of(archived(archive, source, has_active=True), "t-0")
    assert (row.segments, row.end_offset, row.bytes_left) == (1, 6, 0)
    assert restored_contents(archive, tmp_path / "restored") == contents(source)


def test_records_above_the_high_watermark_are_not_archived(
    archive: Archive, tmp_path: Path
) -> None:
    log = log_of("t-0", segments=4)
    log.high_watermark = 3
    source = write_log_dir(tmp_path / "data", [log])
    row = row_of(archived(archive, source, has_active=True), "t-0")
    assert (row.segments, row.end_offset) == (1, 2)


def test_an_empty_log_is_in_the_archive_too(archive: Archive, tmp_path: Path) -> None:
    source = write_log_dir(tmp_path / "data", [LogBuilder("t-0", start_offset=7)])
    row = row_of(archived(archive, source), "t-0")
    assert (row.status, row.segments, row.log_start_offset, row.end_offset) == (
        ArchiveStatus.ARCHIVED,
        0,
        7,
        7,
    )
    assert restored_contents(archive, tmp_path / "restored") == contents(source)
    assert row_of(archived(archive, source), "t-0").status is ArchiveStatus.UNCHANGED


def test_a_dry_run_writes_nothing(archive: Archive, tmp_path: Path) -> None:
    source = write_log_dir(tmp_path / "data", [log_of("t-0")])
    report = archived(archive, source, dry_run=True)
    assert report.dry_run
    row = row_of(report, "t-0")
    assert (row.status, row.segments, row.end_offset) == (ArchiveStatus.PLANNED, 2, 4)
    assert list(archive.store.list()) == []
    assert report.bytes_written == 0


def test_topics_are_chosen_and_one_that_is_missing_is_told(
    archive: Archive, tmp_path: Path
) -> None:
    source = write_log_dir(tmp_path / "data", [log_of("t-0"), log_of("t-1"), log_of("other-0")])
    archived(archive, source, topics=["t"])
    assert [str(each.log.topic_partition) for each in archive.manifests()] == ["t-0", "t-1"]
    with pytest.raises(ConfigError, match=r"no topic in .* matches"):
        archived(archive, source, topics=["missing"])


def test_what_is_no_directory_of_kafkas_is_refused(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(NotALogDirError):
        archived(archive, tmp_path)
    assert list(archive.store.list()) == []


def test_one_log_that_cannot_be_read_does_not_hold_up_the_others(
    archive: Archive, tmp_path: Path
) -> None:
    source = write_log_dir(tmp_path / "data", [log_of("bad-0"), log_of("t-0")])
    (source / "bad-0" / "leader-epoch-checkpoint").write_text("nonsense")
    report = archived(archive, source)
    assert not report.is_complete
    bad = row_of(report, "bad-0")
    assert bad.status is ArchiveStatus.FAILED
    assert "leader-epoch-checkpoint" in bad.reason
    assert row_of(report, "t-0").status is ArchiveStatus.ARCHIVED


class Meanwhile(Silent):
    """A listener: something happens between the plan of a run and its copies."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    def begin(self, total_bytes: int) -> None:
        """Has it happen."""
        self._happens()


def archived_while(archive: Archive, source: Path, happens: Callable[[], object]) -> ArchiveReport:
    settings = read_settings(SettingOptions(log_dirs=(source,), defaults=True))
    logs = CleanRequest(
        log_dirs=(source,), resolve=settings.resolve, now_ms=NOW_MS, dry_run=True, for_reading=True
    )
    return archive_logs(
        ArchiveRequest(logs=logs, has_active=True),
        archive,
        clock=ManualClock(),
        rng=SystemRng(),
        listener=Meanwhile(happens),
    )


def test_of_two_runs_at_one_time_one_is_refused_and_nothing_of_it_is_in_force(
    archive: Archive, tmp_path: Path
) -> None:
    source = write_log_dir(tmp_path / "data", [log_of("t-0"), log_of("u-0")])
    other = archive_in(tmp_path / "archive")
    report = archived_while(
        archive, source, lambda: archived(other, source, has_active=True, topics=["t"])
    )
    row = row_of(report, "t-0")
    assert row.status is ArchiveStatus.FAILED
    assert "another writer has changed it in the archive meanwhile" in row.reason
    assert row_of(report, "u-0").status is ArchiveStatus.ARCHIVED
    runs = {each.topic: each.run for each in archive.manifests()}
    assert runs["t"] != runs["u"]
    named = {file.key for each in archive.manifests() for file in each.files}
    assert all(f"-{runs['t']}." in key for key in named if key.startswith("data/t-"))
    assert restored_contents(archive, tmp_path / "restored") == contents(source)
    assert statuses(archived(archive, source, has_active=True)) == {ArchiveStatus.UNCHANGED}


def test_a_segment_that_was_compacted_since_the_plan_is_not_mixed(
    archive: Archive, tmp_path: Path
) -> None:
    log = log_of("t-0", segments=4)
    source = write_log_dir(tmp_path / "data", [log])
    compacted = LogBuilder("t-0")
    compacted.batch([(b"k%d" % number, b"v" * 50) for number in range(4)])
    compacted.roll(modified_ms=NOW_MS)
    compacted.batch([(b"k2", b"v" * 50), (b"other", b"w")])
    compacted.roll()
    compacted.batch([(b"k3", b"v" * 50), (b"other", b"w")])

    def clean() -> None:
        """Makes one segment of the first two, as a cleaner does."""
        shutil.rmtree(source / "t-0")
        write_log_dir(source, [compacted])

    report = archived_while(archive, source, clean)
    row = row_of(report, "t-0")
    assert row.status is ArchiveStatus.FAILED
    assert "it was replaced since the run began; a broker has cleaned it" in row.reason
    assert archive.manifests() == []
    row = row_of(archived(archive, source, has_active=True), "t-0")
    assert (row.status, row.segments) == (ArchiveStatus.ARCHIVED, 3)
    assert restored_contents(archive, tmp_path / "restored") == contents(source)


def test_a_log_that_is_deleted_since_the_plan_is_told(archive: Archive, tmp_path: Path) -> None:
    source = write_log_dir(tmp_path / "data", [log_of("t-0")])
    report = archived_while(archive, source, lambda: shutil.rmtree(source / "t-0"))
    row = row_of(report, "t-0")
    assert row.status is ArchiveStatus.FAILED
    assert "there is no such file any more" in row.reason


def test_records_that_were_deleted_before_they_were_archived_are_told(
    archive: Archive, tmp_path: Path
) -> None:
    archived(archive, write_log_dir(tmp_path / "data", [log_of("t-0")]))
    shutil.rmtree(tmp_path / "data")
    source = write_log_dir(tmp_path / "data", [log_of("t-0", start=10)])
    row = row_of(archived(archive, source), "t-0")
    assert (row.status, row.lost_from, row.lost_to) == (ArchiveStatus.ARCHIVED, 4, 10)
    (manifest,) = archive.manifests()
    assert [each.base_offset for each in manifest.segments] == [0, 2, 10, 12]


def test_a_topic_that_was_made_again_is_another_log(archive: Archive, tmp_path: Path) -> None:
    source = write_log_dir(tmp_path / "data", [log_of("t-0")])
    archived(archive, source)
    path = source / "t-0" / "partition.metadata"
    path.write_text(path.read_text().replace(uuid_text(TOPIC_ID), "b3JkZXJzAAAAAAAAAAAAAg"))
    assert row_of(archived(archive, source), "t-0").status is ArchiveStatus.ARCHIVED
    assert len(archive.manifests()) == 2


class Broken(ObjectStore):
    """A store that does not answer any more after so many objects."""

    def __init__(self, url: str, puts: int) -> None:
        super().__init__(url)
        self.puts = puts

    def _count(self) -> None:
        if self.puts == 0:
            raise ObjectStoreError(f"{self.url}: no answer")
        self.puts -= 1

    def put(self, key: str, content: object) -> None:
        """Puts an object, as long as it answers."""
        self._count()
        super().put(key, content)  # type: ignore[arg-type]

    def put_new(self, key: str, content: bytes) -> bool:
        """Puts a new object, as long as it answers."""
        self._count()
        return super().put_new(key, content)


@pytest.mark.parametrize("puts", [1, 2, 6, 9, 14])
@pytest.mark.parametrize("commit_bytes", [1, 4 << 30])
def test_a_run_that_breaks_off_is_continued_by_the_next(
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    puts: int,
    commit_bytes: int,
) -> None:
    monkeypatch.setattr(archive_logs_module, "_COMMIT_BYTES", commit_bytes)
    source = write_log_dir(tmp_path / "data", [log_of("t-0", segments=5)])
    report = archived(Archive(Broken(archive.url, puts)), source)
    assert row_of(report, "t-0").status is ArchiveStatus.FAILED
    done = sum(len(each.segments) for each in archive.manifests())
    assert (done > 0) == (commit_bytes == 1 and puts >= 6)
    row = row_of(archived(archive, source), "t-0")
    assert (row.status, row.segments) == (ArchiveStatus.ARCHIVED, 4 - done)
    assert restored_contents(archive, tmp_path / "restored").keys() >= {
        f"t-0/{base:020d}.log" for base in (0, 2, 4, 6, 8)
    }
    (manifest,) = archive.manifests()
    assert [each.base_offset for each in manifest.segments] == [0, 2, 4, 6]
    stray = {each.key for each in archive.store.list("data/")} - {
        each.key for each in manifest.files
    }
    later = ManualClock(2_000_000_000_000)
    archive.collect(archive.garbage(later))
    assert not stray & {each.key for each in archive.store.list("data/")}
    assert restored_contents(archive, tmp_path / "restored").keys() >= {f"t-0/{0:020d}.log"}


def test_several_directories_are_archived_together(archive: Archive, tmp_path: Path) -> None:
    first = write_log_dir(tmp_path / "one", [log_of("t-0")])
    second = write_log_dir(tmp_path / "two", [log_of("t-1")])
    archived(archive, first, second, has_active=True)
    found = restored_contents(archive, tmp_path / "restored")
    for source in (first, second):
        partition = next(path.name for path in source.iterdir() if path.is_dir())
        expected = {
            name: data for name, data in contents(source).items() if name.startswith(partition)
        }
        assert expected.items() <= found.items()


def test_times_of_files_are_kept_to_the_nanosecond(archive: Archive, tmp_path: Path) -> None:
    source = write_log_dir(tmp_path / "data", [log_of("t-0")])
    path = source / "t-0" / f"{0:020d}.log"
    os.utime(path, ns=(1_700_000_000_123_456_789,) * 2)
    archived(archive, source)
    restored(archive, tmp_path / "restored")
    found = (tmp_path / "restored" / "t-0" / path.name).stat().st_mtime_ns
    assert found == 1_700_000_000_123_456_789
