"""Logs of directories, as a plan of an archive takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.archiving.copied_files import WantedFile
from cordwood.archiving.local_logs import (
    end_snapshot,
    files_of,
    local_log,
    log_id,
    metadata_files,
)
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID
from cordwood.storage.archives.manifest import LeaderEpoch
from cordwood.storage.filesystem import OS
from support.log_builder import TOPIC_ID, LogBuilder

PARTITION = TopicPartition("log", 0)


def built() -> LogBuilder:
    """Two closed segments and the active one; of two leaders."""
    log = LogBuilder("log-0")
    log.batch([(b"a", b"v"), (b"b", b"v")], timestamp=1000)
    log.roll()
    log.new_leader_epoch()
    log.batch([(b"c", b"v")], timestamp=3000)
    log.batch([(b"d", b"v")], timestamp=2000)
    log.roll()
    log.batch([(b"e", b"v")], timestamp=4000)
    return log


@pytest.mark.parametrize("has_active", [True, False])
def test_segments_are_those_that_were_captured(tmp_path: Path, has_active: bool) -> None:
    log = built()
    log.cleaner_checkpoint = 2
    directory = log.write(tmp_path / "log-0")
    found = local_log(log.capture(directory, LogConfig()), has_active=has_active, fs=OS)
    expected = [(0, 2, 1000, False), (2, 4, 3000, False), (4, 5, 4000, True)]
    assert [
        (each.base_offset, each.next_base_offset, each.largest_timestamp, each.is_active)
        for each in found.segments
    ] == expected[: 3 if has_active else 2]
    for each in found.segments:
        path = Path(each.path)
        assert path == directory / f"{each.base_offset:020d}.log"
        assert each.size_bytes == path.stat().st_size
        assert each.modified_ns == path.stat().st_mtime_ns
    assert (found.log_start_offset, found.cleaner_offset) == (0, 2)
    assert found.leader_epochs == (
        LeaderEpoch(epoch=0, start_offset=0),
        LeaderEpoch(epoch=1, start_offset=2),
    )


@pytest.mark.parametrize(("high_watermark", "count"), [(5, 3), (4, 2), (3, 1), (1, 0)])
def test_a_segment_with_records_above_the_high_watermark_is_left(
    tmp_path: Path, high_watermark: int, count: int
) -> None:
    log = built()
    log.high_watermark = high_watermark
    directory = log.write(tmp_path / "log-0")
    found = local_log(log.capture(directory, LogConfig()), has_active=True, fs=OS)
    assert len(found.segments) == count


def test_a_directory_without_leader_epochs_has_none(tmp_path: Path) -> None:
    log = built()
    directory = log.write(tmp_path / "log-0")
    captured = log.capture(directory, LogConfig())
    path = directory / "leader-epoch-checkpoint"
    path.write_text("0\n1\nx y\n")
    with pytest.raises(CorruptError, match=r"log-0/leader-epoch-checkpoint: "):
        local_log(captured, has_active=True, fs=OS)
    path.unlink()
    assert local_log(captured, has_active=True, fs=OS).leader_epochs == ()


def test_a_log_is_known_by_the_id_of_its_topic(tmp_path: Path) -> None:
    directory = built().write(tmp_path / "log-0")
    assert log_id(PARTITION, directory, OS).topic_id == TOPIC_ID
    path = directory / "partition.metadata"
    path.write_text("version: 0\ntopic_id: nonsense\n")
    with pytest.raises(CorruptError, match=r"log-0/partition\.metadata: "):
        log_id(PARTITION, directory, OS)
    path.unlink()
    assert log_id(PARTITION, directory, OS).topic_id == ZERO_UUID


def test_the_files_of_a_segment_are_wanted_as_they_were_planned(tmp_path: Path) -> None:
    log = built()
    directory = log.write(tmp_path / "log-0")
    found = local_log(log.capture(directory, LogConfig()), has_active=True, fs=OS)
    closed, active = files_of(found.segments[0]), files_of(found.segments[2])
    path = directory / f"{0:020d}.log"
    status = path.stat()
    assert closed[0] == WantedFile(path, status.st_size, status.st_mtime_ns, is_needed=True)
    assert [each.path.suffix for each in closed[1:]] == [
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
    ]
    assert not any(each.is_needed for each in closed[1:])
    assert active[0].modified_ns is None
    assert end_snapshot(directory, 5) == WantedFile(directory / f"{5:020d}.snapshot")


def test_of_the_metadata_log_what_is_being_written_or_removed_is_left(tmp_path: Path) -> None:
    names = ["quorum-state", f"{0:020d}.log", f"{3:020d}-{1:010d}.checkpoint"]
    for name in (*names, "a.checkpoint.part", "b.log.deleted", "quorum-state.tmp"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    assert {each.path.name for each in metadata_files(tmp_path, OS)} == set(names)
