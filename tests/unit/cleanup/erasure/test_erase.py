"""Erasure of records from whole directories: nothing is left of them, and all else is as it was."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from cordwood.cleanup.engine.search.offsets import count_in
from cordwood.cleanup.erasure.criteria import Target
from cordwood.cleanup.erasure.ledger import LEDGER_NAME, read_ledger
from cordwood.cleanup.erasure.pending import PENDING_NAME
from cordwood.cleanup.verification.directories import verify
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.producer_snapshot import parse_producer_snapshot
from cordwood.model.audit import AUDIT_LOGGER, EVENT_ATTRIBUTE, RecordsErased
from cordwood.model.clock import FixedClock
from cordwood.model.errors import ConfigError, DirectoryInUseError
from cordwood.model.hold import Hold
from cordwood.model.rng import SystemRng
from cordwood.storage.filesystem import OS, DirectoryLock
from cordwood.storage.holds import HoldRegistry
from cordwood.storage.trash_presence import TrashPresence
from support.clean import digest_tree
from support.erasing import (
    KEY,
    VALUE,
    batches_of,
    erasable_log,
    erase_here,
    kept_records,
    producers_of,
    sweep,
)
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

POLICIES = {
    "delete": LogConfig(index_interval_bytes=100),
    "compact": LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100),
    "both": LogConfig(cleanup_policy=frozenset({"compact", "delete"}), index_interval_bytes=100),
}


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_of_the_key_is_left_and_every_other_record_is_as_it_was(
    tmp_path: Path, policy: str, *, legacy: bool
) -> None:
    logs = [erasable_log("orders-0", legacy=legacy), erasable_log("others-0")]
    log_dir = write_log_dir(tmp_path / "data", logs)
    partition = log_dir / "orders-0"
    before = kept_records(partition)
    other = digest_tree(log_dir / "others-0")
    found = [name for name in sweep(log_dir, KEY, VALUE) if name.startswith("orders")]
    assert len(found) == len(list(partition.glob("*.log")))

    result = erase_here(log_dir, "orders", configs={"orders": POLICIES[policy]})

    assert result.failed == {}
    assert not [name for name in sweep(log_dir, KEY, VALUE) if name.startswith("orders")]
    assert kept_records(partition) == before
    assert digest_tree(log_dir / "others-0") == other
    (entry,) = result.report.partitions
    assert entry.erased == count_in(entry.offsets) > 40
    assert entry.records_after == len(before)


def test_nothing_is_erased_of_what_has_a_legal_hold(tmp_path: Path) -> None:
    logs = [erasable_log("orders-0"), erasable_log("orders-1")]
    log_dir = write_log_dir(tmp_path / "data", logs)
    hold = Hold(id="case-7", topic="orders", partition=0, reason="", by="", created_ms=0)
    registry = HoldRegistry(OS)
    registry.read([log_dir])
    registry.add(hold)
    before = digest_tree(log_dir / "orders-0")
    result = erase_here(log_dir, "orders")
    assert list(result.failed) == [str(log_dir / "orders-0")]
    assert "held: case-7" in result.failed[str(log_dir / "orders-0")]
    assert digest_tree(log_dir / "orders-0") == before
    assert not [name for name in sweep(log_dir, KEY, VALUE) if name.startswith("orders-1")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_codec_and_what_it_says_of_its_producer(
    tmp_path: Path, codec: Codec
) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0", codecs=[codec])])
    before = set(producers_of(log_dir / "t-0"))
    erase_here(log_dir, "t")
    after = producers_of(log_dir / "t-0")
    assert set(after) <= before
    assert {batch.codec for path in (log_dir / "t-0").glob("*.log") for batch in batches_of(path)
            if batch.codec is not Codec.NONE} <= {codec} - {Codec.NONE}  # fmt: skip
    assert any(attributes[5] & 0x10 for attributes in after), "transactional batches are left"


def test_a_batch_without_a_record_leaves_its_header_so_that_the_log_has_no_gap(
    tmp_path: Path,
) -> None:
    log = LogBuilder("t-0")
    log.batch([(KEY, VALUE)], producer=(1, 0))
    log.batch([(KEY, VALUE)], producer=(2, 0))
    log.batch([(b"a", b"b")], producer=(1, 0))
    log.batch([(KEY, VALUE)])
    log.roll()
    log.batch([(KEY, VALUE)])
    log.batch([(b"c", b"d")])
    log_dir = write_log_dir(tmp_path / "data", [log])
    erase_here(log_dir, "t")
    first, second, active = sorted((log_dir / "t-0").glob("*.log"))
    assert [batch.base_offset for batch in batches_of(first)] == [0, 1, 2, 3]
    assert [len(batch.records()) for batch in batches_of(first)] == [0, 0, 1, 0]
    assert [batch.base_offset for batch in batches_of(second)] == [4, 5]
    assert (active.name, active.stat().st_size) == ("00000000000000000006.log", 0)
    result = verify([log_dir], clock=FixedClock(NOW_MS))
    assert [str(each) for log in result.logs for each in log.findings] == []


def test_open_transactions_stay_open_and_ended_ones_stay_ended(tmp_path: Path) -> None:
    log = erasable_log("t-0")
    log_dir = write_log_dir(tmp_path / "data", [log])
    before = {p.name: p.read_bytes() for p in (log_dir / "t-0").glob("*.txnindex")}
    view = log.capture(log_dir / "t-0", LogConfig()).view
    erase_here(log_dir, "t")
    after = {p.name: p.read_bytes() for p in (log_dir / "t-0").glob("*.txnindex")}
    assert after == before
    assert len(before) > 2
    again = log.capture(log_dir / "t-0", LogConfig())
    assert again.view.last_stable_offset == view.last_stable_offset < view.log_end_offset
    assert again.view.log_end_offset == view.log_end_offset
    batches = [batch for path in (log_dir / "t-0").glob("*.log") for batch in batches_of(path)]
    assert view.last_stable_offset in {batch.base_offset for batch in batches}
    (snapshot,) = (log_dir / "t-0").glob(f"{view.log_end_offset:020d}.snapshot")
    assert 92 in {entry.producer_id for entry in parse_producer_snapshot(snapshot.read_bytes())}


def test_a_segment_without_such_a_record_is_not_touched(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    for number in range(4):
        log.batch([(KEY if number == 1 else b"k", VALUE)])
        log.roll()
    log.batch([(b"k", b"v")])
    log_dir = write_log_dir(tmp_path / "data", [log])
    before = {p.name: (p.stat().st_ino, p.read_bytes()) for p in (log_dir / "t-0").iterdir()}
    erase_here(log_dir, "t")
    after = {p.name: (p.stat().st_ino, p.read_bytes()) for p in (log_dir / "t-0").iterdir()}
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {f"00000000000000000001.{s}" for s in ("log", "index", "timeindex")}
    assert set(after) == set(before), "without such a record the active segment is not rolled"


def test_a_second_erasure_finds_nothing_and_changes_no_byte(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    erase_here(log_dir, "t")
    before = digest_tree(log_dir / "t-0")
    assert erase_here(log_dir, "t").report.partitions[0].erased == 0
    assert digest_tree(log_dir / "t-0") == before


def test_a_dry_run_says_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    before = digest_tree(log_dir)
    dry = erase_here(log_dir, "t", dry_run=True)
    assert digest_tree(log_dir) == before
    assert dry.report.status == "planned"
    real = erase_here(log_dir, "t")
    assert dry.report.partitions[0].offsets == real.report.partitions[0].offsets


def test_only_the_partition_that_was_named_loses_records(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("t-1")])
    erase_here(log_dir, "t:1")
    assert {name.partition("/")[0] for name in sweep(log_dir, KEY, VALUE)} == {"t-0"}


@pytest.mark.parametrize("key", [b"", b"k", b"x" * 23, b"x" * 24, b"y" * 5000, b"\xff\x00"])
def test_keys_of_all_lengths_are_matched_exactly(tmp_path: Path, key: bytes) -> None:
    log = LogBuilder("t-0")
    near = [key + b"0", key[:-1], b"0" + key]
    log.batch([(None, b"no key"), *((each, b"near") for each in near if each != key), (key, b"v")])
    log_dir = write_log_dir(tmp_path / "data", [log])
    result = erase_here(log_dir, "t", keys=[key, b"another"])
    end = log.next_offset - 1
    assert result.report.partitions[0].offsets == ((end, end),)


def test_many_keys_are_found_among_records_without_a_key(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    for number in range(0, 30_000, 300):
        log.batch([(b"%d" % n if n % 2 else None, b"v") for n in range(number, number + 300)])
    log_dir = write_log_dir(tmp_path / "data", [log])
    keys = [b"%d" % n for n in range(0, 30_000, 3)]
    result = erase_here(log_dir, "t", keys=keys)
    assert result.report.partitions[0].erased == 5_000


# ---- what is left beside live segments


def test_what_a_broker_left_behind_is_erased_or_removed(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("u-0")])
    partition = log_dir / "t-0"
    source = sorted(partition.glob("*.log"))[1]
    data = source.read_bytes()
    for name in (
        f"{source.name}.deleted",
        "00000000000000000000.log.cordwood.staged",
        f"{source.name}.backup",
    ):
        (partition / name).write_bytes(data)
    for suffix in ("delete", "stray", "future"):
        marked = log_dir / f"t-{len(suffix)}.0123456789abcdef0123456789abcdef-{suffix}"
        marked.mkdir()
        (marked / source.name).write_bytes(data)
        (marked / source.name).with_suffix(".index").write_bytes(b"\0" * 8)
    trash = tmp_path / "trash"
    for topic in ("t-0", "u-0"):
        (trash / topic).mkdir(parents=True)
        (trash / topic / source.name).write_bytes(data)
        (trash / topic / f"{source.name}.1").write_bytes(data)
    copy = shutil.copytree(partition, tmp_path / "copies" / "monday" / "t-0")

    result = erase_here(log_dir, "t", trash=trash, also=(copy.parent.parent,))

    assert result.failed == {}
    assert sweep(log_dir, KEY, VALUE) == [
        str(path.relative_to(log_dir)) for path in sorted((log_dir / "u-0").glob("*.log"))
    ]
    assert sweep(tmp_path / "copies", KEY, VALUE) == []
    assert {name.partition("/")[0] for name in sweep(trash, KEY, VALUE)} == {"u-0"}
    kept = [batch.records() for batch in batches_of(trash / "t-0" / source.name)]
    assert sum(map(len, kept)) == sum(
        record.key != KEY for batch in batches_of(trash / "u-0" / source.name)
        for record in batch.records()
    )  # fmt: skip
    assert len(list(log_dir.glob("t-*-delete"))) == 0
    assert len(list(log_dir.glob("t-*-stray"))) == 1
    assert any("delete" in path for path in result.report.removed)


@pytest.mark.parametrize("named", ["relative", "link", "above", "below", "the log directory"])
def test_what_has_several_names_is_erased_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    trash = tmp_path / "spare" / "trash"
    shutil.copytree(log_dir, trash / "day")
    TrashPresence(trash, [log_dir], fs=OS).note_made(SystemRng())
    (tmp_path / "link").symlink_to(trash)
    monkeypatch.chdir(tmp_path)
    also = {"above": trash.parent, "below": trash / "day", "the log directory": tmp_path}
    result = erase_here(
        log_dir,
        "t",
        trash={"relative": Path("spare/trash"), "link": tmp_path / "link"}.get(named),
        also=(also[named],) if named in also else (),
    )
    assert result.failed == {}
    assert len(result.report.beside) == len(list((trash / "day" / "t-0").glob("*.log")))
    assert sweep(tmp_path, KEY, VALUE) == []


def test_a_broken_append_is_cut_off(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    active = sorted((log_dir / "t-0").glob("*.log"))[-1]
    batch = batches_of(active)[0]
    with active.open("ab") as file:
        file.write(bytes(batch.raw)[:-3])
    result = erase_here(log_dir, "t")
    assert result.failed == {}
    assert sweep(log_dir, KEY, VALUE) == []
    assert any("behind its last whole batch" in warning for warning in result.warnings)


def test_producer_snapshots_and_indexes_hold_no_key(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0", legacy=True)])
    assert all(name.endswith(".log") for name in sweep(log_dir, KEY, VALUE))


# ---- what is refused


def test_a_topic_that_is_not_there_is_usage(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    with pytest.raises(ConfigError, match="--topic t:7: no partition"):
        erase_here(log_dir, "t:7")


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    lock = DirectoryLock(log_dir)
    try:
        with pytest.raises(DirectoryInUseError):
            erase_here(log_dir, "t")
    finally:
        lock.release()


def test_local_records_of_a_tiered_topic_are_not_erased_alone(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    result = erase_here(log_dir, "t", configs={"t": LogConfig(remote_storage_enable=True)})
    assert "remote storage" in next(iter(result.failed.values()))


# ---- ledgers


def test_a_copy_that_is_put_back_loses_the_key_again_by_the_ledger(tmp_path: Path) -> None:
    logs = [erasable_log("t-0"), erasable_log("u-0")]
    log_dir = write_log_dir(tmp_path / "data", logs)
    archive = shutil.copytree(log_dir, tmp_path / "archive")
    erase_here(log_dir, "t")
    ledger = log_dir / LEDGER_NAME
    assert KEY not in ledger.read_bytes()
    assert KEY.hex().encode() not in ledger.read_bytes()
    before = kept_records(archive / "t-0")

    suppressions = (read_ledger(ledger),)
    result = erase_here(archive, keys=(), targets=(Target(topic="t"),), suppressions=suppressions)

    assert result.failed == {}
    assert {name.partition("/")[0] for name in sweep(archive, KEY, VALUE)} == {"u-0"}
    assert kept_records(archive / "t-0") == before
    assert not (archive / LEDGER_NAME).exists()


def test_what_came_after_an_erasure_is_not_erased_by_its_ledger(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    log.batch([(KEY, VALUE)])
    log_dir = write_log_dir(tmp_path / "data", [log])
    erase_here(log_dir, "t")
    suppressions = (read_ledger(log_dir / LEDGER_NAME),)
    log.batch([(KEY, b"a customer again")])
    later = write_log_dir(tmp_path / "later", [log])
    result = erase_here(later, keys=(), targets=(Target(topic="t"),), suppressions=suppressions)
    assert result.report.partitions[0].offsets == ((0, 0),)


def test_a_ledger_has_a_line_for_each_erasure_and_one_salt(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    erase_here(log_dir, "t", id="erasure-1")
    erase_here(log_dir, "t", id="erasure-2", keys=[b"other-1"], ledger_salt=b"\7" * 32)
    found = read_ledger(log_dir / LEDGER_NAME)
    assert [entry.id for entry in found.entries] == ["erasure-1", "erasure-2"]
    assert found.salt == bytes(range(32, 64))
    assert (log_dir / LEDGER_NAME).stat().st_mode & 0o777 == 0o600


def test_a_cleaning_and_a_second_erasure_work_on_what_was_erased(tmp_path: Path) -> None:
    configs = {"t": POLICIES["compact"]}
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    erase_here(log_dir, "t", configs=configs)
    report = clean_in_process(log_dir, configs, now_ms=NOW_MS, force=True)
    assert report.failed == []
    assert report.partitions[0].status == "cleaned"
    assert erase_here(log_dir, "t", keys=[b"last"], configs=configs).failed == {}
    assert sweep(log_dir, KEY, VALUE, b"of all") == []


def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    (log_dir / PENDING_NAME).write_text(json.dumps({"id": 1}))
    with pytest.raises(Exception, match=r"cordwood-erasure\.pending: not the plan of an erasure"):
        erase_here(log_dir, "t")


def test_what_is_erased_is_in_the_audit_log_and_nothing_of_a_dry_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("orders-0")])
    known = {"orders": POLICIES["delete"]}
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        erase_here(log_dir, "orders", configs=known, dry_run=True)
        assert caplog.records == []
        result = erase_here(log_dir, "orders", configs=known, operator="ann", reason="case 7")
    (event,) = (getattr(each, EVENT_ATTRIBUTE) for each in caplog.records)
    (entry,) = result.report.partitions
    assert isinstance(event, RecordsErased)
    assert (str(event.partition), event.directory) == ("orders-0", str(log_dir / "orders-0"))
    assert event.records == entry.erased > 1
    assert event.offsets == entry.offsets
    assert (event.erasure, event.operator, event.reason) == (result.report.id, "ann", "case 7")
