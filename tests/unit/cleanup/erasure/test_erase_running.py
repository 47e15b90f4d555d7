"""Erasure from running logs: nothing is left, all else stays, and readers read on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.erasure.check import Verdict, check_erasure
from cordwood.cleanup.erasure.pending import PENDING_NAME
from cordwood.cleanup.erasure.report import build_report, sealed
from cordwood.cleanup.schedule.holds import add_hold
from cordwood.configs.log_config import LogConfig
from cordwood.format.trash_notes import RETENTION
from cordwood.model.hold import Hold
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.broker_trash import BrokerTrash
from cordwood.storage.log.segment_removal import delete_segments
from support.erasing import KEY, VALUE, erasable_log, kept_records, sweep
from support.erasing_online import erase_running_here, running_logs
from support.log_builder import write_log_dir

CONFIGS = {
    "kept": LogConfig(retention_ms=-1, index_interval_bytes=100),
    "compact": LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100),
}
T = TopicPartition("kept", 0)


def directory_of(root: Path, *names: str, legacy: bool = False) -> Path:
    return write_log_dir(root / "logs-0", [erasable_log(name, legacy=legacy) for name in names])


@pytest.mark.parametrize("topic", sorted(CONFIGS))
def test_nothing_is_left_and_all_else_is_as_it_was(tmp_path: Path, topic: str) -> None:
    log_dir = directory_of(tmp_path, f"{topic}-0", legacy=True)
    before = kept_records(log_dir / f"{topic}-0")
    with running_logs(tmp_path, CONFIGS) as logs:
        log = logs.log(f"{topic}-0")
        end, stable = log.log_end_offset, log.last_stable_offset
        result = erase_running_here(logs, topic)
        assert result.failed == {}
        assert sweep(log_dir, KEY, VALUE) == [], "without a wait, and in no .deleted file"
        assert (log.log_end_offset, log.last_stable_offset) == (end, stable)
        assert logs.cleaning.states.of(log.topic_partition) is None, "it is cleaned again"
        (entry,) = result.report.partitions
        assert entry.log_end_offset == end == log.active.base_offset
        assert not (log_dir / PENDING_NAME).exists()
        report = tmp_path / "report.json"
        report.write_bytes(build_report(sealed(result.report, None)))
        logs.put(log, (b"later", b"appended while the report is checked"))
        verdicts = {each.verdict for each in check_erasure(report)}
        assert Verdict.FAILED not in verdicts
    assert kept_records(log_dir / f"{topic}-0")[: len(before)] == before
    with running_logs(tmp_path, CONFIGS) as logs:
        assert logs.log(f"{topic}-0").log_end_offset == end + 1


def test_readers_and_producers_go_on_and_later_records_are_not_covered(tmp_path: Path) -> None:
    log_dir = directory_of(tmp_path, "kept-0")
    with running_logs(tmp_path, CONFIGS) as logs:
        log = logs.log("kept-0")
        end = log.log_end_offset
        fetched = log.reader.read(0, 1 << 20)
        expected = fetched.read()

        def append() -> None:
            logs.put(log, (KEY, b"later"))

        result = erase_running_here(logs, "kept", before_rewriting=append)
        assert result.failed == {}
        assert fetched.read() == expected, "an open range keeps its file"
        (entry,) = result.report.partitions
        assert entry.log_end_offset == end
        assert log.log_end_offset == end + 1
        found = sweep(log_dir, KEY)
        assert found == [f"kept-0/{end:020d}.log"], "appended later, in the new active segment"


def test_a_log_without_such_a_record_in_its_active_segment_is_not_rolled(tmp_path: Path) -> None:
    directory_of(tmp_path, "kept-0")
    with running_logs(tmp_path, CONFIGS) as logs:
        log = logs.log("kept-0")
        erase_running_here(logs, "kept")
        logs.put(log, (b"a", b"b"))
        active = log.active
        result = erase_running_here(logs, "kept")
        assert log.active is active
        (entry,) = result.report.partitions
        assert (entry.erased, entry.log_end_offset) == (0, log.log_end_offset)


def test_a_hold_that_comes_meanwhile_keeps_what_is_not_replaced_yet(tmp_path: Path) -> None:
    log_dir = directory_of(tmp_path, "kept-0")
    hold = Hold(id="case-7", topic="kept", partition=None, reason="", by="", created_ms=0)
    with running_logs(tmp_path, CONFIGS) as logs:
        found = sweep(log_dir, VALUE)
        result = erase_running_here(
            logs, "kept", before_rewriting=lambda: add_hold(logs.cleaning, hold)
        )
        assert "held: case-7" in result.failed[str(log_dir / "kept-0")]
        assert result.report.status == "failed"
        assert sweep(log_dir, VALUE) == found
        again = erase_running_here(logs, "kept")
        assert "held: case-7" in again.failed[str(log_dir / "kept-0")]
        assert logs.cleaning.states.of(T) is None


def test_a_log_that_is_cut_off_meanwhile_fails_and_the_next_run_completes_it(
    tmp_path: Path,
) -> None:
    log_dir = directory_of(tmp_path, "kept-0")
    with running_logs(tmp_path, CONFIGS) as logs:
        log = logs.log("kept-0")
        cut = log.log_end_offset - 1
        result = erase_running_here(
            logs, "kept", before_rewriting=lambda: logs.manager.truncate_to({T: cut})
        )
        assert list(result.failed) == [str(log_dir / "kept-0")]
        assert (log_dir / PENDING_NAME).exists()
        log.update_high_watermark(log.log_end_offset)
        assert erase_running_here(logs, "kept").failed == {}
        assert sweep(log_dir, KEY, VALUE) == []
        assert not (log_dir / PENDING_NAME).exists()


def test_the_trash_of_the_broker_is_erased_too_and_gets_nothing_meanwhile(tmp_path: Path) -> None:
    log_dir, trash = directory_of(tmp_path, "kept-0"), tmp_path / "trash"
    configs = {"kept": replace(CONFIGS["kept"], cordwood_trash_ms=60_000)}
    with running_logs(tmp_path, configs) as logs:
        logs.manager.context.trash = BrokerTrash(trash, logs.directories)
        log = logs.log("kept-0")
        delete_segments(log, 1, reason=RETENTION)
        log.deleted_files.settle_all(log.directory)
        delete_segments(log, 1, reason=RETENTION)
        assert sweep(trash, KEY), "of the first"
        assert any(name.endswith(".deleted") for name in sweep(log_dir, KEY)), "of the second"
        result = erase_running_here(logs, "kept")
        assert result.failed == {}
        assert len(result.report.beside) == 2
        assert sweep(tmp_path, KEY, VALUE) == []
        logs.manager.context.trash.close()


def test_a_dry_run_changes_no_byte(tmp_path: Path) -> None:
    log_dir = directory_of(tmp_path, "kept-0")
    with running_logs(tmp_path, CONFIGS) as logs:
        before = {p.name: p.read_bytes() for p in (log_dir / "kept-0").iterdir()}
        result = erase_running_here(logs, "kept", dry_run=True)
        assert result.report.status == "planned"
        assert result.report.partitions[0].erased > 40
        assert {p.name: p.read_bytes() for p in (log_dir / "kept-0").iterdir()} == before
