"""A checkpoint that is replaced: by several threads, by other processes, at one moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile
from cordwood.testing.simulated_filesystem import SimulatedFileSystem

PARTITION = TopicPartition("t", 0)
ROUNDS = 200


def test_threads_that_write_at_once_leave_the_newest_lines(tmp_path: Path) -> None:
    file = OffsetCheckpointFile(tmp_path / "recovery-point-offset-checkpoint", fs=OS)
    appended: list[int] = []

    def lines() -> dict[TopicPartition, int]:
        return {PARTITION: len(appended)}

    def append_and_write() -> None:
        for number in range(ROUNDS):
            appended.append(number)
            file.write_current(lines)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(append_and_write) for _ in range(2)]:
            done.result()
    assert file.read() == {PARTITION: 2 * ROUNDS}


def test_what_is_written_while_the_clock_stands_still_is_read() -> None:
    fs = SimulatedFileSystem()
    path = Path("/cleaner-offset-checkpoint")
    file, other = OffsetCheckpointFile(path, fs=fs), OffsetCheckpointFile(path, fs=fs)
    for offset in (3, 4, 5):  # of the same size
        file.write({PARTITION: offset})
        assert file.read() == {PARTITION: offset}
        assert other.read() == {PARTITION: offset}
