"""The option --metrics-textfile: what the node exporter reads of a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result

from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT
from cordwood.queries.explain.answer import When
from cordwood.storage.filesystem import DirectoryLock
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.metrics.jobs import CLEAN, EXPLAIN, VERIFY
from support.clean_case import EXPIRE, log_dir
from support.log_builder import NOW_MS

#: A metric, and its labels beside `log_dirs`.
Sample = tuple[str, tuple[str, ...]]
LABELS = ("topic", "reason", "rule", "when")


def run(*arguments: object, command: str = "clean") -> Result:
    return CliRunner().invoke(app, [command, *map(str, arguments)])


def samples(file: Path, command: str = "clean") -> dict[Sample, float]:
    """Samples of the file, read by Prometheus' own parser."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
        assert family.documentation, family.name
        assert family.type == "gauge"
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("log_dirs")
            key = tuple(labels[name] for name in LABELS if name in labels)
            found[sample.name.removeprefix(f"cordwood_{command}_"), key] = sample.value
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return log_dir(tmp_path / "logs", "x-0", "x-1", "y-0")


def test_a_run_is_told_in_numbers_by_topic_and_reason(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "clean.prom"
    result = run(root, *EXPIRE, "--retention-only", "--metrics-textfile", file)
    assert result.exit_code == 0, result.output
    found = samples(file)
    assert found["success", ()] == 1
    assert found["last_run_timestamp_seconds", ()] == found["last_success_timestamp_seconds", ()]
    assert found["last_run_timestamp_seconds", ()] > NOW_MS / 1000
    assert found["duration_seconds", ()] > 0
    for topic in ("x", "y"):
        before, after = found["bytes_before", (topic,)], found["bytes_after", (topic,)]
        assert found["bytes_freed", (topic,)] == before - after > 0
        assert found["failed_partitions", (topic,)] == 0
    assert found["removed_segments", ("x", "time")] == 2 * found["removed_segments", ("y", "time")]
    assert f'log_dirs="{root}"' in file.read_text()
    names = {each.name.removeprefix("cordwood_clean_") for each in CLEAN}
    assert {name for name, _ in found} == names - {"removed_records"}
    assert sorted(os.listdir(tmp_path)) == ["clean.prom", "logs"]


def test_a_directory_whose_name_is_not_utf_8_is_a_label_that_prometheus_reads(
    tmp_path: Path,
) -> None:
    root = log_dir(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")), "x-0")
    file = tmp_path / "clean.prom"
    options = (root, *EXPIRE, "--retention-only", "--metrics-textfile", file, "--json")
    for expected in (1, 0):  # the second run finds the time of the first by the same label
        result = run(*options)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["partitions"][0]["status"] == (
            "cleaned" if expected else "unchanged"
        )
        assert samples(file)["success", ()] == 1
        assert "caf\\\\xe9" in file.read_text(encoding="utf-8")


def test_the_last_success_outlives_runs_that_fail(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "clean.prom"
    options = [root, *EXPIRE, "--retention-only", "--metrics-textfile", file]
    lock = DirectoryLock(root)
    try:
        assert run(*options).exit_code == 3
        never = samples(file)
        assert (never["success", ()], never["last_success_timestamp_seconds", ()]) == (0, 0)
    finally:
        lock.release()
    assert run(*options).exit_code == 0
    good = samples(file)
    lock = DirectoryLock(root)
    try:
        assert run(*options).exit_code == 3
    finally:
        lock.release()
    failed = samples(file)
    name = "last_success_timestamp_seconds"
    assert failed[name, ()] == good[name, ()] > 0
    assert failed["last_run_timestamp_seconds", ()] > good["last_run_timestamp_seconds", ()]
    assert ("bytes_before", ("x",)) not in failed


def test_a_partition_that_fails_is_counted_and_the_run_is_no_success(
    root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "clean.prom"
    other = log_dir(tmp_path / "other", "x-2")
    (root / "x-2").symlink_to(other / "x-2")  # whose checkpoints are not those of `root`
    result = run(root, *EXPIRE, "--retention-only", "--metrics-textfile", file)
    found = samples(file)
    assert (result.exit_code, found["success", ()]) == (1, 0)
    assert (found["failed_partitions", ("x",)], found["failed_partitions", ("y",)]) == (1, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["clean.txt"], "clean.txt: the node exporter reads only files that end in .prom"),
        (["none/clean.prom"], "clean.prom: cannot be written: No such file or directory"),
        (["clean.prom", "--dry-run"], "--dry-run cleans nothing"),
    ],
)
def test_a_file_that_nobody_could_read_is_refused_before_anything_is_removed(
    root: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    before = sorted(root.rglob("*"))
    name, *others = options
    result = run(root, *EXPIRE, "--metrics-textfile", tmp_path / name, *others)
    assert result.exit_code == 2
    assert words in result.stderr
    assert sorted(root.rglob("*")) == before
    assert sorted(tmp_path.iterdir()) == [root]


def test_a_file_that_is_damaged_is_replaced(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "clean.prom"
    file.write_text("not { metrics\n")
    assert run(root, *EXPIRE, "--retention-only", "--metrics-textfile", file).exit_code == 0
    assert samples(file)["success", ()] == 1


def test_a_verification_is_told_by_topic_and_rule(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "verify.prom"
    assert run(root, "--metrics-textfile", file, command="verify").exit_code == 0
    sound = samples(file, "verify")
    assert sound["success", ()] == 1
    assert sound["records", ("x",)] == 2 * sound["records", ("y",)] > 0
    assert sound["damaged_partitions", ("x",)] == 0
    assert not [key for name, key in sound if name == "findings"]
    (log, *_) = sorted((root / "x-0").glob("*.log"))
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1
    log.write_bytes(damaged)
    (root / CLEANER_OFFSET_CHECKPOINT).write_text("nonsense")
    assert run(root, "--metrics-textfile", file, command="verify").exit_code == 1
    found = samples(file, "verify")
    assert (found["success", ()], found["damaged_partitions", ("x",)]) == (0, 1)
    assert found["damaged_partitions", ("y",)] == 0
    assert found["findings", ("x", "batch-crc")] == 1
    assert found["findings", ("", "checkpoint-format")] == 1
    last = "last_success_timestamp_seconds"
    assert found[last, ()] == sound[last, ()]
    assert {name for name, _ in found} == {e.name.removeprefix("cordwood_verify_") for e in VERIFY}


def test_what_retention_takes_and_when_is_told_by_topic(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "explain.prom"
    expired = ("--defaults", "--set", "log.retention.hours=48", "--now", NOW_MS)
    options = (root, *expired, "--metrics-textfile", file, "--json")
    result = run(*options, command="explain")
    assert result.exit_code == 0, result.output
    summary, found = json.loads(result.stdout)["summary"], samples(file, "explain")
    for when in When:
        for name in ("bytes", "segments"):
            told = [found[name, (topic, str(when))] for topic in ("x", "y")]
            assert sum(told) == summary[when][name]
    assert found["bytes", ("x", "now")] > 0
    assert found["success", ()] == 1
    names = {each.name.removeprefix("cordwood_explain_") for each in EXPLAIN}
    assert {name for name, _ in found} == names


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("verify", ["--erasure", "report.json"], "is for LOG_DIR, not for --erasure"),
        ("explain", ["--url", "http://127.0.0.1:1"], "--metrics-textfile needs LOG_DIR"),
    ],
)
def test_what_is_no_run_over_directories_writes_no_metrics(
    tmp_path: Path, command: str, options: list[str], words: str
) -> None:
    result = run(*options, "--metrics-textfile", tmp_path / "x.prom", command=command)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not list(tmp_path.iterdir())
