"""`cordwood advise`, mostly on directories that a real Kafka wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.format.file_names import LEADER_EPOCH_CHECKPOINT
from cordwood.model.clock import SystemClock
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.cli.values import parse_duration
from support.golden import Golden
from support.log_builder import LogBuilder, write_log_dir


def run(golden: Golden, *arguments: str, code: int = 0) -> Result:
    directory = str(golden.root / "before")
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["advise", directory, *arguments])
    assert result.exit_code == code, result.output
    return result


def topic(golden: Golden, *arguments: str, code: int = 0) -> dict[str, Any]:
    document = json.loads(run(golden, *arguments, "--json", code=code).stdout)
    (found,) = document["topics"]
    return dict(found)


def test_an_age_is_kept_by_settings_that_add_up_to_it(golden_a: Golden) -> None:
    found = topic(golden_a, "--topic", "retention-bytes", "--max-age", "7d")
    promise = found["promises"]["max_age_ms"]
    assert promise["bound"] == 7 * 86_400_000 == sum(part["value"] for part in promise["parts"])
    changes = [f"--set=retention-bytes:{name}={value}" for name, value in promise["changes"]]
    again = topic(golden_a, "--topic", "retention-bytes", "--max-age", "7d", *changes)
    assert again["promises"]["max_age_ms"]["changes"] == []
    text = run(golden_a, "--topic", "retention-bytes", "--max-age", "7d").stdout
    assert "kept with: segment.ms=" in text


def test_a_size_is_kept_at_a_rate(golden_a: Golden) -> None:
    options = ("--topic", "retention-bytes", "--max-bytes", "1M", "--rate", "100")
    found = topic(golden_a, *options)
    assert found["promises"]["max_bytes"]["bound"] <= 1 << 20
    assert "bytes-and-a-segment" in [each["code"] for each in found["remarks"]]
    refused = topic(golden_a, "--topic", "retention-bytes", "--max-bytes", "1K", code=1)
    assert "no retention.bytes keeps 1024 bytes" in refused["refused"]


def test_what_retention_takes_with_the_advice_is_what_a_dry_run_says(tmp_path: Path) -> None:
    log, now_ms = LogBuilder("orders-0"), SystemClock().now_ms()
    for number, age_hours in enumerate((156, 84, 1)):
        if number:
            log.roll()
        log.batch([(b"k", b"v" * 50)], timestamp=now_ms - age_hours * 3_600_000)
    root = write_log_dir(tmp_path / "logs", [log])

    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(app, [arguments[0], str(root), "--defaults", *arguments[1:]])
        assert result.exit_code == 0, result.output
        return result.stdout

    (found,) = json.loads(printed("advise", "--max-age", "5d", "--json"))["topics"]
    changes = [f"--set=orders:{k}={v}" for k, v in found["promises"]["max_age_ms"]["changes"]]
    taken = found["retention"]
    for side, settings in (("now", []), ("then", changes)):
        report = json.loads(printed("clean", "--dry-run", "--json", *settings))
        assert taken[side]["bytes_next_24h"] == report["bytes_next_24h"] > 0
        (planned,) = report["plan"]
        assert taken[side]["bytes"] == planned["bytes_freed_by_retention"]
    assert taken["now"]["bytes"] == 0 < taken["then"]["bytes"]
    text = printed("advise", "--max-age", "5d")
    assert "retention takes 0 now, and " in text
    assert "with the changes " in text
    (later,) = json.loads(printed("advise", "--json", "--now", str(now_ms + 86_400_000)))["topics"]
    assert later["retention"] == {
        "now": {"bytes": taken["now"]["bytes_next_24h"], "bytes_next_24h": 0},
        "then": None,
    }


def test_what_a_limit_of_the_directory_takes_is_what_a_dry_run_says(tmp_path: Path) -> None:
    log = LogBuilder("orders-0")
    for number in range(3):
        if number:
            log.roll()
        log.batch([(b"k", b"v" * 50)], timestamp=SystemClock().now_ms())
    root = write_log_dir(tmp_path / "logs", [log])
    settings = ["--defaults", "--set", "cordwood.log.dir.retention.bytes=1"]

    def printed(*arguments: str) -> Any:
        result = CliRunner().invoke(app, [arguments[0], str(root), *settings, *arguments[1:]])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    (found,) = printed("advise", "--json")["topics"]
    (planned,) = printed("clean", "--dry-run", "--json")["plan"]
    assert found["retention"]["now"]["bytes"] == planned["bytes_freed_by_retention"] > 0


def test_what_cannot_be_promised_is_said(golden_a: Golden) -> None:
    result = run(golden_a, "--topic", "compact-and-delete", "--max-age", "7d", code=1)
    assert "compaction joins segments" in result.stdout
    assert "keys a pass" in result.stdout


def test_many_topics_have_a_row_each_and_every_remark_is_said_once(golden_a: Golden) -> None:
    topics = json.loads(run(golden_a, "--json").stdout)["topics"]
    codes = {each["code"] for topic in topics for each in topic["remarks"]}
    shown = run(golden_a, "--all").stdout.splitlines()
    for code in codes:
        assert any(line.startswith(code) for line in shown), code
    unkeyed = [t["topic"] for t in topics if "unkeyed" in {each["code"] for each in t["remarks"]}]
    (said,) = (line for line in shown if line.startswith("unkeyed"))
    assert said.endswith(f"and {len(unkeyed) - 3} more")
    for topic in topics:
        assert sum(line.split()[:1] == [topic["topic"]] for line in shown) == 1
    names = {each["topic"] for each in topics}
    logs = [
        path
        for path in (golden_a.root / "before").glob("*/*.log")
        if path.parent.name.rpartition("-")[0] in names
    ]
    assert sum(each["bytes"] for each in topics) == sum(path.stat().st_size for path in logs)
    assert len(run(golden_a, "--top", "3").stdout.splitlines()) < len(shown)
    assert "largest age of a record: " in run(golden_a, "--top", "1", "--details").stdout


def test_a_remark_is_said_of_the_topics_that_have_its_values(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(6)]
    root = write_log_dir(tmp_path / "logs", [LogBuilder(f"{name}-0") for name in names])
    days = dict(zip(names, (1, 1, 2, 3, 4, 5), strict=True))
    settings = [f"--set={name}:retention.ms={days[name]}d" for name in names]
    arguments = ["advise", str(root), *settings]
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments).stdout.splitlines()
    said = [line for line in shown if line.startswith("segment-outlives-retention")]
    ends = [line.partition("retention.ms ")[2].partition(":")[0] for line in said]
    assert ends == ["1d", "2d", "3d", ""]
    assert said[0].endswith("; of t0, t1")
    assert said[1].endswith("; of t2")
    assert "with other values, of t4, t5 (" in said[3]


def test_why_topics_cannot_keep_a_promise_is_said_beside_the_list(golden_a: Golden) -> None:
    topics = json.loads(run(golden_a, "--max-age", "7d", "--json", code=1).stdout)["topics"]
    reasons = {each["refused"] for each in topics if each["refused"]}
    shown = run(golden_a, "--max-age", "7d", code=1).stdout.splitlines()
    said = [line for line in shown if line.startswith("not possible of ")]
    assert {line.partition(": ")[2] for line in said} == reasons
    assert len(said) == len(reasons) > 0


def test_the_terms_that_are_shown_add_up_to_the_sum_that_is_shown(golden_a: Golden) -> None:
    options = ("--topic", "retention-bytes", "--details", "--max-age", "7d")
    sums = [line for line in run(golden_a, *options).stdout.splitlines() if " = " in line]
    assert len(sums) == 2
    for line in sums:
        total, _, terms = line.rpartition("at most ")[2].rpartition(": ")[2].partition(" = ")
        values = [parse_duration(term.split()[0], option="term") for term in terms.split(" + ")]
        assert parse_duration(total, option="sum") == sum(values)


def test_partitions_without_settings_and_damaged_ones_are_named(tmp_path: Path) -> None:
    logs = [LogBuilder(name) for name in ("a-0", "a-1", "b-0")]
    root = write_log_dir(tmp_path / "logs", logs)
    (root / "a-1" / LEADER_EPOCH_CHECKPOINT).write_text("nonsense")
    arguments = ["advise", str(root), "--set", "a:retention.ms=1000"]
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
    assert shown.exit_code == 1
    assert "a: 1 partition, " in shown.stdout
    assert "b-0: left alone: no source describes its settings" in shown.stderr
    assert "a-1: failed: " in shown.stderr
    answer = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [each["topic"] for each in answer["left_alone"]] == ["b"]
    assert "'nonsense' in a checkpoint" in answer["failed"][0]["reason"]


@pytest.mark.parametrize(
    ("options", "says"), [(("--rate", "5"), "--rate needs"), (("--max-age", "x"), "--max-age x")]
)
def test_wrong_usage_is_refused(golden_a: Golden, options: tuple[str, ...], says: str) -> None:
    assert says in run(golden_a, *options, code=2).output
