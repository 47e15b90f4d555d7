"""`cordwood whatif` at its command line, as far as it goes without a virtual machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.format.offset_commit import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from cordwood.model.uuids import ZERO_UUID
from cordwood.surfaces.cli.clean_engine import CleanEngine
from cordwood.surfaces.cli.main import app
from support.clean import digest_tree
from support.log_builder import NOW_MS, LogBuilder, write_log_dir

DAY_MS = 86_400_000
SHORTER = ["--set", f"orders:retention.ms={2 * DAY_MS}"]


def log_of(name: str) -> LogBuilder:
    """Three segments of two records: six days, three days and an hour old, the last one active."""
    log = LogBuilder(name)
    for number, age_ms in enumerate((6 * DAY_MS, 3 * DAY_MS, 3_600_000)):
        if number:
            log.roll()
        log.batch([(b"a", b"v"), (b"b", b"w" * 50)], timestamp=NOW_MS - age_ms)
    return log


def group_log() -> LogBuilder:
    """Group shop has read one record of orders-0, group slow nothing, group done all."""
    log = LogBuilder("__consumer_offsets-0")
    for group, offset in (("shop", 1), ("slow", 0), ("done", 6)):
        key = encode_offset_commit_key(OffsetCommitKey(group, "orders", 0))
        value = OffsetCommitValue(offset, -1, "", NOW_MS, -1, ZERO_UUID)
        log.batch([(key, encode_offset_commit_value(value))])
    return log


@pytest.fixture
def root(tmp_path: Path) -> Path:
    names = ("orders-0", "orders-1", "x-0")
    return write_log_dir(tmp_path / "logs", [*map(log_of, names), group_log()])


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: CleanEngine) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(CleanEngine, "require", refused)


def run(*arguments: object) -> Result:
    options = ["--defaults", "--now", NOW_MS, *arguments]
    return CliRunner().invoke(app, ["whatif", *map(str, options)])


def answer_of(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_change_of_retention_is_compared_without_spark_or_a_change(root: Path) -> None:
    before = digest_tree(root)
    answer = answer_of(root, *SHORTER)
    assert digest_tree(root) == before
    week = str(7 * DAY_MS)
    assert answer["changes"] == {"orders": {"retention.ms": {"now": week, "then": str(2 * DAY_MS)}}}
    first, second = answer["partitions"]
    assert (first["topic"], first["partition"], second["partition"]) == ("orders", 0, 1)
    assert (first["now"]["segments_gone"], first["then"]["segments_gone"]) == (0, 2)
    assert first["then"]["bytes"] == first["bytes"] // 3
    assert first["difference"]["bytes"] == first["then"]["bytes"] - first["bytes"]
    assert first["difference"]["offsets_gone"] == 4
    assert answer["total"]["then"]["bytes_freed"] == 2 * first["then"]["bytes_freed"]


def test_groups_that_lose_unread_records_are_named(root: Path) -> None:
    lost = [(g["group"], g["committed"], g["lost"]) for g in answer_of(root, *SHORTER)["groups"]]
    assert lost == [("shop", 1, 3), ("slow", 0, 4)]
    assert answer_of(root, *SHORTER, "--no-groups")["groups"] is None
    text = run(root, *SHORTER).stdout
    assert "Consumer groups that lose records they have not read" in text
    assert "slow" in text
    assert "done" not in text


def test_the_tables_show_settings_partitions_total_and_the_days_ahead(root: Path) -> None:
    result = run(root, *SHORTER, "--days", 2)
    assert result.exit_code == 0, result.output
    assert "retention.ms" in result.stdout
    for name in ("orders-0", "orders-1", "total", "0→2", "planned", "+1", "+2"):
        assert name in result.stdout, name
    assert "+3" not in result.stdout
    assert "x-0" not in result.stdout


def test_a_change_without_effect_on_settings_says_so(root: Path) -> None:
    result = run(root, "--set", f"orders:retention.ms={7 * DAY_MS}")
    assert result.exit_code == 0, result.output
    assert result.stdout == "no setting of a topic here changes\n"


def test_a_topic_without_known_settings_is_left_alone(root: Path) -> None:
    options = ["whatif", str(root), "--now", str(NOW_MS), *SHORTER, "--json"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["partitions"] == []
    assert "no source describes its settings" in answer["left_alone"][0]["reason"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "give a setting with --set"),
        (["--set", "orders:retention.msec=1"], "retention.msec"),
        (["--set", "nosuch:retention.ms=1"], "no partition of topic nosuch"),
        ([*SHORTER, "--topic", "nosuch*"], "--topic nosuch*"),
        ([*SHORTER, "--master", "moon"], "--master moon"),
        ([*SHORTER, "--days", "-1"], "--days -1: expected 0 to 366"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(root: Path, options: list[str], words: str) -> None:
    result = run(root, *options)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stdout == ""
