"""The checkpoints of a log directory, which are parsed once for all its partitions."""

from __future__ import annotations

from pathlib import Path

from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from cordwood.format.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from support.log_builder import LogBuilder, write_log_dir

PARTITION = TopicPartition("t", 0)


def log_dir(tmp_path: Path) -> OfflineLogDirectory:
    log = LogBuilder("t-0")
    log.put(b"a", b"1")
    return OfflineLogDirectory(write_log_dir(tmp_path / "logs", [log]))


def test_a_checkpoint_that_another_process_replaces_is_read_again(tmp_path: Path) -> None:
    directory = log_dir(tmp_path)
    path = directory.path / RECOVERY_POINT_CHECKPOINT
    for offset in (3, 4, 5):  # of the same size
        OS.replace_durably(path, build_offset_checkpoint({PARTITION: offset}))
        assert directory.checkpoints()[0].recovery_point == {PARTITION: offset}


def test_a_line_that_is_set_is_read_and_is_in_the_file(tmp_path: Path) -> None:
    directory = log_dir(tmp_path)
    other = TopicPartition("t", 1)
    before = directory.checkpoints()[0].cleaner
    kept = dict(before)
    directory.set_cleaner_offset(other, 7)
    assert before == kept, "what was read earlier does not change"
    for offset in (8, None):
        directory.cleaner_offsets.set_line(other, offset)
        path = directory.path / CLEANER_OFFSET_CHECKPOINT
        assert directory.checkpoints()[0].cleaner == parse_offset_checkpoint(path.read_bytes())
        assert directory.checkpoints()[0].cleaner.get(other) == offset


def test_a_missing_checkpoint_has_no_lines(tmp_path: Path) -> None:
    directory = log_dir(tmp_path)
    (directory.path / RECOVERY_POINT_CHECKPOINT).unlink()
    assert directory.checkpoints()[0].recovery_point == {}
    directory.set_recovery_point(PARTITION, 1)
    assert directory.checkpoints()[0].recovery_point == {PARTITION: 1}
