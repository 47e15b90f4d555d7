"""Bugs that cleaners have had, planted in a compaction one at a time: `--verify` refuses each.

The plant rewrites what the rewriter has staged, with right CRCs, indexes and counts: only the
comparison with the sources can notice it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cordwood.cleanup.engine import publisher
from cordwood.cleanup.engine.output import Output
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.report import Status
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec
from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.cleanup.verification.findings import Rule
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.format.crc32c import crc32c
from cordwood.format.file_names import TXN_INDEX_SUFFIX, segment_file_name
from cordwood.format.offset_index import build_offset_index
from cordwood.format.record_batch import Header, Record, RecordBatch, build_batch, iter_batches
from cordwood.format.time_index import build_time_index
from cordwood.testing.reference_cleaner import index_entries
from support.in_process_engine import CompiledEngine, clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs
from support.stored_log import files_of

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
INTERVAL = CONFIG.index_interval_bytes
LATER = NOW_MS + CONFIG.delete_retention_ms
#: Offsets of the log below.
OLD, BETWEEN, NEWEST, PAIR, ABORTED, COMMIT, ABORT, TOMBSTONE, STAMPED, LAST, TAIL = (
    *(0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12),
)

Batches = list[bytes]
Plant = Callable[[Batches, Batches], Batches]
PLANTS: dict[str, tuple[Rule, Plant]] = {}


def log_of(name: str) -> LogBuilder:
    """One segment to be cleaned with an example of everything, and an active one."""
    log = LogBuilder(name)
    assert log.put(b"a", b"old") == OLD
    log.put(b"b", b"between")
    assert log.put(b"a", b"newest") == NEWEST
    # An earlier cleaning has discarded its second record.
    assert log.batch([(b"c", b"1")], last_offset=PAIR + 1) == PAIR
    log.put(b"t", b"in a transaction", producer=(7, 0), transactional=True)
    assert log.put(b"b", b"aborted", producer=(8, 0), transactional=True) == ABORTED
    assert log.marker((7, 0), commit=True) == COMMIT
    assert log.marker((8, 0), commit=False) == ABORT
    assert log.put(b"gone", None) == TOMBSTONE
    log.batch([(b"far", None)], delete_horizon_ms=NOW_MS + 60_000)
    assert log.put(b"p", b"of a producer", producer=(1, 0)) == LAST
    assert log.put(b"a tail", b"behind all") == TAIL
    log.roll()
    log.put(b"active", b"x")
    return log


def plants(rule: Rule) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        PLANTS[plant.__name__] = rule, plant
        return plant

    return register


def base_of(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def at(batches: Batches, offset: int) -> int:
    """The place of the batch at an offset."""
    return [base_of(each) for each in batches].index(offset)


def without(batches: Batches, *offsets: int) -> Batches:
    left = [each for each in batches if base_of(each) not in offsets]
    assert len(left) == len(batches) - len(offsets), "the cleaning has left it out itself"
    return left


def edited(batches: Batches, offset: int, position: int, value: bytes) -> Batches:
    """One batch with other bytes, and the CRC that belongs to them."""
    number = at(batches, offset)
    batch = batches[number][:position] + value + batches[number][position + len(value) :]
    batch = batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]
    return [*batches[:number], batch, *batches[number + 1 :]]


@plants(Rule.MARKER_LOST)
def control_batches_are_deduplicated_by_their_key(batches: Batches, _: Batches) -> Batches:
    newest: dict[bytes | None, int] = {}
    for number, data in enumerate(batches):
        for record in records_of(data):
            newest[record.key] = number
    controls = {n for n, data in enumerate(batches) if data[22] & 0x20}
    # The keys of markers differ by type alone: those of all producers are one key.
    kept = {max(controls)}
    return [data for n, data in enumerate(batches) if n not in controls or n in kept]


@plants(Rule.NEWEST_LOST)
def the_log_is_trimmed_too_far(batches: Batches, _: Batches) -> Batches:
    return batches[2:]


@plants(Rule.MARKER_LOST)
def a_marker_is_lost(batches: Batches, _: Batches) -> Batches:
    return without(batches, ABORT)


@plants(Rule.TOMBSTONE_LOST)
def a_tombstone_is_removed_before_it_has_a_horizon(batches: Batches, _: Batches) -> Batches:
    return without(batches, TOMBSTONE)


@plants(Rule.TOMBSTONE_LOST)
def a_tombstone_is_removed_before_its_horizon(batches: Batches, _: Batches) -> Batches:
    return without(batches, STAMPED)


@plants(Rule.BATCH_COUNT)
def an_offset_delta_wraps_in_a_rebuilt_batch(batches: Batches, _: Batches) -> Batches:
    return edited(batches, PAIR, 23, struct.pack(">i", -(1 << 31) + 1))


@plants(Rule.OFFSET_RANGE)
def a_base_offset_overflows(batches: Batches, _: Batches) -> Batches:
    return edited(batches, PAIR, 0, struct.pack(">q", PAIR + (1 << 32)))


@plants(Rule.TAIL_LOST)
def the_tail_is_dropped(batches: Batches, _: Batches) -> Batches:
    return without(batches, TAIL)


@plants(Rule.CHANGED)
def a_value_is_changed(batches: Batches, _: Batches) -> Batches:
    number = at(batches, NEWEST)
    return edited(batches, NEWEST, batches[number].index(b"newest"), b"oldest")


@plants(Rule.CHANGED)
def a_timestamp_is_changed(batches: Batches, _: Batches) -> Batches:
    stamps = batches[at(batches, NEWEST)][27:35]
    other = struct.pack(">q", int.from_bytes(stamps, "big") + 1)
    return edited(edited(batches, NEWEST, 27, other), NEWEST, 35, other)


@plants(Rule.INVENTED)
def a_batch_is_invented(batches: Batches, _: Batches) -> Batches:
    made = build_batch(
        [Record(BETWEEN - 1, NOW_MS, b"new", b"made up")],
        base_offset=BETWEEN - 1,
        partition_leader_epoch=0,
        last_offset=BETWEEN,
    )
    return [made, *without(batches, BETWEEN)]


@plants(Rule.INVENTED)
def a_record_is_invented(batches: Batches, sources: Batches) -> Batches:
    (one,) = records_of(sources[at(sources, PAIR)])
    more = build_batch(
        [one, replace(one, offset=PAIR + 1)], base_offset=PAIR, partition_leader_epoch=0
    )
    return [more if base_of(each) == PAIR else each for each in batches]


@plants(Rule.NEWEST_LOST)
def an_older_value_is_kept_in_place_of_the_newest(batches: Batches, sources: Batches) -> Batches:
    return [sources[at(sources, OLD)], *without(batches, NEWEST)]


@plants(Rule.ABORTED_KEPT)
def a_record_that_was_aborted_comes_back(batches: Batches, sources: Batches) -> Batches:
    back = sources[at(sources, ABORTED)]
    others = [each for each in batches if base_of(each) != ABORTED]
    return sorted([*others, back], key=base_of)


@plants(Rule.HORIZON)
def a_tombstone_gets_a_horizon_that_has_passed(batches: Batches, _: Batches) -> Batches:
    (record,) = records_of(batches[at(batches, TOMBSTONE)])
    hasty = build_batch(
        [record], base_offset=TOMBSTONE, delete_horizon_ms=5, partition_leader_epoch=0
    )
    return [hasty if base_of(each) == TOMBSTONE else each for each in batches]


@plants(Rule.BATCH_CHANGED)
def a_transactional_batch_is_none_any_more(batches: Batches, _: Batches) -> Batches:
    return edited(batches, COMMIT - 2, 22, b"\0")


@plants(Rule.BATCH_CHANGED)
def a_sequence_is_changed(batches: Batches, _: Batches) -> Batches:
    return edited(batches, LAST, 53, struct.pack(">i", 9))


@plants(Rule.OFFSET_ORDER)
def two_batches_change_places(batches: Batches, _: Batches) -> Batches:
    return [batches[1], batches[0], *batches[2:]]


def records_of(data: bytes) -> list[Record]:
    ((_, batch),) = iter_batches(data)
    assert isinstance(batch, RecordBatch)
    return list(batch.records())


@dataclass(slots=True)
class Planted:
    """A rewritten group whose log is replaced, with all that has to agree with it."""

    spec: RewriteSpec
    output: Output
    plant: Plant

    def finish(self) -> Manifest:
        manifest = self.output.finish()
        paths = self.spec.staged.paths()
        before = _split(paths[".log"].read_bytes())
        sources = [
            each
            for segment in self.spec.segments
            for each in _split(Path(segment.source.path).read_bytes())
        ]
        after = self.plant(before, sources)
        assert after != before, "nothing was planted"
        paths[".log"].write_bytes(b"".join(after))
        facts = [_facts(each) for each in after]
        base = self.spec.staged.base_offset
        offsets, times = index_entries(facts, interval_bytes=INTERVAL)
        paths[".index"].write_bytes(build_offset_index(offsets, base))
        if all(0 <= offset - base < 1 << 31 for _, offset in times):
            paths[".timeindex"].write_bytes(build_time_index(times, base))
        (segment,) = manifest.segments
        size = sum(map(len, after))
        manifest.segments = (replace(segment, log_bytes=size),)
        manifest.batches_after = len(after)
        manifest.records_after = sum(int.from_bytes(each[57:61], "big") for each in after)
        return manifest


def _facts(batch: bytes) -> tuple[int, int, int]:
    delta, timestamp = struct.unpack(">i8xq", batch[23:43])
    return len(batch), base_of(batch) + max(0, delta), timestamp


def _split(data: bytes) -> Batches:
    return [data[start : start + batch.size_bytes] for start, batch in iter_batches(data)]


def plant_in(monkeypatch: pytest.MonkeyPatch, name: str, plant: Plant) -> None:
    """Has every group of one partition rewritten wrongly."""

    class Patched(GroupRewriter):
        def write(self, spec: RewriteSpec) -> Output:
            output = super().write(spec)
            if Path(spec.staged.directory).name != name:
                return output
            return Planted(spec, output, plant)  # type: ignore[return-value]

    monkeypatch.setattr(publisher, "GroupRewriter", Patched)


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_refused_and_the_old_segments_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    rule, plant = PLANTS[name]
    root = write_log_dir(tmp_path / "logs", [log_of("bad-0"), log_of("good-0")])
    before = files_of(root / "bad-0")
    plant_in(monkeypatch, "bad-0", plant)
    configs = {"bad": CONFIG, "good": CONFIG}
    report = clean_in_process(root, configs, now_ms=NOW_MS, force=True, verify=True)
    bad, good = report.partitions
    assert bad.status is Status.FAILED
    assert f"rule {rule.code}" in bad.reason, bad.reason
    assert "The old segments were kept" in bad.reason
    assert files_of(root / "bad-0") == before
    assert good.status is Status.CLEANED
    assert report.failed == [bad]


@pytest.mark.parametrize("name", ["a_value_is_changed", "the_tail_is_dropped"])
def test_without_verify_nobody_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of("bad-0")])
    plant_in(monkeypatch, "bad-0", PLANTS[name][1])
    report = clean_in_process(root, {"bad": CONFIG}, now_ms=NOW_MS, force=True)
    assert not report.failed


def test_the_last_batch_of_a_producer_must_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogBuilder("bad-0")
    log.put(b"a", b"1", producer=(1, 0), timestamp=NOW_MS - 1_000)
    log.put(b"a", b"2")
    log.roll()
    log.put(b"active", b"x")
    root = write_log_dir(tmp_path / "logs", [log])
    plant_in(monkeypatch, "bad-0", lambda batches, _: without(batches, 0))
    report = clean_in_process(root, {"bad": CONFIG}, now_ms=NOW_MS, force=True, verify=True)
    (bad,) = report.failed
    assert f"rule {Rule.PRODUCER_LOST.code}" in bad.reason


@pytest.mark.parametrize("missing", [True, False])
def test_an_entry_of_the_transaction_index_must_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    """Only while its transaction has records: the next cleaning may leave it out."""

    class Forgetful(GroupRewriter):
        def write(self, spec: RewriteSpec) -> Output:
            output = super().write(spec)
            assert [each.last_offset for each in output.kept_aborted] == [ABORT]
            if missing:
                output.kept_aborted = ()
            return output

    root = write_log_dir(tmp_path / "logs", [log_of("bad-0")])
    before = files_of(root / "bad-0")
    with monkeypatch.context() as patch:
        patch.setattr(publisher, "GroupRewriter", Forgetful)
        report = clean_in_process(root, {"bad": CONFIG}, now_ms=NOW_MS, force=True, verify=True)
    (bad,) = report.partitions
    if missing:
        assert f"rule {Rule.TXN_INDEX.code}: no entry for the transaction" in bad.reason
        assert files_of(root / "bad-0") == before
        return
    assert bad.status is Status.CLEANED
    index = root / "bad-0" / segment_file_name(0, TXN_INDEX_SUFFIX)
    assert index.exists()
    (root / "cleaner-offset-checkpoint").unlink()  # all of it is dirty again
    report = clean_in_process(root, {"bad": CONFIG}, now_ms=NOW_MS + 1, force=True, verify=True)
    assert report.partitions[0].status is Status.CLEANED
    assert not index.exists()


#: Offsets of the log with versions, and what cleaners may do to it.
HIGH, LATE, FIRST, EQUAL, WITH, WITHOUT, GONE, RISEN = range(8)
VERSION_PLANTS: dict[str, tuple[Rule, int, int | None]] = {
    "the newest is kept and not the highest version": (Rule.NEWEST_LOST, HIGH, LATE),
    "of equal versions the older is kept": (Rule.NEWEST_LOST, EQUAL, FIRST),
    "a record without a version beats one with": (Rule.NEWEST_LOST, WITH, WITHOUT),
    "neither is kept": (Rule.NEWEST_LOST, HIGH, None),
    "what a tombstone has beaten is kept": (Rule.TOMBSTONE_LOST, GONE, RISEN),
    "a tombstone goes that has beaten a newer record": (Rule.TOMBSTONE_LOST, GONE, None),
}


def log_of_versions() -> LogBuilder:
    """Changes of which some are delivered late; the tombstone is past its horizon."""
    log = LogBuilder("bad-0")
    for key, value, version in (
        (b"late", b"high", 9),
        (b"late", b"low", 3),
        (b"same", b"first", 5),
        (b"same", b"second", 5),
        (b"some", b"with", 1),
        (b"some", b"without", None),
        (b"gone", None, 8),
        (b"gone", b"risen", 2),
    ):
        headers = () if version is None else (Header("v", version.to_bytes(8, "big")),)
        log.batch(
            [Record(log.next_offset, NOW_MS - 60_000, key, value, headers)],
            delete_horizon_ms=NOW_MS - 1 if value is None else None,
        )
    log.put(b"a tail", b"behind all")
    log.roll()
    log.put(b"active", b"x")
    return log


@pytest.mark.parametrize("name", [None, *sorted(VERSION_PLANTS)])
def test_a_cleaning_that_keeps_another_version_than_the_highest_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of_versions()])
    before = files_of(root / "bad-0")
    config = replace(
        CONFIG,
        cordwood_compaction_strategy="header",
        cordwood_compaction_strategy_header="v",
    )
    if name is not None:
        rule, loses, gains = VERSION_PLANTS[name]

        def plant(batches: Batches, sources: Batches) -> Batches:
            more = [] if gains is None else [sources[at(sources, gains)]]
            return sorted([*without(batches, loses), *more], key=base_of)

        plant_in(monkeypatch, "bad-0", plant)
    report = clean_in_process(root, {"bad": config}, now_ms=NOW_MS, force=True, verify=True)
    (bad,) = report.partitions
    if name is None:
        assert bad.status is Status.CLEANED, bad.reason
        left = [
            base_of(each)
            for each in _split((root / "bad-0" / segment_file_name(0, ".log")).read_bytes())
        ]
        assert left == [HIGH, EQUAL, WITH, GONE, RISEN + 1]
        return
    assert bad.status is Status.FAILED
    assert f"rule {rule.code}" in bad.reason, bad.reason
    assert files_of(root / "bad-0") == before


def test_a_brokers_cleaner_refuses_it_too_if_it_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = RunningLogs(tmp_path, {"bad": replace(CONFIG, segment_bytes=1_000)})
    log = logs.log("bad-0")
    for number in range(60):
        logs.put(log, (b"%d" % (number if number % 2 else 0), b"x" * 50))
    plant_in(monkeypatch, "bad-0", lambda batches, _: batches[1:])
    before = files_of(log.directory)
    settings = CleanerSettings.of(BrokerConfig({"cordwood.cleaner.verify": True}))
    assert settings.verify
    cleaner = OnlineCleaner(logs.cleaning, CompiledEngine(), verify=lambda: settings.verify)
    assert not cleaner.clean_once()
    reason = logs.cleaning.uncleanable_partitions(log.log_dir)[log.topic_partition]
    assert f"rule {Rule.NEWEST_LOST.code}" in reason
    assert files_of(log.directory) == before


@pytest.mark.parametrize("sound", [True, False])
def test_a_cleaning_without_a_bug_is_accepted_twice(tmp_path: Path, sound: bool) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of("good-0")])
    for now_ms in (NOW_MS, LATER, LATER + CONFIG.delete_retention_ms):
        report = clean_in_process(root, {"good": CONFIG}, now_ms=now_ms, force=True, verify=sound)
        assert not report.failed
