"""A log directory of a real Kafka with its tiered logs: records, files, and what is refused."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.format.file_names import LOG_SUFFIX, PARTITION_METADATA
from cordwood.format.record_batch import RecordBatch
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.storage.filesystem import OS, DirectoryLock
from cordwood.storage.reading.batches import LogFile
from cordwood.storage.tiered.metadata_topic import TOPIC
from cordwood.storage.tiered.mount import mount_tiered
from cordwood.storage.tiered.tiered_filesystem import TieredFileSystem
from support.tiered_golden import TOPICS, Consumed, TieredGolden


def mounted(golden: TieredGolden, **options: Path) -> Path:
    given = {"remote_dir": golden.remote_dir, **options}
    query = "&".join(f"{name.replace('_', '-')}={path}" for name, path in given.items())
    return mount_tiered(f"tiered://{golden.log_dir}?{query}")


def records(directory: Path) -> Iterator[Consumed]:
    for name in OS.names_in(directory):
        if not name.endswith(LOG_SUFFIX):
            continue
        with LogFile(directory / name) as log:
            for placed in log.batches():
                batch = placed.batch
                assert isinstance(batch, RecordBatch)
                if not batch.header.is_control:
                    for each in batch.records():
                        yield Consumed.of(each.offset, each.timestamp, each.key, each.value)


@pytest.mark.parametrize("topic", [each for each in TOPICS if each != "gone"])
def test_records_are_those_that_a_consumer_gets(golden: TieredGolden, topic: str) -> None:
    expected = golden.consumed[f"read_uncommitted/{topic}"]
    found = list(records(mounted(golden) / f"{topic}-0"))
    # The segment with the first record has older ones.
    older = [each for each in found if each.offset < expected[0].offset]
    assert found == [*older, *expected]
    assert bool(older) == (topic == "records-deleted")


def test_files_are_those_of_both_places(golden: TieredGolden) -> None:
    root, log_dir = mounted(golden), golden.log_dir
    assert OS.entries_in(root) == OS.entries_in(log_dir)
    assert not OS.exists(root / "gone-0")
    for path in (root / "plain-0", root / "untiered-0"):
        for name in OS.names_in(path):
            file = path / name
            assert OS.exists(file)
            assert not OS.is_directory(file)
            OS.require_regular(file)
            assert OS.facts_of(file).size_bytes == len(OS.read_bytes(file))
    first = "00000000000000000000.log"
    (remote,) = golden.remote_dir.glob("plain-0-*/00000000000000000000-*.log")
    assert OS.read_bytes(root / "plain-0" / first) == remote.read_bytes()
    assert OS.facts_of(root / "plain-0" / first) == OS.facts_of(remote)
    assert OS.identity_of(root / "plain-0" / first) == OS.identity_of(remote)
    assert OS.identity_of(root) == OS.identity_of(log_dir)
    assert OS.space(root)[0] == OS.space(log_dir)[0]
    assert 0 < OS.free_bytes(root) <= OS.space(root)[0]
    assert not OS.exists(root / "plain-0" / "00000000000000000001.log")
    with pytest.raises(FileNotFoundError):
        OS.open(root / "plain-0" / "00000000000000000001.log")


def test_nothing_can_be_changed(golden: TieredGolden) -> None:
    root = mounted(golden)
    file = root / "plain-0" / "00000000000000000000.log"
    before = OS.read_bytes(file)
    for change in (
        lambda: OS.open(file, write=True),
        lambda: OS.create(file),
        lambda: OS.remove(file),
        lambda: OS.rename(file, file.with_suffix(".x")),
        lambda: OS.replace_durably(root / "meta.properties", b""),
        lambda: OS.make_directory(root / "new-0"),
        lambda: OS.remove_directory(root / "plain-0"),
        lambda: OS.set_modified(file, 0),
    ):
        with pytest.raises(OSError, match="Read-only file system"):
            change()
    OS.lock(root).release()
    assert OS.read_bytes(file) == before


def test_the_broker_of_the_directory_is_seen(golden: TieredGolden, tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    shutil.copytree(golden.log_dir, log_dir)
    root = mounted(TieredGolden(tmp_path, golden.consumed), remote_dir=golden.remote_dir)
    assert OS.lock_holder(root) is None
    lock = DirectoryLock(log_dir)
    try:
        assert OS.lock_holder(root) is not None
    finally:
        lock.release()


def test_it_is_the_same_in_another_process(golden: TieredGolden) -> None:
    root = mounted(golden)
    before = OS.at(root)
    after = pickle.loads(pickle.dumps(before))
    assert isinstance(after, TieredFileSystem)
    assert after.names_in(root / "plain-0") == before.names_in(root / "plain-0")


@pytest.fixture
def copy(golden: TieredGolden, tmp_path: Path) -> TieredGolden:
    shutil.copytree(golden.log_dir, tmp_path / "log-dir")
    shutil.copytree(golden.remote_dir, tmp_path / "remote")
    return TieredGolden(tmp_path, golden.consumed)


def test_the_metadata_may_be_in_another_directory(copy: TieredGolden, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for each in copy.log_dir.glob(f"{TOPIC}-*"):
        each.rename(other / each.name)
    with pytest.raises(ConfigError, match="no partition of __remote_log_metadata"):
        OS.names_in(mounted(copy) / "plain-0")
    root = mounted(copy, metadata_dir=other)
    assert list(records(root / "plain-0")) == copy.consumed["read_uncommitted/plain"]


def test_what_is_written_meanwhile_is_seen_when_a_directory_is_listed(copy: TieredGolden) -> None:
    kept = {each: each.read_bytes() for each in copy.log_dir.glob(f"{TOPIC}-*/*.log")}
    for each in kept:
        each.write_bytes(b"")
    root = mounted(copy)
    assert len([n for n in OS.names_in(root / "plain-0") if n.endswith(LOG_SUFFIX)]) == 1
    for each, data in kept.items():
        each.write_bytes(data)
    assert len([n for n in OS.names_in(root / "plain-0") if n.endswith(LOG_SUFFIX)]) > 5


def test_a_log_of_another_topic_id_has_no_remote_segments(copy: TieredGolden) -> None:
    other = copy.log_dir / "expired-0" / PARTITION_METADATA
    shutil.copy(other, copy.log_dir / "plain-0" / PARTITION_METADATA)
    assert OS.names_in(mounted(copy) / "plain-0") == OS.names_in(copy.log_dir / "plain-0")


def test_metadata_that_cannot_be_understood_name_their_file(copy: TieredGolden) -> None:
    (path,) = [each for each in copy.log_dir.glob(f"{TOPIC}-*/*.log") if each.stat().st_size][:1]
    data = bytearray(path.read_bytes())
    data[70] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptError) as raised:
        OS.names_in(mounted(copy) / "plain-0")
    assert raised.value.path == str(path)
