"""Logs of archives brought back: all of them, ranges, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from cordwood.archiving.restore import RestoreError
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.format.record_batch import Record, iter_batches
from cordwood.model.errors import ConfigError, CorruptError, DirectoryInUseError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.archives.archive import Archive
from cordwood.storage.filesystem import OS
from support.archives import archive_in, archived, contents, restored
from support.clean import digest_tree
from support.golden import Golden
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, random_log
from support.stored_log import StoredLog


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return archive_in(tmp_path / "archive")


def log_of(name: str, *, segments: int = 4) -> LogBuilder:
    """Segments of two batches of three records; a record's timestamp is its offset in minutes."""
    log = LogBuilder(name)
    for number in range(segments):
        if number:
            log.roll()
        for _ in range(2):
            first = log.next_offset
            log.batch(
                [Record(first + at, minutes(first + at), b"k%d" % at, b"v" * 30) for at in range(3)]
            )
    return log


def minutes(count: int) -> int:
    return NOW_MS - 86_400_000 + count * 60_000


def lines(directory: Path, name: str) -> dict[str, int]:
    found = parse_offset_checkpoint((directory / name).read_bytes())
    return {str(partition): offset for partition, offset in found.items()}


def offsets_in(partition: Path) -> list[int]:
    return [
        record.offset
        for path in sorted(partition.glob("*.log"))
        for _, batch in iter_batches(path.read_bytes())
        for record in batch.records()
    ]


@pytest.fixture
def source(archive: Archive, tmp_path: Path) -> Path:
    found = write_log_dir(tmp_path / "data", [log_of("t-0"), log_of("t-1"), log_of("u-0")])
    archived(archive, found, has_active=True)
    return found


def test_a_restored_directory_has_the_checkpoints_of_its_logs(
    archive: Archive, source: Path, tmp_path: Path
) -> None:
    into = tmp_path / "restored"
    report = restored(archive, into)
    assert contents(into) == contents(source)
    assert {(row.topic, row.partition, row.segments) for row in report.partitions} == {
        ("t", 0, 4),
        ("t", 1, 4),
        ("u", 0, 4),
    }
    assert lines(into, "recovery-point-offset-checkpoint") == dict.fromkeys(
        ("t-0", "t-1", "u-0"), 24
    )
    assert not report.has_metadata
    assert not (into / ".lock").exists()
    assert not (into / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("wanted", "first", "offsets"),
    [
        ({"first_offset": 6}, 6, range(6, 24)),
        ({"first_offset": 8}, 8, range(6, 24)),
        ({"end_offset": 6}, 0, range(6)),
        ({"end_offset": 7}, 0, range(9)),
        ({"end_offset": 9}, 0, range(9)),
        ({"first_offset": 13, "end_offset": 16}, 13, range(12, 18)),
        ({"first_offset": 13, "end_offset": 14}, 13, range(12, 15)),
        ({"first_offset": 100}, 24, range(0)),
        ({"first_offset": 5, "end_offset": 5}, 5, None),
        ({"end_offset": 0}, 0, range(0)),
        ({"end_offset": 100}, 0, range(24)),
        ({"first_ms": minutes(8)}, 8, range(6, 24)),
        ({"first_ms": minutes(8) - 1}, 8, range(6, 24)),
        ({"end_ms": minutes(7)}, 0, range(9)),
        ({"first_ms": minutes(13), "end_ms": minutes(14)}, 13, range(12, 15)),
        ({"first_ms": minutes(1000)}, 24, range(0)),
        ({"end_ms": 1}, 0, range(0)),
        ({"end_ms": minutes(1000)}, 0, range(24)),
        ({"first_offset": 3, "first_ms": minutes(13), "end_offset": 14}, 13, range(12, 15)),
    ],
)
def test_a_range_has_its_records_and_the_rest_of_their_batches(
    archive: Archive,
    source: Path,
    tmp_path: Path,
    wanted: dict[str, Any],
    first: int,
    offsets: range | None,
) -> None:
    into = tmp_path / "restored"
    report = restored(archive, into, topics=("t",), **wanted)
    assert report.is_complete, report
    assert [row.log_start_offset for row in report.partitions] == [first, first]
    for row in report.partitions:
        partition = into / f"{row.topic}-{row.partition}"
        assert row.directory == str(partition)
        found = offsets_in(partition)
        if offsets is None:  # whole batches, if any
            assert set(found) <= set(range(6))
        else:
            assert found == list(offsets)
            assert row.end_offset == (offsets.stop if offsets else first)
    ends = {f"{row.topic}-{row.partition}": row.end_offset for row in report.partitions}
    assert lines(into, "recovery-point-offset-checkpoint") == ends
    assert lines(into, "replication-offset-checkpoint") == ends
    path = into / "log-start-offset-checkpoint"
    starts = lines(into, path.name) if path.exists() else {}
    # A log that starts with its first segment has no line.
    assert starts == ({} if first % 6 == 0 else dict.fromkeys(ends, first))
    assert (into / "t-0").is_dir()
    assert not (into / "u-0").exists()
    assert not list(into.glob("*-delete"))


@pytest.mark.parametrize("seed", range(6))
def test_a_range_of_any_log_is_one_that_a_broker_opens(
    archive: Archive, tmp_path: Path, seed: int
) -> None:
    log = random_log(seed, Contents(batches=30, legacy=False), name="log-0", start=5)
    log.log_start_offset = None
    write_log_dir(tmp_path / "data", [log])
    archived(archive, tmp_path / "data", has_active=True)
    all_of_it = [
        (batch.base_offset, batch.last_offset)
        for path in sorted((tmp_path / "data" / "log-0").glob("*.log"))
        for _, batch in iter_batches(path.read_bytes())
    ]
    for number in range(5):
        first = 5 + (seed * 31 + number * 17) % (log.next_offset - 5)
        end = min(log.next_offset, first + 1 + 13 * number)
        into = tmp_path / f"restored-{number}"
        (row,) = restored(archive, into, first_offset=first, end_offset=end).partitions
        assert not row.failure
        opened = StoredLog(into, name="log-0")
        loaded = opened.open(
            clean=True, recovery_point=row.end_offset, log_start_offset=row.log_start_offset
        )
        assert loaded.log_start_offset == first
        assert loaded.log_end_offset >= min(end, all_of_it[-1][1] + 1) or row.end_offset == end
        batches = [
            (batch.base_offset, batch.last_offset)
            for path in sorted((into / "log-0").glob("*.log"))
            for _, batch in iter_batches(path.read_bytes())
        ]
        wanted = [each for each in all_of_it if each[1] >= first and each[0] < end]
        assert [each for each in batches if each[1] >= first] == wanted
        opened.abandon()


def test_a_damaged_object_is_refused_and_nothing_is_left_of_its_log(
    archive: Archive, source: Path, tmp_path: Path
) -> None:
    (damaged,) = (each for each in archive.manifests() if each.log.topic_partition.topic == "u")
    key = damaged.segments[1].files[0].key
    path = tmp_path / "archive" / key
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(bytes(data))
    into = tmp_path / "restored"
    report = restored(archive, into)
    assert not report.is_complete
    (row,) = (row for row in report.partitions if row.failure)
    assert row.topic == "u"
    assert row.failure == (
        f"{archive.url}/{key}: the object has another content than its manifest says (SHA-256): "
        "it is damaged"
    )
    assert sorted(path.name for path in into.iterdir() if path.is_dir()) == ["t-0", "t-1"]
    assert set(lines(into, "recovery-point-offset-checkpoint")) == {"t-0", "t-1"}
    expected = {
        name: data for name, data in contents(source).items() if name.startswith(("t-0", "t-1"))
    }
    assert expected.items() <= contents(into).items()


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b""])
def test_an_object_that_was_cut_off_is_refused(
    archive: Archive, source: Path, tmp_path: Path, change: object
) -> None:
    path = next((tmp_path / "archive").glob("data/u-*/0/*.log"))
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    report = restored(archive, tmp_path / "restored", topics=("u",))
    assert [row.topic for row in report.partitions if row.failure] == ["u"]
    assert not [path for path in (tmp_path / "restored").iterdir() if path.is_dir()]


def test_an_object_that_is_gone_is_told(archive: Archive, source: Path, tmp_path: Path) -> None:
    next((tmp_path / "archive").glob("data/u-*/0/*.log")).unlink()
    report = restored(archive, tmp_path / "restored")
    (row,) = (row for row in report.partitions if row.failure)
    assert "No such file" in row.failure
    assert archive.url in row.failure


def test_a_damaged_metadata_log_leaves_nothing(
    golden_a: Golden, archive: Archive, tmp_path: Path
) -> None:
    archived(archive, golden_a.root / "before", topics=["__consumer_offsets"])
    path = next((tmp_path / "archive").glob("data/__cluster_metadata-*/0/*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    into = tmp_path / "restored"
    with pytest.raises(CorruptError, match="SHA-256"):
        restored(archive, into)
    assert list(into.iterdir()) == []


def test_a_partition_that_is_there_is_not_touched(
    archive: Archive, source: Path, tmp_path: Path
) -> None:
    into = tmp_path / "restored"
    restored(archive, into, topics=("t",))
    before = digest_tree(into)
    with pytest.raises(RestoreError, match=r"t-0: it is there already"):
        restored(archive, into)
    assert digest_tree(into) == before
    assert restored(archive, into, topics=("u",)).is_complete
    assert contents(into) == contents(source)
    assert set(lines(into, "recovery-point-offset-checkpoint")) == {"t-0", "t-1", "u-0"}


def test_a_directory_of_another_broker_keeps_its_identity(
    archive: Archive, source: Path, tmp_path: Path
) -> None:
    into = write_log_dir(tmp_path / "other", [log_of("own-0")])
    meta = into / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    report = restored(archive, into, topics=("u",))
    assert not report.has_metadata
    assert "node.id=7" in meta.read_text()
    assert (into / "own-0").is_dir()
    assert (into / "u-0").is_dir()
    assert set(lines(into, "recovery-point-offset-checkpoint")) == {"own-0", "u-0"}


def test_a_directory_in_use_is_refused(archive: Archive, source: Path, tmp_path: Path) -> None:
    into = tmp_path / "restored"
    into.mkdir()
    lock = OS.lock(into)
    try:
        with pytest.raises(DirectoryInUseError):
            restored(archive, into)
    finally:
        lock.release()
    assert list(into.iterdir()) == []
    restored(archive, into)
    assert contents(into) == contents(source)


def test_a_topic_that_is_missing_is_told(archive: Archive, source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no topic matches --topic missing"):
        restored(archive, tmp_path / "restored", topics=("t", "missing"))
    assert not (tmp_path / "restored").exists()


def test_topics_are_globs(archive: Archive, source: Path, tmp_path: Path) -> None:
    into = tmp_path / "restored"
    restored(archive, into, topics=("u*",))
    assert [path.name for path in into.iterdir() if path.is_dir()] == ["u-0"]


def test_closed_segments_come_back_with_an_empty_active_one(
    archive: Archive, tmp_path: Path
) -> None:
    source = write_log_dir(tmp_path / "data", [log_of("t-0")])
    archived(archive, source)
    into = tmp_path / "restored"
    restored(archive, into)
    shutil.rmtree(source)
    log = StoredLog(into)
    loaded = log.open(clean=True, recovery_point=18)
    assert (loaded.log_start_offset, loaded.log_end_offset) == (0, 18)
    assert list(loaded.segments.base_offsets) == [0, 6, 12, 18]
    assert log.topic_partition == TopicPartition("t", 0)
    log.abandon()
