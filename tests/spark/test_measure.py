"""`cordwood clean --dry-run --exact` on Spark gives the numbers of the cleaning."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from support.clean import digest_tree, run_clean
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, random_log

pytestmark = pytest.mark.spark


def settings_of(log: LogBuilder, rng: random.Random) -> list[str]:
    topic = log.topic_partition.topic
    policy = rng.choice(["compact", "compact,delete"])
    return [f"{topic}:cleanup.policy={policy}", f"{topic}:delete.retention.ms={rng.choice([0, 1])}"]


def test_an_exact_dry_run_gives_the_numbers_of_the_cleaning(tmp_path: Path) -> None:
    rng = random.Random(7)
    contents = Contents(batches=200, index_interval_bytes=LogConfig().index_interval_bytes)
    logs = [random_log(seed, contents, name=f"t{seed}-0") for seed in range(6)]
    root = write_log_dir(tmp_path / "logs", logs)
    shutil.copytree(root, tmp_path / "copy")
    before = digest_tree(root)
    options = ["--force", "--defaults"]
    for log in logs:
        for text in settings_of(log, rng):
            options += ["--set", text]
    measured = run_clean([root], *options, "--dry-run", "--exact", now_ms=NOW_MS).report
    assert digest_tree(root) == before
    cleaned = run_clean([tmp_path / "copy"], *options, now_ms=NOW_MS).report
    assert measured["plan"] == cleaned["plan"]
    assert sum(each["records_before"] or 0 for each in cleaned["partitions"]) > 1000
    for mine, done in zip(measured["partitions"], cleaned["partitions"], strict=True):
        for each in (mine, done):
            del each["log_dir"]
        assert (mine.pop("status"), done.pop("status")) in {
            ("planned", "cleaned"),
            ("unchanged", "unchanged"),
        }
        assert mine == done


def test_a_changed_policy_is_measured_and_is_what_the_cleaning_does(tmp_path: Path) -> None:
    contents = Contents(batches=200, index_interval_bytes=LogConfig().index_interval_bytes)
    root = write_log_dir(tmp_path / "logs", [random_log(3, contents, name="t-0")])
    before = digest_tree(root)
    change = ["--set", "t:cleanup.policy=compact", "--defaults", "--now", str(NOW_MS)]
    done = subprocess.run(
        [sys.executable, "-m", "cordwood", "whatif", str(root), *change, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert digest_tree(root) == before
    document = json.loads(done.stdout)
    (predicted,) = document["partitions"]
    assert document["cleaning_s"]["now"] is None, "no compaction is due"
    assert document["cleaning_s"]["then"] > 0
    then = predicted["then"]
    assert then["how"] == "measured"
    assert then["cost"]["keys"] == then["keys"] > 0
    cleaned = run_clean([root], *change[:3], now_ms=NOW_MS).report["partitions"][0]
    assert (then["segments"], then["bytes"]) == (cleaned["segments_after"], cleaned["bytes_after"])
    assert then["records_discarded"] == cleaned["records_before"] - cleaned["records_after"] > 0
    assert then["keys"] == cleaned["keys"]
