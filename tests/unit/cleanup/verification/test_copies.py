"""Two copies of a log directory, before and after a cleaning, compared as consumers see them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cordwood.cleanup.verification.copies import compare_copies
from cordwood.cleanup.verification.findings import Rule
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.record_batch import RecordBatch, build_batch, iter_batches
from cordwood.model.clock import FixedClock
from cordwood.surfaces.cli.main import app
from support.golden import Golden
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import random_log

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
OLD, NEWEST, DATA, COMMIT, DELETED, TOMBSTONE = 0, 1, 2, 3, 4, 5


def log_of() -> LogBuilder:
    log = LogBuilder("log-0")
    assert log.put(b"a", b"old") == OLD
    assert log.put(b"a", b"new") == NEWEST
    assert log.put(b"t", b"v", producer=(7, 0), transactional=True) == DATA
    assert log.marker((7, 0), commit=True) == COMMIT
    assert log.put(b"gone", b"v") == DELETED
    assert log.put(b"gone", None) == TOMBSTONE
    log.put(b"z", b"end")
    return log


def compared(before: Path, after: Path) -> list[tuple[Rule, int | None]]:
    result = compare_copies(before, after, clock=FixedClock(NOW_MS))
    found = [(each.rule, each.offset) for log in result.logs for each in log.findings]
    assert result.is_sound == (not [r for r, _ in found if r is not Rule.COPY_START])
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_cleaning_is_found_sound(tmp_path: Path, seed: int) -> None:
    log = random_log(seed)
    # Its clean section is not one that a cleaning has left: it may hold a key twice.
    log.cleaner_checkpoint = None
    before = write_log_dir(tmp_path / "before", [log])
    after = tmp_path / "after"
    shutil.copytree(before, after)
    for now_ms in (NOW_MS, NOW_MS + 10 * CONFIG.delete_retention_ms):
        assert not clean_in_process(after, {"log": CONFIG}, now_ms=now_ms, force=True).failed
        assert compared(before, after) == []


def test_with_versions_the_highest_counts_and_not_the_newest(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    log.put(b"k", b"new", timestamp=NOW_MS)
    log.put(b"k", b"old", timestamp=NOW_MS - 1)
    log.roll()
    log.put(b"z", b"end")
    before = write_log_dir(tmp_path / "before", [log])
    after = tmp_path / "after"
    shutil.copytree(before, after)
    by_time = replace(CONFIG, cordwood_compaction_strategy="timestamp")
    assert not clean_in_process(after, {"log": by_time}, now_ms=NOW_MS, force=True).failed
    command = ["verify", "--cleaning", str(before), str(after)]
    assert CliRunner().invoke(app, command).exit_code == 1
    strategy = ["--set", "log:cordwood.compaction.strategy=timestamp"]
    found = CliRunner().invoke(app, [*command, *strategy])
    assert found.exit_code == 0, found.output
    unused = CliRunner().invoke(app, ["verify", str(after), *strategy])
    assert (unused.exit_code, "--set needs --cleaning" in unused.output) == (2, True)


@pytest.mark.parametrize("number", ["", "-2"])
def test_kafkas_own_cleanings_are_sound(golden_a: Golden, number: str) -> None:
    root = golden_a.root
    topics = [
        name
        for name, config in golden_a.topics.items()
        if "compact" in config.get("cleanup.policy", "")
    ]
    assert len(topics) > 10
    result = compare_copies(
        root / f"before{number}",
        root / f"after{number}",
        topics=topics,
        clock=FixedClock(NOW_MS),
    )
    found = [each for log in result.logs for each in log.findings]
    assert [str(each) for each in found if each.rule is not Rule.COPY_START] == []


def _without(*offsets: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda batches: [
        each for each in batches if int.from_bytes(each[:8], "big") not in offsets
    ]


def _changed(batches: list[bytes]) -> list[bytes]:
    ((_, batch),) = iter_batches(batches[NEWEST])
    assert isinstance(batch, RecordBatch)
    (record,) = batch.records()
    other = build_batch([replace(record, value=b"NEW")], base_offset=NEWEST)
    return [*batches[:NEWEST], other, *batches[NEWEST + 1 :]]


def _invented(batches: list[bytes]) -> list[bytes]:
    ((_, batch),) = iter_batches(batches[-1])
    assert isinstance(batch, RecordBatch)
    (record,) = batch.records()
    return [*batches, build_batch([replace(record, offset=record.offset + 1)], base_offset=7)]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        pytest.param(_without(OLD), [], id="a superseded value goes"),
        pytest.param(_without(DELETED, TOMBSTONE), [], id="a key and its tombstone go"),
        pytest.param(
            _without(NEWEST),
            [(Rule.COPY_REVIVED, OLD), (Rule.COPY_LOST, NEWEST)],
            id="an old value comes back",
        ),
        pytest.param(_without(OLD, NEWEST), [(Rule.COPY_LOST, NEWEST)], id="a key is lost"),
        pytest.param(
            _without(TOMBSTONE), [(Rule.COPY_REVIVED, DELETED)], id="a deleted key comes back"
        ),
        pytest.param(_without(COMMIT), [(Rule.COPY_TRANSACTION, DATA)], id="a marker is lost"),
        pytest.param(_changed, [(Rule.COPY_CHANGED, NEWEST)], id="a value is changed"),
        pytest.param(_invented, [(Rule.COPY_INVENTED, 7)], id="a record is invented"),
    ],
)
def test_what_a_consumer_would_miss_is_found(
    tmp_path: Path,
    damage: Callable[[list[bytes]], list[bytes]],
    expected: list[tuple[Rule, int]],
) -> None:
    before = write_log_dir(tmp_path / "before", [log_of()])
    log = log_of()
    log.segments[0].batches[:] = damage(log.segments[0].batches)
    after = write_log_dir(tmp_path / "after", [log])
    assert compared(before, after)[: len(expected) or None] == expected


def _two_transactions() -> LogBuilder:
    log = LogBuilder("log-0")
    for number in range(2):
        log.put(b"t%d" % number, b"v", producer=(7, 0), transactional=True, timestamp=NOW_MS)
        log.marker((7, 0), commit=True, timestamp=NOW_MS)
    log.put(b"z", b"end")
    return log


def test_a_marker_is_missed_although_a_later_one_of_its_producer_commits_too(
    tmp_path: Path,
) -> None:
    before = write_log_dir(tmp_path / "before", [_two_transactions()])
    log = _two_transactions()
    log.segments[0].batches[:] = _without(1)(log.segments[0].batches)
    after = write_log_dir(tmp_path / "after", [log])
    assert compared(before, after) == [(Rule.COPY_TRANSACTION, 1)]


@pytest.mark.parametrize(("retention_ms", "is_found"), [(1, True), (0, False)])
def test_a_marker_without_data_is_missed_until_its_retention_has_passed(
    tmp_path: Path, retention_ms: int, is_found: bool
) -> None:
    before_log, log = _two_transactions(), _two_transactions()
    before_log.segments[0].batches[:] = _without(0)(before_log.segments[0].batches)
    log.segments[0].batches[:] = _without(0, 1)(log.segments[0].batches)
    before = write_log_dir(tmp_path / "before", [before_log])
    after = write_log_dir(tmp_path / "after", [log])
    result = compare_copies(
        before,
        after,
        clock=FixedClock(NOW_MS),
        config_of=lambda _: LogConfig(delete_retention_ms=retention_ms),
    )
    found = [(each.rule, each.offset) for each in result.logs[0].findings]
    assert found == ([(Rule.COPY_TRANSACTION, 1)] if is_found else [])


def test_a_partition_that_is_missing_is_found(tmp_path: Path) -> None:
    before = write_log_dir(tmp_path / "before", [log_of(), LogBuilder("other-0")])
    after = write_log_dir(tmp_path / "after", [log_of()])
    assert compared(before, after) == [(Rule.COPY_MISSING, None)]


def test_a_partition_without_a_segment_is_missing_and_has_nothing_to_miss(tmp_path: Path) -> None:
    before = write_log_dir(tmp_path / "before", [log_of()])
    after = write_log_dir(tmp_path / "after", [log_of()])
    for path in (after / "log-0").glob("*.log"):
        path.unlink()
    assert compared(before, after) == [(Rule.COPY_MISSING, None)]
    assert compared(after, before) == []


def test_directories_that_kafka_is_about_to_delete_or_move_are_not_compared(tmp_path: Path) -> None:
    before = write_log_dir(tmp_path / "before", [log_of()])
    other = LogBuilder("log-0")
    other.put(b"other", b"v")
    for suffix in ("delete", "future", "stray"):
        other.write(before / f"log-0.0123456789abcdef0123456789abcdef-{suffix}")
    after = shutil.copytree(before, tmp_path / "after")
    assert compared(before, after) == []


def test_what_retention_removed_is_noted(tmp_path: Path) -> None:
    old, new = log_of(), log_of()
    new.log_start_offset = DATA
    before = write_log_dir(tmp_path / "before", [old])
    after = write_log_dir(tmp_path / "after", [new])
    assert compared(before, after) == [(Rule.COPY_START, DATA)]


def test_the_command_compares(tmp_path: Path) -> None:
    before = write_log_dir(tmp_path / "before", [log_of()])
    log = log_of()
    log.segments[0].batches[:] = _without(COMMIT)(log.segments[0].batches)
    after = write_log_dir(tmp_path / "after", [log])

    def run(*arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["verify", "--cleaning", *map(str, arguments)])
        return result.exit_code, result.output

    code, output = run(before, after)
    assert code == 1
    assert "copy-transaction" in output
    assert run(before, before)[0] == 0
    assert run(before)[0] == 2


def test_a_record_over_the_bound_fails_its_partition_alone(tmp_path: Path) -> None:
    logs = []
    for name, size in (("log-0", 50_000), ("log-1", 10)):
        log = LogBuilder(name)
        log.batch([(b"k", bytes(size))], codec=Codec.LZ4)
        logs.append(log)
    before = write_log_dir(tmp_path / "before", logs)
    config = replace(CONFIG, max_decompressed_message_bytes=40_000)
    result = compare_copies(before, before, clock=FixedClock(NOW_MS), config_of=lambda _: config)
    (finding,) = result.logs[0].findings
    assert (finding.rule, finding.position) == (Rule.RECORD_SIZE, 0)
    assert result.logs[1].findings == ()
    assert compared(before, before) == []
