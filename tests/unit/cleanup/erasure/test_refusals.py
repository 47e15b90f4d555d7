"""A refused erasure leaves nothing behind: no plan, no line of a ledger, no report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.cleanup.engine.thread_engine import ThreadEngine
from cordwood.cleanup.erasure.criteria import Criteria
from cordwood.cleanup.erasure.erasing import Erasing
from cordwood.cleanup.erasure.ledger import LEDGER_NAME, read_ledger
from cordwood.cleanup.erasure.pending import PENDING_NAME
from cordwood.cleanup.schedule.holds import add_hold
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import ConfigError, CordwoodError, MissingExtraError
from cordwood.model.hold import Hold
from cordwood.storage.broker_trash import BrokerTrash
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldRegistry
from support.clean import digest_tree
from support.commands import Commands
from support.erasing import KEY, VALUE, erasable_log, erase_here, sweep
from support.erasing_online import erase_running_here, running_logs
from support.log_builder import LogBuilder, write_log_dir
from support.running_logs import RunningLogs

TIERED = LogConfig(remote_storage_enable=True)
KEPT = LogConfig(retention_ms=-1, index_interval_bytes=100)


def hold_of(topic: str, partition: int | None = None) -> Hold:
    return Hold(id="case-7", topic=topic, partition=partition, reason="", by="", created_ms=0)


def add_to(log_dir: Path, hold: Hold) -> None:
    registry = HoldRegistry(OS)
    registry.read([log_dir])
    registry.add(hold)


def require_untouched(log_dir: Path, before: Mapping[str, str]) -> None:
    after = digest_tree(log_dir)
    assert {name: digest for name, digest in after.items() if not name.endswith(".lock")} == {
        name: digest for name, digest in before.items() if not name.endswith(".lock")
    }
    assert not (log_dir / PENDING_NAME).exists()
    assert not (log_dir / LEDGER_NAME).exists()


def nothing(_: Path) -> None:
    pass


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    "spoil", [lambda log_dir: add_to(log_dir, hold_of("t")), nothing], ids=["held", "tiered"]
)
def test_what_may_not_be_erased_is_not_noted(
    tmp_path: Path, spoil: Callable[[Path], None], dry_run: bool
) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("t-1")])
    spoil(log_dir)
    archive = shutil.copytree(log_dir, tmp_path / "archive")
    before = digest_tree(log_dir)
    configs = {"t": TIERED} if spoil is nothing else {}
    result = erase_here(log_dir, "t", configs=configs, dry_run=dry_run)
    assert set(result.failed) == {str(log_dir / "t-0"), str(log_dir / "t-1")}
    assert result.report.status == "refused"
    require_untouched(log_dir, before)
    # Later, for another topic: it completes nothing of the refused one.
    before = digest_tree(archive)
    with pytest.raises(ConfigError):
        erase_here(archive, "nowhere")
    assert digest_tree(archive) == before


def test_a_damaged_ledger_leaves_no_plan(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    (log_dir / LEDGER_NAME).write_bytes(b"no ledger\n")
    before = digest_tree(log_dir)
    with pytest.raises(CordwoodError):
        erase_here(log_dir, "t")
    assert not (log_dir / PENDING_NAME).exists()
    after = digest_tree(log_dir)
    assert {n: d for n, d in after.items() if n != ".lock"} == {
        n: d for n, d in before.items() if n != ".lock"
    }


def test_a_directory_that_takes_no_plan_is_as_before(tmp_path: Path) -> None:
    first = write_log_dir(tmp_path / "first", [erasable_log("t-0")])
    second = write_log_dir(tmp_path / "second", [erasable_log("t-1")])
    before = digest_tree(first)
    # In the way of the plan, when the first directory has its own.
    (second / f"{PENDING_NAME}.tmp").symlink_to("nowhere/file")
    with pytest.raises(FileNotFoundError):
        erase_here(first, "t", log_dirs=(first, second))
    require_untouched(first, before)


def test_an_engine_that_is_missing_is_said_before_anything_is_noted(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    before = digest_tree(log_dir)

    def missing() -> ThreadEngine:
        raise MissingExtraError("spark", what="this erasure", missing=["pyspark"])

    with pytest.raises(MissingExtraError):
        erase_here(log_dir, "t", engine=missing)
    require_untouched(log_dir, before)


def test_the_ledger_has_only_the_partitions_that_were_erased(tmp_path: Path) -> None:
    logs = [erasable_log(name) for name in ("t-0", "t-1", "u-0")]
    log_dir = write_log_dir(tmp_path / "data", logs)
    archive = shutil.copytree(log_dir, tmp_path / "archive")
    add_to(log_dir, hold_of("t", 0))
    result = erase_here(log_dir, "t", "u")
    assert list(result.failed) == [str(log_dir / "t-0")]
    assert result.report.status == "failed"
    assert not (log_dir / PENDING_NAME).exists(), "nothing is left to be done"
    (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
    assert [str(target) for target in entry.targets] == ["t:1", "u"]
    assert entry.erased == {"t-1": 43, "u-0": 43}
    suppressions = (read_ledger(log_dir / LEDGER_NAME),)
    before = digest_tree(archive / "t-0")
    erase_here(archive, keys=(), targets=entry.targets, suppressions=suppressions)
    assert digest_tree(archive / "t-0") == before
    assert {name.partition("/")[0] for name in sweep(archive, KEY, VALUE)} == {"t-0"}


def test_a_refused_topic_is_not_erased_when_its_hold_is_gone(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("u-0")])
    add_to(log_dir, hold_of("t"))
    erase_here(log_dir, "t")
    erase_here(log_dir, "t", "u", keys=[b"other-1"])
    registry = HoldRegistry(OS)
    registry.read([log_dir])
    registry.release("case-7", by="ada")
    before = digest_tree(log_dir / "t-0")
    erase_here(log_dir, "u", id="erasure-2")
    assert digest_tree(log_dir / "t-0") == before
    found = {str(t) for e in read_ledger(log_dir / LEDGER_NAME).entries for t in e.targets}
    assert found == {"u"}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("why", ["held", "tiered", "only in the trash"])
def test_what_may_not_be_erased_stays_in_a_trash_and_in_a_copy_too(
    tmp_path: Path, why: str, dry_run: bool
) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0"), erasable_log("u-0")])
    trash, copies = tmp_path / "trash", tmp_path / "copies"
    for top in (trash, copies / "monday"):
        for name in ("t-0", "u-0"):
            shutil.copytree(log_dir / name, top / name)
    if why == "only in the trash":
        shutil.rmtree(log_dir / "t-0")
    configs = {"t": TIERED} if why == "tiered" else {}
    if why != "tiered":
        add_to(log_dir, hold_of("t"))
    before = digest_tree(trash / "t-0")
    result = erase_here(
        log_dir, "t", "u", trash=trash, also=(copies,), configs=configs, dry_run=dry_run
    )
    assert digest_tree(trash / "t-0") == digest_tree(copies / "monday" / "t-0") == before
    refused = {str(trash / "t-0"), str(copies / "monday" / "t-0")}
    if why != "only in the trash":
        refused.add(str(log_dir / "t-0"))
    assert set(result.failed) == refused
    assert all(("held: case-7" in text) == (why != "tiered") for text in result.failed.values())
    assert {each.partition for each in result.report.beside} == {"u-0"}
    if not dry_run:
        assert not (log_dir / PENDING_NAME).exists()
        (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
        assert [str(target) for target in entry.targets] == ["u"]
        assert set(entry.erased) == {"u-0"}
        assert {name.partition("/")[0] for name in sweep(trash, KEY, VALUE)} == {"t-0"}


def test_a_trash_alone_that_is_held_leaves_nothing_noted(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("u-0")])
    shutil.copytree(write_log_dir(tmp_path / "old", [erasable_log("t-0")]), tmp_path / "trash")
    add_to(log_dir, hold_of("t"))
    before = digest_tree(log_dir)
    result = erase_here(log_dir, "t", trash=tmp_path / "trash")
    assert result.report.status == "refused"
    require_untouched(log_dir, before)


def test_an_interrupted_erasure_of_a_trash_waits_for_the_end_of_a_hold(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("u-0")])
    trash = shutil.copytree(write_log_dir(tmp_path / "old", [erasable_log("t-0")]), tmp_path / "t")

    class Stopped(BaseException):
        pass

    def stopped(_: object) -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Erasing, "_rewrite_stray", stopped)
        with pytest.raises(Stopped):
            erase_here(log_dir, "t", trash=trash)
    add_to(log_dir, hold_of("t"))
    before = digest_tree(trash)
    result = erase_here(log_dir, "u", trash=trash)
    assert all("held: case-7" in text for text in result.failed.values())
    assert digest_tree(trash) == before
    assert (log_dir / PENDING_NAME).exists()
    registry = HoldRegistry(OS)
    registry.read([log_dir])
    registry.release("case-7", by="ada")
    assert erase_here(log_dir, "u", trash=trash).failed == {}
    assert sweep(trash / "t-0", KEY, VALUE) == []


def test_a_running_broker_notes_no_refused_erasure(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "logs-0", [erasable_log("t-0"), erasable_log("u-0")])
    with running_logs(tmp_path, {"t": KEPT, "u": KEPT}) as logs:
        add_hold(logs.cleaning, hold_of("t"))
        result = erase_running_here(logs, "t")
        assert result.report.status == "refused"
        assert not (log_dir / PENDING_NAME).exists()
        assert not (log_dir / LEDGER_NAME).exists()
        both = erase_running_here(logs, "t", "u")
        assert list(both.failed) == [str(log_dir / "t-0")]
        assert not (log_dir / PENDING_NAME).exists()
        (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
        assert [str(target) for target in entry.targets] == ["u"]


def test_what_a_hold_stops_meanwhile_is_given_up(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "logs-0", [erasable_log("t-0"), erasable_log("u-0")])
    with running_logs(tmp_path, {"t": KEPT, "u": KEPT}) as logs:
        result = erase_running_here(
            logs, "t", "u", before_rewriting=lambda: add_hold(logs.cleaning, hold_of("t"))
        )
        assert "held: case-7" in result.failed[str(log_dir / "t-0")]
        assert not (log_dir / PENDING_NAME).exists()
        (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
        assert [str(target) for target in entry.targets] == ["u"]
        assert set(entry.erased) == {"u-0"}


@contextmanager
def with_trash(root: Path) -> Iterator[tuple[RunningLogs, Path]]:
    log_dir = write_log_dir(root / "logs-0", [erasable_log("t-0"), erasable_log("u-0")])
    trash = root / "trash"
    with running_logs(root, {"t": KEPT, "u": KEPT}) as logs:
        logs.manager.context.trash = BrokerTrash(trash, logs.directories)
        for name in ("t-0", "u-0"):
            shutil.copytree(log_dir / name, trash / name)
        yield logs, trash
        logs.manager.context.trash.close()


def test_a_running_broker_leaves_what_is_held_in_its_trash(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs-0"
    with with_trash(tmp_path) as (logs, trash):
        add_hold(logs.cleaning, hold_of("t"))
        before = digest_tree(trash / "t-0")
        result = erase_running_here(logs, "t", "u")
        assert digest_tree(trash / "t-0") == before
        assert set(result.failed) == {str(log_dir / "t-0"), str(trash / "t-0")}
        assert {each.partition for each in result.report.beside} == {"u-0"}
        assert sweep(trash / "u-0", KEY, VALUE) == []
        assert not (log_dir / PENDING_NAME).exists()
        (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
        assert set(entry.erased) == {"u-0"}


def test_a_hold_that_comes_meanwhile_keeps_what_lies_beside_the_log(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs-0"
    with with_trash(tmp_path) as (logs, trash):
        marked = [log_dir / f"t-0.{'0' * 32}-{suffix}" for suffix in ("stray", "delete")]
        for path in marked:
            shutil.copytree(log_dir / "t-0", path)
        before = [digest_tree(path) for path in (trash / "t-0", *marked)]
        result = erase_running_here(
            logs, "t", "u", before_rewriting=lambda: add_hold(logs.cleaning, hold_of("t"))
        )
        assert [digest_tree(path) for path in (trash / "t-0", *marked)] == before
        assert all("held: case-7" in text for text in result.failed.values())
        assert str(marked[1]) in result.failed
        assert {each.partition for each in result.report.beside} == {"u-0"}
        assert result.report.removed == []
        assert sweep(trash / "u-0", KEY, VALUE) == []
        assert not (log_dir / PENDING_NAME).exists()
        (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
        assert set(entry.erased) == {"u-0"}


def test_the_command_writes_no_report_of_a_refused_erasure(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", [erasable_log("t-0")])
    add_to(log_dir, hold_of("t"))
    before = digest_tree(log_dir)
    arguments = ["erase", "data", "--topic", "t", "--key", KEY.decode(), "--report", "r.json"]
    with Commands() as commands:
        outcome = commands.run(arguments, cwd=tmp_path)
    assert outcome.code == 1, outcome
    assert "refused: nothing was erased, and nothing is noted" in outcome.out
    assert "erased and searched for again" not in outcome.out
    assert not (tmp_path / "r.json").exists()
    require_untouched(log_dir, before)


def test_an_expression_that_is_not_allowed_changes_nothing(tmp_path: Path) -> None:
    log = LogBuilder("t-0")
    log.batch([(KEY, VALUE)])
    log_dir = write_log_dir(tmp_path / "data", [log])
    before = digest_tree(log_dir)
    with pytest.raises(ConfigError, match="is no function that is allowed"):
        erase_here(log_dir, "t", criteria=Criteria(where="reflect('a', 'b') = 'c'"))
    require_untouched(log_dir, before)
