"""Records with a time to live: gone at their expiry and one check, wherever they are."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cordwood.cleanup.access.capture import capture
from cordwood.cleanup.engine import survivors
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.rules.record_longs import RemovalReader
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import LOG_APPEND_TIME
from cordwood.format.record_batch import Header, Record, build_batch
from cordwood.model.documents import to_document
from cordwood.queries.cleaning import cleaned_partition
from cordwood.queries.explain.record_fate import RecordFate, key_fates
from cordwood.queries.explain.record_search import RecordSearch
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.surfaces.cli.main import app
from support.clean import digest_tree
from support.explained_log import ExplainedLog
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs, read_records

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TTL = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.5,
    cordwood_record_ttl_header="ttl",
)
FORMS = [b"%d" % HOUR_MS, HOUR_MS.to_bytes(8, "big")]


def clean_all(logs: RunningLogs) -> int:
    """One check of the cleaner; how many logs it cleaned."""
    count = 0
    while logs.cleaner.clean_once():
        count += 1
        assert count < 10, "the cleaner does not come to rest"
    return count


def put(
    logs: RunningLogs,
    key: bytes,
    value: bytes | None = b"v",
    *,
    ttl: bytes | None = None,
    age_ms: int = 0,
) -> int:
    """Appends a record, which is at once on all replicas; its offset."""
    log = logs.log()
    headers = () if ttl is None else (Header("ttl", ttl),)
    record = Record(0, logs.clock.now_ms() - age_ms, key, value, headers)
    offset = log.append_as_leader(build_batch([record], base_offset=0)).first_offset
    log.update_high_watermark(log.log_end_offset)
    return offset


def roll(logs: RunningLogs) -> None:
    logs.log().roll()
    logs.log().update_high_watermark(logs.log().log_end_offset)


def keys(log: PartitionLog) -> list[bytes | None]:
    return [record.key for record in read_records(log)]


@pytest.mark.parametrize("form", FORMS, ids=["decimal", "long"])
@pytest.mark.parametrize("place", ["clean", "dirty", "active"])
def test_a_record_is_gone_at_its_expiry_and_one_check(
    tmp_path: Path, form: bytes, place: str
) -> None:
    logs = RunningLogs(tmp_path, {"t": TTL})
    log = logs.log()
    for key in (b"a", b"b"):
        put(logs, key)
    put(logs, b"short", ttl=form)
    put(logs, b"unreadable", ttl=b"an hour")
    put(logs, b"long", ttl=b"%d" % DAY_MS)
    if place != "active":
        roll(logs)
    if place == "clean":
        assert clean_all(logs) == 1
    elif place == "dirty":
        logs.set_checkpoint(0)
        log.update_config(replace(TTL, min_cleanable_dirty_ratio=1.0))
    before = digest_tree(log.directory)
    logs.clock.advance(HOUR_MS - 1)
    assert clean_all(logs) == 0
    assert digest_tree(log.directory) == before
    records = read_records(log)
    logs.clock.advance(1)
    assert clean_all(logs) == 1
    left = [each for each in records if each.key != b"short"]
    assert read_records(log) == left
    before = digest_tree(log.directory)
    for _ in range(3):
        assert clean_all(logs) == 0
        logs.clock.advance(HOUR_MS)
    assert digest_tree(log.directory) == before
    logs.clock.advance(DAY_MS)
    assert clean_all(logs) == 1
    assert keys(log) == [b"a", b"b", b"unreadable"]
    assert put(logs, b"a") == 5


@pytest.mark.parametrize("older", ["clean", "dirty", "same"])
def test_the_older_value_of_its_key_does_not_come_back(tmp_path: Path, older: str) -> None:
    logs = RunningLogs(tmp_path, {"t": TTL})
    log = logs.log()
    put(logs, b"k", b"old")
    put(logs, b"other")
    if older != "same":
        roll(logs)
    if older == "clean":
        clean_all(logs)
    put(logs, b"k", b"new", ttl=FORMS[0])
    roll(logs)
    logs.clock.advance(HOUR_MS)
    clean_all(logs)
    assert keys(log) == [b"other"]


@pytest.mark.parametrize("strategy", ["timestamp", "header"])
def test_a_lower_version_does_not_come_back(tmp_path: Path, strategy: str) -> None:
    """The highest version is the older record: it stays until what it has beaten is gone."""
    config = replace(
        TTL,
        cordwood_compaction_strategy=strategy,
        cordwood_compaction_strategy_header="version",
    )
    logs = RunningLogs(tmp_path, {"t": config})
    log = logs.log()
    for age_ms, version, ttl in ((0, 9, FORMS[0]), (HOUR_MS // 2, 1, b"%d" % DAY_MS)):
        headers = (Header("ttl", ttl), Header("version", version.to_bytes(8, "big")))
        record = Record(0, logs.clock.now_ms() - age_ms, b"k", b"v", headers)
        log.append_as_leader(build_batch([record], base_offset=0))
        roll(logs)
    logs.clock.advance(HOUR_MS)
    logs.cleaner.clean_once()
    assert [each.offset for each in read_records(log)] == [0], "pinned: it has beaten a newer one"
    logs.cleaner.clean_once()
    assert read_records(log) == []
    assert clean_all(logs) == 0


def test_the_time_of_the_append_counts_with_log_append_time(tmp_path: Path) -> None:
    config = replace(TTL, message_timestamp_type=LOG_APPEND_TIME)
    logs = RunningLogs(tmp_path, {"t": config})
    put(logs, b"k", ttl=FORMS[0], age_ms=50 * DAY_MS)
    logs.clock.advance(HOUR_MS - 1)
    clean_all(logs)
    assert keys(logs.log()) == [b"k"]
    logs.clock.advance(1)
    clean_all(logs)
    assert keys(logs.log()) == []


def test_a_lag_and_the_last_stable_offset_hold_it_back(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(TTL, min_compaction_lag_ms=2 * HOUR_MS)})
    log = logs.log()
    put(logs, b"k", ttl=FORMS[0])
    logs.clock.advance(HOUR_MS)
    assert clean_all(logs) == 0
    assert len(log.segments) == 2, "rolled once"
    for _ in range(2):
        assert clean_all(logs) == 0
    assert len(log.segments) == 2
    logs.clock.advance(HOUR_MS - 1)
    assert clean_all(logs) == 0
    logs.clock.advance(1)
    assert clean_all(logs) == 1
    assert keys(log) == []
    transaction = build_batch(
        [Record(0, logs.clock.now_ms(), b"t", b"v", (Header("ttl", b"1"),))],
        base_offset=0,
        producer_id=3,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    guard = log.maybe_start_verification(3, 0, 0)
    log.append_as_leader(transaction, verification_guard=guard)
    log.update_high_watermark(log.log_end_offset)
    logs.clock.advance(3 * HOUR_MS)
    segments = len(log.segments)
    assert clean_all(logs) == 0
    assert len(log.segments) == segments, "nothing in it is stable"
    assert [each.key for each in read_records(log, isolation=Isolation.HIGH_WATERMARK)] == [b"t"]


def test_what_is_above_the_high_watermark_waits(tmp_path: Path) -> None:
    logs = RunningLogs(tmp_path, {"t": TTL})
    log = logs.log()
    record = Record(0, logs.clock.now_ms(), b"k", b"v", (Header("ttl", b"1"),))
    log.append_as_leader(build_batch([record], base_offset=0))
    log.update_high_watermark(0)
    logs.clock.advance(HOUR_MS)
    assert clean_all(logs) == 0
    assert len(log.segments) == 1
    log.update_high_watermark(1)
    assert clean_all(logs) == 1
    assert keys(log) == []


# ---- explained


def fate_of(log: ExplainedLog, key: bytes) -> RecordFate:
    captured = capture(log.log)
    search = RecordSearch(captured.sources, captured.aborted_above_start)
    return key_fates(log.explain(), list(search.with_key(key)))[-1]


@pytest.mark.parametrize("place", ["clean", "dirty", "active", "lagging"])
def test_the_moment_that_is_explained_is_the_real_one(tmp_path: Path, place: str) -> None:
    lag_ms = 3 * HOUR_MS if place == "lagging" else 0
    config = replace(TTL, min_compaction_lag_ms=lag_ms)
    log = ExplainedLog(tmp_path, config, CleanerSettings())
    put(log.logs, b"a", ttl=FORMS[0])
    put(log.logs, b"b")
    if place in ("clean", "dirty"):
        roll(log.logs)
    if place == "clean":
        log.check()
    fate = fate_of(log, b"a")
    assert fate.expires_ms == log.now_ms + HOUR_MS
    delays = log.settings.backoff_ms + 60_000
    moment = log.now_ms + (lag_ms or HOUR_MS)
    assert fate.gone_by_ms == moment + delays
    explanation = log.explain()
    assert fate.answer(explanation.facts.view.topic_partition).expires_ms == fate.expires_ms
    assert explanation.compaction is not None
    if place == "clean":
        assert explanation.compaction.due_ms == moment
    log.logs.clock.advance(moment - 1 - log.now_ms)
    log.check()
    assert keys(log.log) == [b"a", b"b"]
    log.logs.clock.advance(1)
    log.check()
    assert keys(log.log) == [b"b"]
    assert fate_of(log, b"b").expires_ms is None


# ---- a stopped log


def stopped(root: Path) -> Path:
    """Expired records in the clean section, the dirty one and the active segment."""
    log = LogBuilder("t-0")
    ttl = (Header("ttl", FORMS[1]),)
    for name in ("clean", "dirty", "active"):
        if log.next_offset:
            log.roll()
        if name == "dirty":
            log.cleaner_checkpoint = log.active.base_offset
        at = log.next_offset
        log.batch(
            [
                Record(at, NOW_MS - HOUR_MS, name.encode() + b"-expired", b"v", ttl),
                Record(at + 1, NOW_MS - HOUR_MS + 1, name.encode() + b"-alive", b"v", ttl),
            ]
        )
    return write_log_dir(root / "logs-0", [log])


def clean(log_dir: Path, now_ms: int, **options: Any) -> dict[str, Any]:
    (partition,) = clean_in_process(log_dir, {"t": TTL}, now_ms=now_ms, **options).partitions
    found: dict[str, Any] = to_document(cleaned_partition(partition))
    return found


@pytest.mark.parametrize("verify", [False, True])
def test_a_stopped_log_loses_its_expired_records_in_one_run(tmp_path: Path, verify: bool) -> None:
    log_dir = stopped(tmp_path)
    before = digest_tree(log_dir)
    assert clean(log_dir, NOW_MS - 1, dry_run=True)["rolled_at"] is None
    dry = clean(log_dir, NOW_MS, dry_run=True)
    assert (dry["status"], dry["rolled_at"]) == ("planned", 6)
    assert digest_tree(log_dir) == before
    report = clean(log_dir, NOW_MS, verify=verify)
    assert (report["status"], report["rolled_at"]) == ("cleaned", 6)
    assert report["discarded"]["expired"] == 3
    assert sum(report["discarded"].values()) == 3
    after = digest_tree(log_dir)
    assert clean(log_dir, NOW_MS)["status"] == "unchanged"
    assert digest_tree(log_dir) == after
    (log_dir / "meta.properties").unlink()
    logs = RunningLogs(tmp_path, {"t": TTL})
    assert keys(logs.log()) == [b"clean-alive", b"dirty-alive", b"active-alive"]
    assert put(logs, b"k") == 6


def test_two_copies_are_compared_with_the_times_to_live(tmp_path: Path) -> None:
    before = stopped(tmp_path / "before")
    after = Path(shutil.copytree(before, tmp_path / "after"))
    clean(after, NOW_MS)
    command = ["verify", "--cleaning", str(before), str(after), "--set"]
    app_run = CliRunner().invoke
    refused = app_run(app, [*command, "t:cleanup.policy=compact"])
    assert (refused.exit_code, "newest value" in refused.output) == (1, True), refused.output
    found = app_run(app, [*command, "t:cordwood.record.ttl.header=ttl"])
    assert found.exit_code == 0, found.output


def test_a_record_that_is_removed_before_its_expiry_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = stopped(tmp_path)
    before = {name: d for name, d in digest_tree(log_dir / "t-0").items() if name.endswith(".log")}
    early = {"of": lambda rules: RemovalReader(rules.removals, rules.now_ms + 1)}
    monkeypatch.setattr(survivors, "RemovalReader", type("Early", (), early))
    report = clean(log_dir, NOW_MS, verify=True)
    assert report["status"] == "failed"
    assert "newest record of its key is left out" in report["reason"]
    after = digest_tree(log_dir / "t-0")
    assert {name: after[name] for name in before} == before
