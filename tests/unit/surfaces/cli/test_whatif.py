"""`cordwood whatif` at its command line, as far as it goes without a virtual machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.cleanup.estimate import estimate as estimate_module
from cordwood.cleanup.estimate.estimate import estimate_compaction
from cordwood.cleanup.plan.estimates import CompactionEstimate, Estimator
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import LEADER_EPOCH_CHECKPOINT, segment_file_name
from cordwood.format.offset_commit import (
    OffsetCommitKey,
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from cordwood.model.clock import SystemClock
from cordwood.model.uuids import ZERO_UUID
from cordwood.surfaces.cli import whatif as whatif_command
from cordwood.surfaces.cli.clean_engine import CleanEngine
from cordwood.surfaces.cli.clean_estimate import estimator_for
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.cli.main import app
from support.aged_topic import HOUR_MS, RECORDS, AgedTopic
from support.clean import digest_tree
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.served import ServedBroker

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


@pytest.mark.parametrize(("group", "gone"), [("slow", 0), ("shop", 0), ("done", 2), ("new", 0)])
def test_groups_that_retention_would_wait_for_keep_what_they_have_not_consumed(
    root: Path, group: str, gone: int
) -> None:
    change = [*SHORTER, "--set", f"orders:cordwood.retention.groups={group}"]
    first, second = answer_of(root, *change)["partitions"]
    assert (first["now"]["segments_gone"], first["then"]["segments_gone"]) == (0, gone)
    assert second["then"]["segments_gone"] == 0, "no group has committed for it"
    cap = ["--set", f"orders:cordwood.retention.groups.max.ms={2 * DAY_MS}"]
    assert [p["then"]["segments_gone"] for p in answer_of(root, *change, *cap)["partitions"]] == [
        2,
        2,
    ]
    options = ["clean", root, "--defaults", "--now", NOW_MS, *change, "--retention-only", "--json"]
    report = json.loads(CliRunner().invoke(app, list(map(str, options))).stdout)
    after = {(p["topic"], p["partition"]): p["bytes_after"] for p in report["partitions"]}
    assert after["orders", 0] == first["then"]["bytes"]
    assert after["orders", 1] == second["then"]["bytes"]


def test_a_limit_that_partitions_share_is_predicted_and_explained(root: Path) -> None:
    size = sum(p["bytes"] for p in answer_of(root, *SHORTER)["partitions"])
    limit = f"orders:cordwood.retention.topic.bytes={size - 1}"
    first, second = answer_of(root, "--set", limit)["partitions"]
    assert (first["then"]["segments_gone"], second["then"]["segments_gone"]) == (1, 0)
    options = ["explain", root, "--defaults", "--now", NOW_MS, "--set", limit, "--json"]
    result = CliRunner().invoke(app, list(map(str, options)))
    explained = json.loads(result.stdout)["partitions"]
    (rule,) = [s["rule"] for p in explained for s in p["segments"] if s["deletable"]]
    assert rule == "topic size"
    limits = ["--set", "cordwood.log.dir.retention.bytes=1"]
    assert {p["topic"] for p in answer_of(root, *limits)["partitions"]} >= {"orders", "x"}
    alone = answer_of(root, *limits, "--topic", "orders")
    assert alone["partitions"] == []
    assert alone["warnings"] == [
        "cordwood.log.dir.*: not applied, since other topics are not looked at"
    ]


def test_what_retention_takes_in_the_next_day_is_that_of_a_dry_run_with_the_settings(
    root: Path,
) -> None:
    change = ["--set", f"orders:retention.ms={3 * DAY_MS + 12 * HOUR_MS}"]
    at = ["--now", NOW_MS + HOUR_MS]
    answer = answer_of(root, *change, *at)
    for side, settings in (("now", []), ("then", change)):
        options = [root, "--defaults", *at, "--topic", "orders", *settings, "--dry-run", "--json"]
        report = json.loads(CliRunner().invoke(app, ["clean", *map(str, options)]).stdout)
        soon = [each[side]["bytes_next_24h"] for each in answer["partitions"]]
        assert sum(soon) == report["bytes_next_24h"] == answer["total"][side]["bytes_next_24h"] > 0
    size = answer["partitions"][0]["bytes"] // 3
    assert [each["then"]["bytes_next_24h"] for each in answer["partitions"]] == [size, size]
    said = " ".join(run(root, *change, *at).stdout.split())
    assert f"in the next 24 h retention takes {2 * size} more, as it does now" in said
    assert "in the next 24 h" not in run(root, "--set", "orders:retention.ms=8d").stdout


def test_the_tables_show_settings_partitions_total_and_the_days_ahead(root: Path) -> None:
    result = run(root, *SHORTER, "--days", 2)
    assert result.exit_code == 0, result.output
    assert "retention.ms" in result.stdout
    for name in ("orders-0", "orders-1", "total", "0→2", "planned", "+1", "+2"):
        assert name in result.stdout, name
    assert "+3" not in result.stdout
    assert "x-0" not in result.stdout


def test_a_limit_that_topics_share_counts_the_topics_that_it_concerns(root: Path) -> None:
    result = run(root, "--set", "cordwood.log.dir.retention.bytes=1")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("3 partitions of 2 topics change: ")
    alone = run(root, "--set", "x:retention.bytes=1")
    assert alone.stdout.startswith("1 partition of 1 topic changes: ")


def test_a_change_of_a_topic_that_could_not_be_looked_at_is_shown(root: Path) -> None:
    for partition in ("orders-0", "orders-1"):
        (root / partition / LEADER_EPOCH_CHECKPOINT).write_text("nonsense")
    result = run(root, *SHORTER)
    assert result.exit_code == 1, result.output
    assert "no setting of a topic here changes" not in result.stdout
    assert "retention.ms" in result.stdout
    assert "of no topic whose settings change a partition could be compared" in result.stdout


def test_a_change_without_effect_on_settings_says_so(root: Path) -> None:
    result = run(root, "--set", f"orders:retention.ms={7 * DAY_MS}")
    assert result.exit_code == 0, result.output
    assert result.stdout == "no setting of a topic here changes\n"


def test_a_change_may_be_of_all_topics_but_internal_ones(root: Path) -> None:
    answer = answer_of(root, "--set", "*:retention.ms=2d")
    assert set(answer["changes"]) == {"orders", "x"}
    assert {each["topic"] for each in answer["partitions"]} == {"orders", "x"}
    assert all(each["then"]["segments_gone"] == 2 for each in answer["partitions"])
    own = answer_of(root, "--set", "*:retention.ms=2d", "--set", "x:retention.ms=4d")
    gone = {each["topic"]: each["then"]["segments_gone"] for each in own["partitions"]}
    assert gone == {"orders": 2, "x": 1}, "what names the topic comes first"
    result = run(root, "--set", "*:retention.msec=1")
    assert result.exit_code == 2
    assert "retention.msec" in result.stderr


def test_all_topics_are_those_whose_settings_are_known(root: Path) -> None:
    arguments = ["clean", str(root), "--dry-run", "--set", "*:retention.ms=1", "--json"]
    report = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert {each["status"] for each in report["partitions"]} == {"left alone"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["orders:retention.ms=8d"], "nothing is old enough: of the oldest segment: "),
        (["orders:retention.bytes=1G"], "of the oldest segment: "),
        (["orders:min.cleanable.dirty.ratio=0.1"], "cleanup.policy=delete: the log is not"),
    ],
)
def test_what_has_no_effect_says_why(root: Path, changes: list[str], words: str) -> None:
    options = [word for each in changes for word in ("--set", each)]
    first, second = answer_of(root, *options, "--estimate")["partitions"]
    assert words in first["no_effect"]
    assert first["no_effect"] == second["no_effect"]
    assert f"no effect: {words}" in " ".join(run(root, *options, "--estimate").stdout.split())
    assert answer_of(root, *SHORTER)["partitions"][0]["no_effect"] == ""


def test_retention_of_a_compacted_topic_has_no_effect(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [users()])
    config = tmp_path / "config.json"
    config.write_text('{"topics": {"users": {"cleanup.policy": "compact"}}}')
    change = (root, "--config-file", config, "--set", "*:retention.ms=1d", "--estimate")
    words = "cleanup.policy=compact: retention removes nothing, only compaction"
    (partition,) = answer_of(*change)["partitions"]
    assert partition["no_effect"] == words
    assert f"users-0: no effect: {words}" in run(*change).stdout


def test_a_log_that_a_change_does_nothing_to_is_not_measured(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [log_of("orders-0"), users()])
    config = tmp_path / "config.json"
    config.write_text(
        '{"topics": {"users": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}}}'
    )
    change = (root, "--config-file", config, "--set", "*:retention.ms=1d")
    orders, same = answer_of(*change)["partitions"]
    assert orders["difference"]["bytes"] < 0
    assert same["no_effect"].startswith("cleanup.policy=compact")
    assert same["now"]["how"] == same["then"]["how"] == "retention"
    assert answer_of(*change)["not_measured"] == {"now": [], "then": []}
    assert "a compaction of" not in run(*change).stderr


def test_a_change_of_retention_needs_no_java_although_a_compaction_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_log_dir(tmp_path / "logs", [users()])
    own = ("cleanup.policy", "compact,delete"), ("min.cleanable.dirty.ratio", "0")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"topics": {"users": dict(own)}}))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    answer = answer_of(root, "--config-file", config, "--set", "users:retention.ms=9000000000000")
    assert answer["not_measured"] == {"now": ["users-0"], "then": ["users-0"]}


def test_a_topic_with_a_setting_of_its_own_is_named_where_the_brokers_changes(root: Path) -> None:
    config = root.parent / "config.json"
    config.write_text('{"topics": {"orders": {"retention.ms": "86400000"}}}')
    change = ("--config-file", config, "--set", "log.retention.ms=2d")
    answer = answer_of(root, *change)
    (own,) = answer["overruled"]
    assert (own["topic"], own["setting"], own["value"]) == ("orders", "retention.ms", "86400000")
    assert {each["topic"] for each in answer["partitions"]} == {"x"}
    said = f"orders: it has its own retention.ms=1d ({config})"
    assert said in run(root, *change).stdout


def test_a_topic_without_known_settings_is_left_alone(root: Path) -> None:
    options = ["whatif", str(root), "--now", str(NOW_MS), *SHORTER, "--json"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["partitions"] == []
    assert "no source describes its settings" in answer["left_alone"][0]["reason"]


def test_a_partition_that_cannot_be_read_fails_and_the_others_are_compared(root: Path) -> None:
    (root / "orders-0" / LEADER_EPOCH_CHECKPOINT).write_text("nonsense")
    result = run(root, *SHORTER, "--json")
    assert result.exit_code == 1, result.output
    answer = json.loads(result.stdout)
    assert [each["partition"] for each in answer["partitions"]] == [1]
    assert answer["left_alone"] == []
    assert "'nonsense' in a checkpoint" in answer["failed"][0]["reason"]
    assert "orders-0: failed: " in run(root, *SHORTER).stderr


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


# ---- a running broker


def cordwood(*arguments: object, code: int = 0) -> str:
    """A command: what it prints."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def in_a_shell(*arguments: object) -> str:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "cordwood", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def test_a_broker_and_its_directory_say_the_same_and_the_broker_then_does_it(
    tmp_path: Path,
) -> None:
    served = ServedBroker(tmp_path / "logs", {"offsets.topic.num.partitions": "1"})
    change = ["--set", f"orders:retention.ms={26 * HOUR_MS}", "--days", "2"]
    with served:
        topic = AgedTopic(served.bootstrap_servers, "orders")
        topic.create({"retention.ms": str(80 * HOUR_MS)})
        topic.fill([hours * HOUR_MS for hours in (73, 49, 25, 1)], now_ms=SystemClock().now_ms())
        topic.commit("reader", {0: 1, 1: 3 * RECORDS})
        here = ["--log-dir", served.log_dir]
        # Its recovery points are written each minute: until then its directory has less to go.
        cordwood("clock", *here, "--advance", "2m")
        at = ["--bootstrap-server", served.bootstrap_servers]
        answer = json.loads(in_a_shell("whatif", *at, *change, "--json"))
        assert answer["broker"]["pid"] == served.pid
        assert [each["then"]["segments_gone"] for each in answer["partitions"]] == [2, 2]
        (loss,) = answer["groups"]
        assert (loss["group"], loss["partition"], loss["lost"]) == ("reader", "orders-0", 9)
        at_once = ["--now", answer["now_ms"]]
        files = json.loads(cordwood("whatif", served.log_dir, *change, *at_once, "--json"))
        assert [each["pid"] for each in files["in_use"]] == [served.pid]
        for name in ("changes", "partitions", "total", "groups", "not_measured"):
            assert files[name] == answer[name], name
        soon = {side: answer["total"][side]["bytes_next_24h"] for side in ("now", "then")}
        assert soon["now"] == soon["then"] > 0
        of_broker = ["--set", "log.retention.ms=26h"]
        overruled = "orders: it has its own retention.ms=3d8h (metadata log)"
        for where in ([served.log_dir], at):
            assert overruled in cordwood("whatif", *where, *of_broker), where
        table = cordwood("whatif", *here, *change)
        for words in (f"process {served.pid}", "orders-0", "0→2", "planned", "reader", "+2"):
            assert words in table, words
        refused = ["--set", "orders:retention.ms=soon"]
        assert "Not a number of type LONG" in cordwood("whatif", *at, *refused, code=2)
        assert "no topic" in cordwood("whatif", *at, *change, "--topic", "no*", code=2)
        of_all = json.loads(in_a_shell("whatif", *at, "--set", "*:retention.ms=26h", "--json"))
        assert of_all["total"] == answer["total"]
        topic.set({"retention.ms": str(26 * HOUR_MS)})
        cordwood("clock", *here, "--advance", "5m")
        now = json.loads(cordwood("explain", *at, "--topic", "orders", "--json"))["partitions"]
        assert [(each["size_bytes"], each["log_start_offset"]) for each in now] == [
            (each["then"]["bytes"], each["then"]["log_start_offset"])
            for each in answer["partitions"]
        ]
    assert "no broker runs on" in cordwood("whatif", *here, *change, code=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--now", "5"], "--now needs LOG_DIR"),
        (["--memory", "1g"], "--memory needs LOG_DIR"),
        (["--master", "local[2]"], "--master needs LOG_DIR"),
        (["--defaults"], "--defaults needs LOG_DIR"),
        (["--estimate"], "--estimate needs LOG_DIR"),
        (["--config-file", "x"], "--config-file needs LOG_DIR"),
        (["--bootstrap-server", "localhost:1"], "which broker?"),
        (["."], "give LOG_DIR, or a running broker, not both"),
        (["--days", "1000"], "--days 1000: expected 0 to 366"),
    ],
)
def test_options_of_directories_are_refused_for_a_broker(options: list[str], words: str) -> None:
    given = ["whatif", "--url", "http://127.0.0.1:1", *SHORTER, *options]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_a_broker_that_is_gone_ends_with_1() -> None:
    result = CliRunner().invoke(app, ["whatif", "--url", "http://127.0.0.1:1", *SHORTER])
    assert result.exit_code == 1, result.output
    assert "nothing answers at http://127.0.0.1:1" in result.stderr


KEPT = ["--set", "users:cleanup.policy=compact", "--set", "users:min.cleanable.dirty.ratio=0"]


def users(name: str = "users-0") -> LogBuilder:
    """Three segments, of which the first two have forty records of ten keys and one of its own."""
    log = LogBuilder(name)
    for number in range(2):
        log.batch([(b"k%d" % (n % 10), b"v" * 100) for n in range(20)])
        log.batch([(b"own %d" % number, b"w")])
        log.roll()
    log.put(b"last", b"")
    return log


def test_a_compaction_is_estimated_without_spark_on_demand(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [users()])
    before = digest_tree(root)
    answer = answer_of(root, *KEPT, "--estimate")
    assert digest_tree(root) == before
    (partition,) = answer["partitions"]
    now, then = partition["now"], partition["then"]
    assert (now["how"], then["how"]) == ("planned", "estimated")
    copy = shutil.copytree(root, tmp_path / "copy")
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    (cleaned,) = clean_in_process(copy, {"users": config}, now_ms=NOW_MS).partitions
    assert cleaned.after is not None
    assert (then["bytes"], then["segments"]) == (cleaned.after.bytes, cleaned.after.segments)
    assert (then["records_discarded"], then["keys"], then["bytes_error"]) == (30, 12, 0)
    assert partition["difference"]["bytes"] == then["bytes"] - now["bytes"] < 0
    assert answer["total"]["then"]["bytes_error"] == 0, "a small log is looked at as a whole"
    text = run(root, *KEPT, "--estimate").stdout
    assert "planned→estimated" in text


def test_the_error_of_an_estimate_is_shown_with_the_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_log_dir(tmp_path / "logs", [users("users-0"), users("users-1")])

    def rough(display: CleanProgress) -> Estimator:
        estimate = estimator_for(display)
        assert estimate is not None

        def widened(compaction: LogCompaction) -> CompactionEstimate:
            found = estimate(compaction)
            return replace(
                found,
                bytes_freed_low=found.bytes_freed - 300,
                bytes_freed_high=found.bytes_freed + 300,
                is_exact=False,
            )

        return widened

    monkeypatch.setattr(whatif_command, "estimator_for", rough)
    total = answer_of(root, *KEPT, "--estimate")["total"]
    assert (total["now"]["bytes_error"], total["then"]["bytes_error"]) == (0, 424)
    text = run(root, *KEPT, "--estimate").stdout
    assert text.count("±300") == 2
    assert text.count("±424") == 2, "of the total, in the summary and in the table"


def test_both_sides_are_estimated_from_one_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_log_dir(tmp_path / "logs", [users("users-0"), users("users-1")])
    seeds = []

    def noted(compaction: LogCompaction, progress: Callable[[int], None]) -> CompactionEstimate:
        seeds.append(compaction.seed)
        return estimate_compaction(compaction, progress=progress)

    monkeypatch.setattr(estimate_module, "estimate_compaction", noted)
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    in_force = tmp_path / "config.json"
    in_force.write_text(json.dumps({"topics": {"users": config}}))
    change = ("--set", "users:delete.retention.ms=1")
    answer_of(root, "--config-file", in_force, *change, "--estimate")
    assert len(seeds) == 4
    assert len(set(seeds)) == 1


def test_what_cannot_be_estimated_is_named(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [users()])
    segment = root / "users-0" / segment_file_name(0, ".log")
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    result = run(root, *KEPT, "--estimate", "--json")
    assert result.exit_code == 1
    (partition,) = json.loads(result.stdout)["partitions"]
    assert "CRC" in partition["reason"]
    assert partition["then"] is None
