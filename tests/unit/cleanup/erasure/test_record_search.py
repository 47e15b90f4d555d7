"""Files that an erasure cannot search: their logs are as they were, and the others are erased."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.erasure.ledger import LEDGER_NAME, read_ledger
from cordwood.cleanup.erasure.pending import PENDING_NAME
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from support.clean import digest_tree
from support.erasing import KEY, VALUE, erasable_log, erase_here, sweep
from support.erasing_online import erase_running_here, running_logs
from support.log_builder import LogBuilder, write_log_dir

BOUND = 40_000
BOUNDED = LogConfig(retention_ms=-1, index_interval_bytes=100, max_decompressed_message_bytes=BOUND)
COMPRESSED = [codec for codec in Codec if codec]


def logs_of(*names: str) -> list[Any]:
    return [erasable_log(name) for name in names]


def large_log(name: str, codec: Codec) -> LogBuilder:
    """A log of three segments; in a batch of the second a record is larger than `BOUND`."""
    log = LogBuilder(name)
    log.batch([(KEY, VALUE)], codec=codec)
    log.roll()
    log.batch([(b"small", b"v"), (b"large", bytes(50_000))], codec=codec)
    log.roll()
    log.batch([(KEY, VALUE)], codec=codec)
    return log


def corrupt(directory: Path, *, number: int = 1) -> Path:
    """Changes a byte of a batch in one of the directory's segments."""
    path = sorted(directory.glob("*.log*"))[number]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    return path


def left_in(log_dir: Path) -> set[str]:
    """The directories that still have the key or its value."""
    return {name.partition("/")[0] for name in sweep(log_dir, KEY, VALUE)}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_damaged_segment_fails_its_log_and_the_others_are_erased(
    tmp_path: Path, dry_run: bool
) -> None:
    log_dir = write_log_dir(tmp_path / "data", logs_of("t-0", "t-1", "u-0"))
    whole = shutil.copytree(log_dir / "t-0", tmp_path / "t-0")
    path = corrupt(log_dir / "t-0")
    before = digest_tree(log_dir / "t-0")
    result = erase_here(log_dir, "t", "u", dry_run=dry_run)
    ((name, reason),) = result.failed.items()
    assert name == str(log_dir / "t-0")
    assert reason.startswith(f"{path}: a batch whose CRC does not match at byte ")
    assert result.report.status == "failed"
    assert {each.partition for each in result.report.partitions} == {"t-1", "u-0"}
    assert all(each.erased for each in result.report.partitions)
    assert digest_tree(log_dir / "t-0") == before
    assert not (log_dir / PENDING_NAME).exists()
    if dry_run:
        assert not (log_dir / LEDGER_NAME).exists()
        return
    (entry,) = read_ledger(log_dir / LEDGER_NAME).entries
    assert set(entry.erased) == {"t-1", "u-0"}
    # With the segment restored the next run erases the rest.
    shutil.rmtree(log_dir / "t-0")
    shutil.copytree(whole, log_dir / "t-0")
    assert left_in(log_dir) == {"t-0"}
    assert erase_here(log_dir, "t", "u").failed == {}
    assert left_in(log_dir) == set()


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.config_name)
def test_a_record_over_the_bound_fails_its_log_and_the_others_are_erased(
    tmp_path: Path, codec: Codec
) -> None:
    log_dir = write_log_dir(tmp_path / "data", [large_log("t-0", codec), *logs_of("t-1", "u-0")])
    before = digest_tree(log_dir / "t-0")
    configs = {"t": BOUNDED, "u": BOUNDED}
    result = erase_here(log_dir, "t", "u", configs=configs)
    path = log_dir / "t-0" / f"{1:020d}.log"
    assert result.failed == {
        str(log_dir / "t-0"): (
            f"{path}: Invalid record size: 50013 exceeds the configured maximum record size of "
            f"{BOUND}, in the batch of offset 1 at byte 0. Raise max.decompressed.message.bytes "
            "of the topic"
        )
    }
    assert digest_tree(log_dir / "t-0") == before
    assert left_in(log_dir) == {"t-0"}
    raised = LogConfig(retention_ms=-1, max_decompressed_message_bytes=60_000)
    assert erase_here(log_dir, "t", configs={"t": raised}).failed == {}
    assert left_in(log_dir) == set()


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.config_name)
def test_a_file_beside_a_log_fails_alone(tmp_path: Path, codec: Codec) -> None:
    log_dir = write_log_dir(tmp_path / "data", [*logs_of("t-0"), large_log("t-1", codec)])
    stray = log_dir / f"t-1.{'0' * 32}-stray"
    (log_dir / "t-1").rename(stray)
    damaged = log_dir / "t-0" / f"{0:020d}.log.copy"
    shutil.copy(log_dir / "t-0" / f"{0:020d}.log", damaged)
    corrupt(log_dir / "t-0")
    result = erase_here(log_dir, "t", configs={"t": BOUNDED})
    large = stray / f"{1:020d}.log"
    assert set(result.failed) == {str(damaged), str(large)}
    assert "CRC" in result.failed[str(damaged)]
    assert f"maximum record size of {BOUND}" in result.failed[str(large)]
    assert sweep(stray, KEY, VALUE) == []
    assert {path.name for path in log_dir.rglob("*") if has_value(path)} == {damaged.name}


def has_value(path: Path) -> bool:
    """Whether a file has the value in a batch without a codec."""
    return path.is_file() and VALUE in path.read_bytes()


def test_where_nothing_can_be_searched_nothing_is_noted(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "data", logs_of("t-0"))
    corrupt(log_dir / "t-0")
    before = digest_tree(log_dir)
    result = erase_here(log_dir, "t")
    assert list(result.failed) == [str(log_dir / "t-0")]
    assert result.report.status == "refused"
    require_same(digest_tree(log_dir), before)


def require_same(after: Mapping[str, str], before: Mapping[str, str]) -> None:
    def without_lock(tree: Mapping[str, str]) -> dict[str, str]:
        return {name: digest for name, digest in tree.items() if name != ".lock"}

    assert without_lock(after) == without_lock(before)


def test_a_damaged_segment_of_a_running_log_fails_it_alone(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "logs-0", logs_of("t-0", "t-1"))
    with running_logs(tmp_path, {"t": BOUNDED}) as logs:
        corrupt(log_dir / "t-0")
        before = digest_tree(log_dir / "t-0")
        result = erase_running_here(logs, "t")
        assert list(result.failed) == [str(log_dir / "t-0")]
        assert digest_tree(log_dir / "t-0") == before
        assert sweep(log_dir / "t-1", KEY, VALUE) == []
