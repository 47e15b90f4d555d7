"""Corners of the rewrite that random logs seldom reach."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.engine import tasks
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.legacy import build_legacy_message
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.storage.filesystem import FileWriter
from cordwood.testing.reference_cleaner import CleanedSegment, clean_by_reference
from support.log_builder import NOW_MS, LogBuilder
from support.whole_compaction import survivors_of, verify_rewritten

Build = Callable[[LogBuilder], object]


def compaction_of(root: Path, build: Build, *, horizon_ms: int = 1_000) -> LogCompaction:
    """A compaction of all that `build` puts into a log, the next segment being active."""
    log = LogBuilder()
    build(log)
    log.roll()
    directory = log.write(root / "log-0")
    config = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=horizon_ms)
    captured = log.capture(directory, config)
    cleanable = plan_cleanable(captured.view, now_ms=NOW_MS, force=True)
    plan = plan_compaction(captured.view, cleanable)
    return prepare_compaction(captured, plan, now_ms=NOW_MS, seed=5)


def rewrite_first(compaction: LogCompaction) -> tuple[Manifest, bytes, CleanedSegment]:
    """(manifest, the new log, what the reference makes) of the first group."""
    spec = tasks.rewrite_specs(compaction, survivors_of(compaction))[0]
    spec = replace(spec, staged=replace(spec.staged, token="t"))
    manifest = GroupRewriter().rewrite(spec)
    verify_rewritten(compaction, spec, manifest)
    return manifest, spec.staged.paths()[".log"].read_bytes(), clean_by_reference(compaction)[0]


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_larger_than_every_buffer_loses_a_record(tmp_path: Path, codec: Codec) -> None:
    rng = random.Random(1)
    big = [(b"a", b"old"), *((b"k%d" % n, rng.randbytes(1 << 20)) for n in range(6))]

    def build(log: LogBuilder) -> None:
        log.batch(big, codec=codec)
        log.put(b"a", b"new")

    manifest, data, expected = rewrite_first(compaction_of(tmp_path, build))
    assert data == expected.files[".log"]
    assert (manifest.records_before, manifest.records_after) == (8, 7)


def test_tombstones_batch_grows_when_it_is_stamped(tmp_path: Path) -> None:
    """A day's distance from the horizon takes more bytes in each record."""

    def build(log: LogBuilder) -> None:
        log.batch([(b"%d" % n, None) for n in range(20_000)])

    _, data, expected = rewrite_first(compaction_of(tmp_path, build, horizon_ms=10**15))
    assert data == expected.files[".log"]
    ((_, batch),) = iter_batches(data)
    assert isinstance(batch, RecordBatch)
    assert batch.header.delete_horizon_ms == NOW_MS + 10**15


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_entry_that_ends_the_round_and_loses_its_record_leaves_nothing(
    tmp_path: Path, magic: int
) -> None:
    """Only magic 2 has empty batches."""

    def build(log: LogBuilder) -> None:
        log.put(b"a", b"v")
        log.append(build_legacy_message(offset=1, magic=magic, key=None, value=b"v", timestamp=1))

    manifest, data, expected = rewrite_first(compaction_of(tmp_path, build))
    assert data == expected.files[".log"]
    assert (manifest.batches_before, manifest.batches_after) == (2, 1)
    assert manifest.discarded.unkeyed == 1


def test_records_gone_are_counted_by_reason(tmp_path: Path) -> None:
    def build(log: LogBuilder) -> None:
        log.put(b"a", b"old")
        log.put(None, b"no key")
        log.put(b"t", None, delete_horizon_ms=NOW_MS)
        log.batch([(b"a", b"aborted")] * 2, producer=(1, 0), transactional=True)
        log.marker((1, 0), commit=False)
        log.put(b"a", b"new")

    manifest, data, expected = rewrite_first(compaction_of(tmp_path, build))
    assert data == expected.files[".log"]
    gone = manifest.discarded
    assert (gone.superseded, gone.unkeyed, gone.tombstone, gone.aborted, gone.marker) == (
        1,
        1,
        1,
        2,
        0,
    )
    assert manifest.records_before - manifest.records_after == 5
    assert manifest.segments[0].transaction_index_bytes == 34


def test_expired_marker_is_counted_as_a_marker(tmp_path: Path) -> None:
    def build(log: LogBuilder) -> None:
        log.put(b"a", b"v", producer=(1, 0))
        log.marker((1, 0), commit=True)
        log.put(b"b", b"v", producer=(1, 0))

    compaction = compaction_of(tmp_path, build, horizon_ms=0)
    first, _, _ = rewrite_first(compaction)
    assert (first.discarded.marker, first.records_after) == (0, 3)


def test_source_that_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    def build(log: LogBuilder) -> None:
        log.put(b"a", b"old")
        log.put(b"a", b"new")

    compaction = compaction_of(tmp_path, build)
    spec = tasks.rewrite_specs(compaction, survivors_of(compaction))[0]
    spec = replace(spec, staged=replace(spec.staged, token="t"))
    path = Path(spec.segments[0].source.path)
    more = LogBuilder()
    for _ in range(30):
        more.put(b"z", b"z")
    path.write_bytes(b"".join(more.segments[0].batches))
    source = replace(spec.segments[0].source, size_bytes=path.stat().st_size)
    with pytest.raises(CorruptError, match="has changed since it was read"):
        GroupRewriter().rewrite(replace(spec, segments=(replace(spec.segments[0], source=source),)))
    assert not list(path.parent.glob("*.staged"))


def test_full_disk_in_mid_rewrite_leaves_no_staged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(log: LogBuilder) -> None:
        log.put(b"a", b"old")
        for n in range(40):
            log.put(b"%d" % n, random.Random(n).randbytes(100_000))
        log.put(b"a", b"new")

    compaction = compaction_of(tmp_path, build)
    spec = tasks.rewrite_specs(compaction, survivors_of(compaction))[0]
    spec = replace(spec, staged=replace(spec.staged, token="t"))
    before = sorted(path.name for path in Path(compaction.directory).iterdir())
    write = FileWriter.write

    def write_until_full(self: FileWriter, data: bytes | memoryview) -> None:
        if self.size_bytes + len(data) > 1 << 20:
            raise NoSpaceError(f"{self.path}: {os.strerror(errno.ENOSPC)}")
        write(self, data)

    monkeypatch.setattr(FileWriter, "write", write_until_full)
    with pytest.raises(NoSpaceError):
        GroupRewriter().rewrite(spec)
    assert sorted(path.name for path in Path(compaction.directory).iterdir()) == before


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_a_verification_finds_a_staged_file_that_is_not_as_it_was_written(
    tmp_path: Path, suffix: str
) -> None:
    def build(log: LogBuilder) -> None:
        log.put(b"a", b"old")
        for n in range(100):
            log.put(b"%d" % n, b"v" * 100)
        log.put(b"a", b"new")

    compaction = compaction_of(tmp_path, build)
    spec = tasks.rewrite_specs(compaction, survivors_of(compaction))[0]
    spec = replace(spec, staged=replace(spec.staged, token="t"))
    manifest = GroupRewriter().rewrite(spec)
    path = spec.staged.paths()[suffix]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError):
        verify_rewritten(compaction, spec, manifest)
    assert not list(Path(compaction.directory).glob("*.staged"))


@pytest.mark.parametrize(
    ("retention_ms", "left"), [(0, [3]), (60_000, [1, 2, 3]), (60_001, [0, 1, 2, 3])]
)
def test_old_tombstone_goes_by_the_time_of_its_segment(
    tmp_path: Path, retention_ms: int, left: list[int]
) -> None:
    """The horizon is the time of the last clean segment less delete.retention.ms."""
    log = LogBuilder()
    for offset in range(3):
        if offset == 2:
            log.cleaner_checkpoint = 2
        log.append(build_legacy_message(offset=offset, magic=1, key=b"%d" % offset, value=None))
        log.roll()
    log.put(b"end", b"v")
    log.segments[0].modified_ms = NOW_MS - 60_000
    log.segments[1].modified_ms = log.segments[2].modified_ms = NOW_MS
    directory = log.write(tmp_path / "log-0")
    config = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=retention_ms)
    captured = log.capture(directory, config)
    cleanable = plan_cleanable(captured.view, now_ms=NOW_MS, force=True)
    plan = plan_compaction(captured.view, cleanable)
    compaction = prepare_compaction(captured, plan, now_ms=NOW_MS, seed=5)
    _, data, expected = rewrite_first(compaction)
    assert data == expected.files[".log"]
    assert [*expected.offsets, 3] == left
