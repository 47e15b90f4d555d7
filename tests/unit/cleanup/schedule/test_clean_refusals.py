"""Refusals: the partition is reported and left as it was, and the others are done."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.plan.report import PartitionReport, Report, Status
from cordwood.configs.log_config import LogConfig
from cordwood.format.crc32c import crc32c
from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT
from cordwood.format.offset_checkpoint import parse_offset_checkpoint
from cordwood.model.errors import NoSpaceError
from cordwood.storage.filesystem import FileWriter
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

DAY_MS = 86_400_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=300)
CONFIGS = {"bad": COMPACT, "good": COMPACT}


def log_of(name: str, *, clean_until: int | None = None) -> LogBuilder:
    """Four segments with two batches of two records each, and an active one: offsets 0 to 16."""
    log = LogBuilder(name)
    for number in range(4):
        for _ in range(2):
            log.batch([(b"a", b"%d" % number * 20), (b"k%d" % number, b"v")])
        log.roll()
    log.put(b"end", b"v")
    log.cleaner_checkpoint = clean_until
    return log


def tree(top: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(top)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(top.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def segment(root: Path, base: int, suffix: str = ".log") -> Path:
    return root / "bad-0" / f"{base:020d}{suffix}"


def damaged(
    tmp_path: Path, damage: Callable[[Path], object], *, clean_until: int | None = None
) -> Path:
    root = write_log_dir(
        tmp_path / "logs", [log_of("bad-0", clean_until=clean_until), log_of("good-0")]
    )
    damage(root)
    return root


def refused(root: Path, **options: Any) -> PartitionReport:
    """Cleans; the report on the bad partition, after checking the good one and all files."""
    before = tree(root / "bad-0")
    report: Report = clean_in_process(root, CONFIGS, now_ms=NOW_MS, force=True, **options)
    bad, good = report.partitions
    assert [p.topic for p in report.failed] == ["bad"]
    assert good.status is Status.CLEANED
    assert tree(root / "bad-0") == before
    checkpoint = parse_offset_checkpoint((root / CLEANER_OFFSET_CHECKPOINT).read_bytes())
    assert {str(p): offset for p, offset in checkpoint.items()}["good-0"] == 16
    return bad


def patched(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize("base", [0, 4, 12])
@pytest.mark.parametrize("clean_until", [None, 8])
def test_flipped_byte_below_the_recovery_point(
    tmp_path: Path, base: int, clean_until: int | None
) -> None:
    """Whether it lies in the clean section or in the dirty one."""
    size = 0

    def flip(root: Path) -> None:
        nonlocal size
        path = segment(root, base)
        size = path.stat().st_size
        patched(path, size - 3, b"\x7f")

    bad = refused(damaged(tmp_path, flip, clean_until=clean_until))
    assert bad.status is Status.FAILED
    assert f"{base:020d}.log: a batch whose CRC does not match at byte {size // 2}" in bad.reason


def test_wrong_size_field(tmp_path: Path) -> None:
    bad = refused(damaged(tmp_path, lambda root: patched(segment(root, 4), 8, b"\0\0\0\x03")))
    assert bad.reason.endswith("a batch whose length field is too small at byte 0")


def test_size_field_beyond_the_end_of_the_segment(tmp_path: Path) -> None:
    bad = refused(damaged(tmp_path, lambda root: patched(segment(root, 4), 8, b"\0\x01\0\0")))
    assert bad.reason.endswith("a batch that extends past the end of the segment at byte 0")


def test_unknown_magic(tmp_path: Path) -> None:
    bad = refused(damaged(tmp_path, lambda root: patched(segment(root, 8), 16, b"\x0a")))
    assert bad.reason.endswith("a batch of unknown magic at byte 0")


def test_batch_with_offsets_of_another_segment(tmp_path: Path) -> None:
    def swap(root: Path) -> None:
        data = segment(root, 8).read_bytes()
        segment(root, 4).write_bytes(data)

    bad = refused(damaged(tmp_path, swap))
    assert "where offsets from 4 to 7 belong" in bad.reason


def test_marker_of_a_negative_version(tmp_path: Path) -> None:
    log = LogBuilder("bad-0")
    log.put(b"a", b"v", producer=(1, 0), transactional=True)
    log.marker((1, 0), commit=True)
    log.roll()
    log.put(b"end", b"v")
    marker = bytearray(log.segments[0].batches[1])
    key_at = bytes(marker).index(b"\x08\0\0\0\x01") + 1
    marker[key_at] = 0xFF
    struct.pack_into(">I", marker, 17, crc32c(bytes(marker[21:])))
    log.segments[0].batches[1] = bytes(marker)
    root = write_log_dir(tmp_path / "logs", [log, log_of("good-0")])
    bad = refused(root)
    assert "control record key of version" in bad.reason
    assert "at byte" in bad.reason


def test_damaged_transaction_index(tmp_path: Path) -> None:
    bad = refused(
        damaged(tmp_path, lambda root: segment(root, 4, ".txnindex").write_bytes(b"x" * 33))
    )
    assert f"{4:020d}.txnindex: transaction index of 33 bytes" in bad.reason


def test_log_that_cannot_be_read(tmp_path: Path) -> None:
    def replace_by_directory(root: Path) -> None:
        segment(root, 4).unlink()
        segment(root, 4).mkdir()

    bad = refused(damaged(tmp_path, replace_by_directory))
    assert str(segment(Path(bad.log_dir), 4)) in bad.reason


def test_log_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root reads what it has no permission for, so the system's refusal is put into its mouth.
    root = write_log_dir(tmp_path / "logs", [log_of("bad-0"), log_of("good-0")])
    refused_path = segment(root, 4)
    open_file = os.open

    def open_unless_refused(path: Path, flags: int, *rest: int) -> int:
        if Path(path) == refused_path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_file(path, flags, *rest)

    monkeypatch.setattr(os, "open", open_unless_refused)
    report = clean_in_process(root, CONFIGS, now_ms=NOW_MS, force=True)
    assert [p.topic for p in report.failed] == ["bad"]
    assert "Permission denied" in report.failed[0].reason


def test_damaged_journal_of_an_earlier_run(tmp_path: Path) -> None:
    bad = refused(
        damaged(tmp_path, lambda root: (root / "bad-0" / "cordwood.round").write_text("junk\n"))
    )
    assert "remove it to have it planned again" in bad.reason


def test_full_disk_in_mid_rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = damaged(tmp_path, lambda root: None)
    write = FileWriter.write

    def write_until_full(self: FileWriter, data: bytes | memoryview) -> None:
        if "bad-0" in str(self.path) and ".staged" in self.path.name:
            raise NoSpaceError(f"{self.path}: the file system is full")
        write(self, data)

    monkeypatch.setattr(FileWriter, "write", write_until_full)
    assert refused(root).status is Status.NO_SPACE
    monkeypatch.undo()
    assert not clean_in_process(root, CONFIGS, now_ms=NOW_MS, force=True).failed


def test_system_call_that_finds_the_disk_full_is_named_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = damaged(tmp_path, lambda root: None)
    write = os.pwritev

    def full(handle: int, parts: Sequence[bytes], position: int) -> int:
        if "bad-0" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, parts, position)

    monkeypatch.setattr(os, "pwritev", full)
    bad = refused(root)
    assert bad.status is Status.NO_SPACE
    assert "the file system is full" in bad.reason


def test_group_that_needs_more_than_may_be_used_is_not_started(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of("bad-0")])
    before = tree(root / "bad-0")
    report = clean_in_process(root, CONFIGS, now_ms=NOW_MS, force=True, space_max=10)
    (bad,) = report.failed
    assert bad.status is Status.NO_SPACE
    assert "it was not started" in bad.reason
    assert tree(root / "bad-0") == before


def test_partition_in_two_directories(tmp_path: Path) -> None:
    roots = [write_log_dir(tmp_path / name, [log_of("bad-0")]) for name in ("one", "two")]
    report = clean_in_process(
        roots[0], CONFIGS, now_ms=NOW_MS, force=True, log_dirs=(roots[0], roots[1])
    )
    assert "Duplicate log directories found" in report.failed[0].reason


def test_groups_done_before_the_damage_stay_as_in_kafka(tmp_path: Path) -> None:
    """The damage shows before anything is rewritten: indexing reads all that is dirty first."""
    root = damaged(tmp_path, lambda root: patched(segment(root, 12), 70, b"\xff"))
    before = tree(root / "bad-0")
    clean_in_process(root, CONFIGS, now_ms=NOW_MS, force=True)
    assert tree(root / "bad-0") == before


def test_topic_that_no_source_describes_is_left_alone(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of("other-0")])
    before = tree(root)
    (partition,) = clean_in_process(root, CONFIGS, now_ms=NOW_MS, force=True).partitions
    assert partition.status is Status.LEFT_ALONE
    assert "no source describes its settings" in partition.reason
    assert tree(root) == before


def test_retention_deletes_from_a_log_whose_compaction_fails(tmp_path: Path) -> None:
    both = LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=3 * DAY_MS)
    log = LogBuilder("bad-0")
    for day in range(6):
        log.batch([(b"a", b"%d" % day)], timestamp=NOW_MS - (6 - day) * DAY_MS)
        log.roll()
    root = write_log_dir(tmp_path / "logs", [log])
    path = segment(root, 4)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (bad,) = clean_in_process(root, {"bad": both}, now_ms=NOW_MS, force=True).partitions
    assert bad.status is Status.FAILED
    assert "CRC" in bad.reason
    assert not segment(root, 2).exists()
    assert path.read_bytes() == data
