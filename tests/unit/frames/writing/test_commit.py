"""Segments that are put in place: new topics, topics that are there, failures on the way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.format.file_names import CLEAN_SHUTDOWN, LOCK
from cordwood.format.leader_epoch_checkpoint import parse_leader_epoch_checkpoint
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.format.producer_snapshot import parse_producer_snapshot
from cordwood.frames.writing.commit import discard
from cordwood.model.errors import DirectoryInUseError, TopicWriteError
from cordwood.storage.filesystem import OS, DirectoryLock, OsFileSystem
from cordwood.surfaces.cli.main import app
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.written_topics import attempted, committed, planned, records_in, rows, write

PAIRS = [(b"k%d" % number, b"v%d" % number) for number in range(40)]


def tree(root: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def values(directory: Path) -> list[bytes | None]:
    return [each.value for each in records_in(directory)]


def plain(root: Path, *logs: LogBuilder) -> Path:
    """A directory of partitions, of no node."""
    for log in logs:
        log.write(root / str(log.topic_partition))
    return root


def built(name: str = "orders-0", *, rolled: bool = False) -> LogBuilder:
    """A log with a producer and two epochs, which ends at offset 6."""
    log = LogBuilder(name)
    log.batch([(b"k", b"old")] * 3, producer=(7, 0), timestamp=NOW_MS - 1000)
    log.leader_epoch = 4
    log.epochs.append((4, 3))
    log.batch([(b"k", b"old")] * 3)
    if rolled:
        log.roll()
    return log


def test_a_new_topic_has_the_rows_of_all_tasks_in_their_order(tmp_path: Path) -> None:
    write(tmp_path, [rows(PAIRS[:20])], [], [rows(PAIRS[20:])], partitions="3")
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert names == ["orders-0", "orders-1", "orders-2"]
    found = {number: records_in(tmp_path / f"orders-{number}") for number in range(3)}
    assert sum(map(len, found.values())) == len(PAIRS)
    for records in found.values():
        assert [each.offset for each in records] == list(range(len(records)))
        order = [PAIRS.index((each.key or b"", each.value or b"")) for each in records]
        assert order == sorted(order)
        assert {each.leader_epoch for each in records} == {0}
    ids = {
        parse_partition_metadata((tmp_path / name / "partition.metadata").read_bytes()).topic_id
        for name in names
    }
    assert len(ids) == 1
    assert not (tmp_path / LOCK).exists()


def test_a_partition_without_rows_is_an_empty_log(tmp_path: Path) -> None:
    write(tmp_path, [rows([(b"k", b"v")])], partitions="2")
    sizes = sorted(path.stat().st_size for path in tmp_path.glob("orders-*/*.log"))
    assert sizes[0] == 0 < sizes[1]
    write(tmp_path, [], topic="empty", partitions="1")
    assert (tmp_path / "empty-0" / f"{0:020d}.log").read_bytes() == b""


def test_checkpoints_that_a_directory_has_get_the_new_ends(tmp_path: Path) -> None:
    write_log_dir(tmp_path, [built(), built("other-0")])
    (tmp_path / "meta.properties").unlink()
    write(tmp_path, [rows(PAIRS)])
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        lines = parse_offset_checkpoint((tmp_path / name).read_bytes())
        assert {str(tp): offset for tp, offset in lines.items()} == {"orders-0": 46, "other-0": 6}


def test_lines_of_an_earlier_topic_of_the_name_do_not_apply(tmp_path: Path) -> None:
    write_log_dir(tmp_path, [LogBuilder("other-0"), built("orders-1")])
    (tmp_path / "meta.properties").unlink()
    shutil.rmtree(tmp_path / "orders-1")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"0\n1\norders 1 5\n")
    write(tmp_path, [rows(PAIRS)], partitions="2")
    assert (tmp_path / "log-start-offset-checkpoint").read_bytes() == b"0\n0\n"


@pytest.mark.parametrize("rolled", [False, True], ids=["into", "empty active segment"])
def test_rows_follow_the_end_of_a_log_with_its_epoch_and_producers(
    tmp_path: Path, rolled: bool
) -> None:
    plain(tmp_path, built(rolled=rolled))
    directory = tmp_path / "orders-0"
    before = tree(directory)
    write(tmp_path, [rows(PAIRS[:30])], [rows(PAIRS[30:])], batchBytes="100")
    records = records_in(directory)
    assert [each.offset for each in records] == list(range(46))
    assert [each.value for each in records[6:]] == [value for _, value in PAIRS]
    assert {each.leader_epoch for each in records[6:]} == {4}
    epochs = parse_leader_epoch_checkpoint((directory / "leader-epoch-checkpoint").read_bytes())
    assert list(epochs) == [(0, 0), (4, 3)]
    for offset in (6, 36, 46):
        entries = parse_producer_snapshot((directory / f"{offset:020d}.snapshot").read_bytes())
        assert [each.producer_id for each in entries] == [7]
    kept = {name for name in before if before[name] == tree(directory).get(name)}
    assert f"{0:020d}.log" in kept
    found = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert found.exit_code == 0, found.output


def test_a_log_without_an_epoch_gets_one(tmp_path: Path) -> None:
    write(tmp_path, [], partitions="1")
    write(tmp_path, [rows(PAIRS)])
    path = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    assert list(parse_leader_epoch_checkpoint(path.read_bytes())) == [(0, 0)]


def test_only_attempts_that_are_named_count_and_the_others_go(tmp_path: Path) -> None:
    plan = planned(tmp_path, partitions="1")
    (first,) = attempted(plan, [rows(PAIRS[:5])])
    shutil.copytree(first.directory, tmp_path / first.directory.name.replace("attempt0", "again"))
    committed(plan, [first])
    assert values(tmp_path / "orders-0") == [value for _, value in PAIRS[:5]]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["orders-0"]


def test_a_job_that_is_given_up_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    plan, other = planned(tmp_path, partitions="1"), planned(tmp_path, partitions="1")
    attempted(plan, [rows(PAIRS)])
    (kept,) = attempted(other, [rows(PAIRS)])
    discard(plan)
    assert [path.name for path in tmp_path.iterdir()] == [kept.directory.name]


class FailingFileSystem(OsFileSystem):
    """The machine's files, where one rename or write of a whole file fails."""

    def __init__(self, number: int) -> None:
        self.left = number

    def rename(self, path: Path, target: Path) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(5, "Input/output error", str(path))
        super().rename(path, target)


@pytest.mark.parametrize("number", range(1, 12))
def test_an_error_on_the_way_undoes_what_is_in_place(tmp_path: Path, number: int) -> None:
    plain(tmp_path, built(rolled=True), built("orders-1"))
    # A first job leaves the files that each job writes.
    write(tmp_path, [], partitions="2")
    plan = planned(tmp_path)
    staged = attempted(plan, [rows(PAIRS)], [rows(PAIRS)])
    before = {name: values(tmp_path / name) for name in ("orders-0", "orders-1")}
    checkpoints = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    fs = FailingFileSystem(number)
    with pytest.raises(OSError, match="Input/output"):
        committed(plan, staged, fs=fs)
    discard(plan)
    assert {name: values(tmp_path / name) for name in before} == before
    files = {p.name for p in (tmp_path / "orders-0").iterdir()}
    assert {name for name in files if name.endswith(".log")} == {f"{0:020d}.log", f"{6:020d}.log"}
    assert not any(f"{46:020d}" in name for name in files)
    for name, data in checkpoints.items():
        assert parse_offset_checkpoint((tmp_path / name).read_bytes()) == parse_offset_checkpoint(
            data
        )
    write(tmp_path, [rows(PAIRS)])
    assert len(values(tmp_path / "orders-0")) + len(values(tmp_path / "orders-1")) == 12 + len(
        PAIRS
    )


@pytest.mark.parametrize("number", [1, 5, 9])
def test_a_new_topic_that_cannot_be_put_in_place_is_not_there(tmp_path: Path, number: int) -> None:
    plan = planned(tmp_path, partitions="2")
    staged = attempted(plan, [rows(PAIRS)])
    with pytest.raises(OSError, match="Input/output"):
        committed(plan, staged, fs=FailingFileSystem(number))
    discard(plan)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_directory_that_is_in_use_is_refused_before_and_after_the_rows_are_written(
    tmp_path: Path,
) -> None:
    plan = planned(tmp_path, partitions="1")
    staged = attempted(plan, [rows(PAIRS)])
    lock = DirectoryLock(tmp_path)
    try:
        with pytest.raises(DirectoryInUseError):
            planned(tmp_path, partitions="1")
        with pytest.raises(DirectoryInUseError):
            committed(plan, staged)
    finally:
        lock.release()
    committed(plan, staged)
    assert len(values(tmp_path / "orders-0")) == len(PAIRS)


def test_a_topic_that_has_changed_meanwhile_is_not_written_to(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    staged = attempted(plan, [rows(PAIRS)])
    write(tmp_path, [rows(PAIRS)])
    with pytest.raises(TopicWriteError, match="has changed since the write began"):
        committed(plan, staged)
    assert len(values(tmp_path / "orders-0")) == len(PAIRS)


def test_segments_that_a_broker_has_removed_are_missed(tmp_path: Path) -> None:
    plan = planned(tmp_path, partitions="1")
    staged = attempted(plan, [rows(PAIRS)])
    OS.remove_tree(staged[0].directory)
    with pytest.raises(TopicWriteError, match="a broker has been started"):
        committed(plan, staged)
    assert not (tmp_path / "orders-0").exists()


@pytest.mark.parametrize(
    ("topic", "options", "text"),
    [
        ("__consumer_offsets", {}, "is Kafka's own"),
        ("orders", {"ifExists": "fail"}, "is there already"),
        ("orders", {"partitions": "3"}, "has 2 partitions, not the 3 of the option"),
        ("gaps", {}, "has no directory of gaps-0"),
    ],
)
def test_what_cannot_be_written_to_is_refused(
    tmp_path: Path, topic: str, options: dict[str, str], text: str
) -> None:
    plain(tmp_path, built(), built("orders-1"), built("gaps-1"))
    with pytest.raises(TopicWriteError, match=text):
        planned(tmp_path, topic, **options)


def test_a_log_that_ends_in_part_of_a_batch_is_refused(tmp_path: Path) -> None:
    plain(tmp_path, built())
    with (tmp_path / "orders-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"part")
    plan = planned(tmp_path)
    staged = attempted(plan, [rows(PAIRS)])
    with pytest.raises(TopicWriteError, match="ends in part of a batch"):
        committed(plan, staged)
    assert not list(tmp_path.glob("orders-0/*6.log"))


def test_a_nodes_directory_without_the_metadata_log_is_refused(tmp_path: Path) -> None:
    write_log_dir(tmp_path, [built()])
    with pytest.raises(TopicWriteError, match="has no __cluster_metadata-0"):
        planned(tmp_path)
    with pytest.raises(TopicWriteError, match="no topic can be made here"):
        planned(tmp_path, "fresh")
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
