"""Segments that take more bytes when rewritten than before: none outgrows its limit."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.cleanup.access.offline.trash_restore import restore
from cordwood.cleanup.engine import tasks
from cordwood.cleanup.engine.output import Output, OutputLimits
from cordwood.cleanup.engine.recompression import without_growth
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.engine.segment_files import CountedFiles
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.format.transaction_index import parse_transaction_index
from cordwood.model.errors import CorruptError, StagingError
from cordwood.storage.filesystem import OsFileSystem
from cordwood.storage.replace import put_in_place, recover_directory
from cordwood.storage.trash import TrashedPartition
from cordwood.testing.reference_cleaner import clean_by_reference
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs
from support.stored_log import StoredLogs, records_in
from support.whole_compaction import survivors_of, verify_rewritten

# So far away that each tombstone takes more bytes when its batch has a horizon.
HORIZON_MS = 10**15
SEGMENT_BYTES = 750
GROWING = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=HORIZON_MS,
    segment_bytes=SEGMENT_BYTES,
    index_interval_bytes=100,
)


def growing(name: str = "t-0") -> LogBuilder:
    """Segments of 600 to 750 bytes of tombstones, and an aborted transaction in each."""
    log = LogBuilder(name, index_interval_bytes=100)
    for number in range(3):
        for batch in range(3):
            keys = [b"%d" % (100 * number + 12 * batch + n) for n in range(12)]
            log.batch([(key, None) for key in keys])
        log.batch([(b"a%d" % number, b"v")], producer=(7, 0), transactional=True)
        log.marker((7, 0), commit=False)
        assert SEGMENT_BYTES - 150 < log.active.size_bytes <= SEGMENT_BYTES
        log.roll()
    log.put(b"end", b"v")
    return log


def compaction_of(log: LogBuilder, directory: Path, config: LogConfig = GROWING) -> LogCompaction:
    captured = log.capture(log.write(directory / str(log.topic_partition)), config)
    cleanable = plan_cleanable(captured.view, now_ms=NOW_MS, force=True)
    plan = plan_compaction(captured.view, cleanable)
    return prepare_compaction(captured, plan, now_ms=NOW_MS, seed=5)


def sizes_in(directory: Path) -> dict[int, int]:
    """The bytes of each log, by base offset."""
    return {int(path.stem): path.stat().st_size for path in sorted(directory.glob("*.log"))}


def served(root: Path) -> list[object]:
    """The records that a broker which starts on the directory serves."""
    logs = StoredLogs(root)
    logs.configs["t"] = GROWING
    manager = logs.start()
    log = logs.log()
    found: list[object] = [log.log_start_offset, log.log_end_offset, *records_in(log)]
    manager.shutdown()
    return found


def test_a_group_that_outgrows_a_segment_becomes_several(tmp_path: Path) -> None:
    compaction = compaction_of(growing(), tmp_path)
    specs = tasks.rewrite_specs(compaction, survivors_of(compaction))
    expected = clean_by_reference(compaction)
    for number, planned in specs.items():
        spec = replace(planned, staged=replace(planned.staged, token="t"))
        manifest = GroupRewriter().rewrite(spec)
        verify_rewritten(compaction, spec, manifest)
        staged = [spec.staged.at(each.base_offset).paths() for each in manifest.segments]
        logs = [paths[".log"].read_bytes() for paths in staged]
        assert len(logs) > 1
        assert b"".join(logs) == expected[number].files[".log"]
        assert all(len(data) <= SEGMENT_BYTES for data in logs)
        for each, data, paths in zip(manifest.segments, logs, staged, strict=True):
            (_, first), *_ = iter_batches(data)
            assert isinstance(first, RecordBatch)
            assert first.header.base_offset == each.base_offset or each is manifest.segments[0]
            assert each.index_bytes == paths[".index"].stat().st_size
            entries = parse_transaction_index(
                paths[".txnindex"].read_bytes() if paths[".txnindex"].exists() else b""
            )
            follows = [s.base_offset for s in manifest.segments if s.base_offset > each.base_offset]
            assert all(
                each.base_offset <= entry.last_offset < min(follows, default=1 << 62)
                for entry in entries
            )


def test_a_cleaned_log_is_served_as_before_and_no_segment_is_too_large(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "data", [growing()])
    report = clean_in_process(root, {"t": GROWING}, now_ms=NOW_MS, force=True, verify=True)
    assert report.failed == []
    sizes = sizes_in(root / "t-0")
    assert len(sizes) > 4
    assert max(sizes.values()) <= SEGMENT_BYTES
    assert len(served(root)[2:]) == 3 * 36 + 1
    again = clean_in_process(root, {"t": GROWING}, now_ms=NOW_MS, force=True, verify=True)
    assert again.failed == []
    assert sizes_in(root / "t-0") == sizes


def test_an_exact_dry_run_predicts_the_segments_and_bytes(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "data", [growing()])
    options: dict[str, Any] = {"now_ms": NOW_MS, "force": True}
    dry = clean_in_process(root, {"t": GROWING}, dry_run=True, measured=True, **options)
    real = clean_in_process(root, {"t": GROWING}, **options)
    assert dry.partitions[0].after == real.partitions[0].after
    assert real.partitions[0].after is not None
    assert real.partitions[0].after.bytes == sum(sizes_in(root / "t-0").values())


def test_a_group_may_not_take_more_than_the_extra_bytes(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "data", [growing()])
    before = sizes_in(root / "t-0")
    report = clean_in_process(
        root, {"t": GROWING}, now_ms=NOW_MS, force=True, space_max=SEGMENT_BYTES + 50
    )
    (failed,) = report.partitions
    assert "--max-extra-bytes" in str(failed.reason)
    assert sizes_in(root / "t-0") == before
    assert not list((root / "t-0").glob("*.staged"))


def test_sources_come_back_from_the_trash_in_the_place_of_several_segments(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "data", [growing()])
    files = {path.name: path.read_bytes() for path in (root / "t-0").iterdir()}
    clean_in_process(root, {"t": GROWING}, now_ms=NOW_MS, force=True, trash=tmp_path / "trash")
    assert len(sizes_in(root / "t-0")) > 4
    found = restore(TrashedPartition(tmp_path / "trash" / "t-0"), OfflineLogDirectory(root))
    assert found.refused is None
    assert len(found.removals) == 3
    assert {path.name: path.read_bytes() for path in (root / "t-0").iterdir()} == files


def test_a_running_log_gets_several_segments_for_one(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": GROWING})
    log = logs.log()
    for number in range(60):
        logs.put(log, *((b"%d" % (10 * number + n), None) for n in range(8)))
    before = [segment.base_offset for segment in log.segments]
    records = records_in(log)
    assert logs.cleaner.clean_once()
    assert logs.cleaner.last_stats is not None
    after = [segment.base_offset for segment in log.segments]
    assert len(after) > len(before)
    assert all(segment.size_bytes <= SEGMENT_BYTES for segment in log.segments)
    assert records_in(log) == records


class _Crash(Exception):
    """The process ends here."""


class _CrashingFileSystem(OsFileSystem):
    """Changes so many names, and no more."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def rename(self, source: Path, target: Path) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Crash
        super().rename(source, target)


def test_after_a_crash_at_each_rename_all_of_the_old_or_all_of_the_new_segments_are_there(
    tmp_path: Path,
) -> None:
    """Without a journal, as a running log or a Kafka is left: by the rules of Kafka's loader."""
    compaction = compaction_of(growing(), tmp_path / "work")
    spec = tasks.rewrite_specs(compaction, survivors_of(compaction))[1]
    spec = replace(spec, staged=replace(spec.staged, token="t"))
    bases = [each.base_offset for each in GroupRewriter().rewrite(spec).segments]
    group = compaction.groups[1]
    work = Path(compaction.directory)
    old, outcomes = sizes_in(work), []
    end = spec.segments[-1].source.next_base_offset
    for count in range(40):
        directory = shutil.copytree(work, tmp_path / str(count) / "t-0")
        staged = [replace(spec.staged.at(base), directory=str(directory)) for base in bases]
        is_done = True
        try:
            put_in_place(staged, group, fs=_CrashingFileSystem(count))
        except _Crash:
            is_done = False
        recover_directory(directory)
        found = sizes_in(directory)
        outcomes.append(found == old)
        assert found == old or [base for base in found if group[0] <= base < end] == bases
        left = [p.name for p in directory.iterdir()]
        assert not [n for n in left if n.endswith((".swap", ".cleaned", ".staged", ".deleted"))]
        for base in found:
            assert (directory / f"{base:020d}.index").exists()
        if is_done:
            break
    assert is_done
    assert len(outcomes) > 20
    # The old ones up to one rename, and the new ones from it on.
    assert outcomes == sorted(outcomes, reverse=True)
    assert not outcomes[-1]


def test_a_source_that_is_larger_than_the_setting_may_stay_as_large(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    for number in range(20):
        log.batch([(b"%d" % (number % 19), b"v" * 60)])
    log.roll()
    compaction = compaction_of(log, tmp_path)
    (spec,) = tasks.rewrite_specs(compaction, survivors_of(compaction)).values()
    manifest = GroupRewriter().rewrite(replace(spec, staged=replace(spec.staged, token="t")))
    assert len(manifest.segments) == 1
    assert manifest.log_bytes > SEGMENT_BYTES


# ---- a batch


@pytest.mark.parametrize(("codec", "level"), [(Codec.ZSTD, 19), (Codec.LZ4, 12)])
def test_a_densely_compressed_batch_that_loses_a_record_does_not_grow(
    tmp_path: Path, codec: Codec, level: int
) -> None:
    rng = random.Random(3)
    words = [rng.randbytes(rng.randint(3, 9)) for _ in range(500)]
    records = [
        Record(n, NOW_MS, b"%d" % n, b"".join(rng.choices(words, k=30))) for n in range(1_500)
    ]
    log = LogBuilder("t-0")
    log.append(build_batch(records, base_offset=0, codec=codec, level=level))
    log.put(b"7", b"newer")
    log.roll()
    compaction = compaction_of(log, tmp_path)
    (spec,) = tasks.rewrite_specs(compaction, survivors_of(compaction)).values()
    spec = replace(spec, staged=replace(spec.staged, token="t"))
    manifest = GroupRewriter().rewrite(spec)
    verify_rewritten(compaction, spec, manifest)
    assert manifest.records_after == manifest.records_before - 1
    assert manifest.log_bytes <= spec.segments[0].source.size_bytes * 1.03
    (reference,) = clean_by_reference(compaction)
    assert manifest.log_bytes < len(reference.files[".log"])


def test_a_batch_that_grows_a_little_is_written_as_kafka_writes_it() -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", b"v" * 50)], base_offset=0, codec=Codec.GZIP)
    written = np.array([[len(batch), 0, NOW_MS]], dtype=np.int64)
    before = np.array([len(batch) - 511], dtype=np.int64)
    data, after = without_growth(memoryview(batch), written, before)
    assert bytes(data) == batch
    assert after is written


# ---- the limits of an output


def one_record(offset: int) -> bytes:
    return build_batch([Record(offset, NOW_MS, b"k", b"v" * 100)], base_offset=offset)


def output_of(limits: OutputLimits) -> Output:
    return Output(lambda _: CountedFiles(), Manifest(0, "t"), index_interval_bytes=0, limits=limits)


def append_all(output: Output, offsets: range) -> list[bytes]:
    """Appends batches of a record in one go."""
    batches = [one_record(offset) for offset in offsets]
    written = np.array(
        [[len(b), n, NOW_MS] for n, b in zip(offsets, batches, strict=True)], dtype=np.int64
    )
    output.append(memoryview(b"".join(batches)), written, len(batches))
    return batches


def test_a_segment_ends_at_the_last_batch_that_fits() -> None:
    size = len(one_record(0))
    output = output_of(OutputLimits(segment_bytes=3 * size))
    append_all(output, range(10, 14))
    append_all(output, range(14, 21))
    output.flush()
    manifest = output.finish()
    assert [each.base_offset for each in manifest.segments] == [0, 13, 16, 19]
    assert [each.log_bytes for each in manifest.segments] == [
        3 * size,
        3 * size,
        3 * size,
        2 * size,
    ]
    assert [each.index_bytes for each in manifest.segments] == [16, 16, 16, 8]


def test_a_batch_that_is_larger_than_a_segment_has_one_of_its_own() -> None:
    size = len(one_record(0))
    output = output_of(OutputLimits(segment_bytes=size // 2))
    append_all(output, range(3))
    assert [each.base_offset for each in output.finish().segments] == [0, 1, 2]


def test_a_segment_that_may_not_be_split_is_refused_before_its_index_wraps() -> None:
    size = len(one_record(0))
    output = output_of(OutputLimits(segment_bytes=2 * size, may_split=False))
    append_all(output, range(2))
    with pytest.raises(StagingError, match=f"more than {2 * size} bytes"):
        append_all(output, range(2, 3))


def test_a_verification_refuses_a_segment_over_its_limit(tmp_path: Path) -> None:
    compaction = compaction_of(growing(), tmp_path)
    spec = tasks.rewrite_specs(compaction, survivors_of(compaction))[0]
    spec = replace(spec, staged=replace(spec.staged, token="t"))
    roomy = replace(spec.compaction, segment_bytes=1 << 20)
    manifest = GroupRewriter().rewrite(replace(spec, compaction=roomy))
    assert len(manifest.segments) == 1
    with pytest.raises(CorruptError, match="cleaning-size"):
        verify_rewritten(compaction, spec, manifest)
