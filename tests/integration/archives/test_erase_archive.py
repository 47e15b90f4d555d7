"""Erasure of records from an archive: no object has them any more, and all else is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.cleanup.engine.search.offsets import count_in
from cordwood.cleanup.erasure.ledger import LEDGER_NAME
from cordwood.configs.log_config import LogConfig
from cordwood.model.hold import Hold
from cordwood.storage.archives.mount import mount_archive
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldRegistry
from support.archives import archive_in, archived, restored
from support.erasing import KEY, VALUE, erasable_log, erase_here, kept_records, sweep
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, write_log_dir

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100)


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_no_object_has_the_records_and_every_other_record_is_as_it_was(
    tmp_path: Path, *, is_cleaned: bool
) -> None:
    logs = [erasable_log("orders-0"), erasable_log("others-0")]
    log_dir = write_log_dir(tmp_path / "logs", logs)
    archive, objects = archive_in(tmp_path / "objects"), tmp_path / "objects" / "data"
    archived(archive, log_dir, has_active=True)
    if is_cleaned:  # what the compaction has replaced stays for a day
        clean_in_process(mount_archive(archive.url), {"orders": CONFIG}, now_ms=NOW_MS, force=True)
    restored(archive, tmp_path / "before")
    before, others = kept_records(tmp_path / "before" / "orders-0"), sweep(objects, KEY, VALUE)
    assert [name for name in others if name.startswith("orders")]

    result = erase_here(mount_archive(archive.url), "orders", configs={"orders": CONFIG})

    assert result.failed == {}
    left = sweep(objects, KEY, VALUE)
    assert left == [name for name in others if name.startswith("others")]
    restored(archive, tmp_path / "after")
    assert kept_records(tmp_path / "after" / "orders-0") == before
    (entry,) = result.report.partitions
    assert entry.erased == count_in(entry.offsets) > 0
    assert archive.store.get(f"directory/{LEDGER_NAME}")
    again = erase_here(mount_archive(archive.url), "orders", configs={"orders": CONFIG})
    assert again.report.partitions[0].erased == 0


def test_nothing_is_erased_of_what_has_a_legal_hold(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "logs", [erasable_log("orders-0")])
    archive = archive_in(tmp_path / "objects")
    archived(archive, log_dir, has_active=True)
    holds = HoldRegistry(OS)
    holds.read([mount_archive(archive.url)])
    holds.add(Hold(id="case-7", topic="orders", partition=0, reason="", by="", created_ms=0))
    (before,) = archive.manifests()
    result = erase_here(mount_archive(archive.url), "orders", configs={"orders": CONFIG})
    assert "case-7" in next(iter(result.failed.values()))
    assert archive.manifests() == [before]
