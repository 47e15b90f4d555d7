"""`cordwood clean` at its command line, as far as it goes without a virtual machine."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from cordwood.cleanup.access.commit import Engine
from cordwood.cleanup.plan.report import Status
from cordwood.cleanup.plan.request import CleanRequest, Resolved, Silence
from cordwood.cleanup.schedule.clean import clean
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import TRASH_NOTES
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.clock import SystemClock
from cordwood.surfaces.cli.biggest import Choice
from cordwood.surfaces.cli.clean_tables import show_report
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.values import format_bytes
from cordwood.testing.broker import RunningBroker
from support.failing_disks import fill, may_mount, small_disk
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.metadata_logs import write_metadata_log

DAY_MS = 86_400_000
NOW = ["--now", str(NOW_MS)]
EXPIRE = ["--set", "log.retention.hours=48"]
#: What a partition has in a trash beside the files that were removed: itself, and the notes.
NOT_REMOVED = {".", TRASH_NOTES}


def log_of(name: str) -> LogBuilder:
    """Three segments: ten days, three days and an hour old, the last one active."""
    log = LogBuilder(name)
    for number, age_ms in enumerate((10 * DAY_MS, 3 * DAY_MS, 3_600_000)):
        if number:
            log.roll()
        log.batch([(b"a", b"v"), (b"b", b"w" * 50)], timestamp=NOW_MS - age_ms)
    return log


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "logs", [log_of("orders-0"), log_of("orders-1"), log_of("x-0")])


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["clean", *map(str, arguments)])


def report_of(*arguments: object, exit_code: int = 0) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {f"{p['topic']}-{p['partition']}": p["status"] for p in report["partitions"]}


def segments(root: Path, partition: str) -> list[int]:
    return sorted(int(path.stem) for path in (root / partition).glob("*.log"))


def tree(top: Path) -> dict[str, tuple[int, int, bytes]]:
    """Of everything below `top`, directories too: mode, modification time, content."""
    return {
        str(path.relative_to(top)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [top, *sorted(top.rglob("*"))]
    }


# ---- usage


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "x:retention.msec=1"], "retention.msec"),
        (["--set", "x:retention.ms=soon"], "soon"),
        (["--set", "x:cleanup.policy=shred"], "cleanup.policy"),
        (["--set", "nonsense"], "nonsense"),
        (["--set", "log.retention.eons=1"], "log.retention.eons"),
        (["--now", "yesterday"], "--now yesterday: expected milliseconds since the epoch"),
        (["--memory", "much"], "--memory much"),
        (["--throttle", "slow"], "--throttle slow"),
        (["--max-extra-bytes", "-1"], "--max-extra-bytes -1"),
        (["--config-file", "/nowhere.json"], "/nowhere.json"),
        (["--server-properties", "/nowhere"], "/nowhere"),
        (["--metadata-dir", "/nowhere"], "/nowhere"),
        (["--retention-only", "--compaction-only"], "exclude each other"),
        (["--exact"], "--exact says how --dry-run measures"),
        (["--no-estimate"], "--no-estimate is for --dry-run without --exact"),
        (["--dry-run", "--exact", "--no-estimate"], "--no-estimate is for --dry-run"),
    ],
)
def test_wrong_usage_ends_with_2_says_why_and_touches_nothing(
    root: Path, options: list[str], words: str
) -> None:
    before = tree(root)
    result = run(root, *options)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stdout == ""
    assert tree(root) == before


def test_unknown_option_ends_with_2(root: Path) -> None:
    assert run(root, "--shred").exit_code == 2
    assert run().exit_code == 2


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_directory_that_is_not_kafkas_ends_with_2(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / name, "--defaults")
    assert result.exit_code == 2
    assert str(tmp_path / name) in result.stderr
    assert not list((tmp_path / "empty").iterdir())


def test_a_file_in_place_of_a_directory_is_named_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"{tmp_path / 'file'}: not a directory" in run(tmp_path / "file").stderr
    assert f"{tmp_path / 'none'}: there is no such directory" in run(tmp_path / "none").stderr


def test_directory_that_kafka_would_not_start_with_ends_with_2(root: Path) -> None:
    (root / "holiday-pictures").mkdir()
    result = run(root, "--defaults", *NOW)
    assert result.exit_code == 2
    assert "is not in the form of topic-partition" in result.stderr
    assert segments(root, "x-0") == [0, 2, 4]


@contextmanager
def in_use(root: Path) -> Iterator[int]:
    """Another process holds Kafka's lock on a directory; its number."""
    program = (
        "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.lockf(lock, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(root / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder.pid
    finally:
        holder.communicate()


def test_an_index_of_the_active_segment_that_a_broker_has_not_written_yet_is_no_warning(
    root: Path,
) -> None:
    (root / "x-0" / "00000000000000000004.index").unlink()
    asked = (root, "--defaults", *NOW, "--dry-run")
    with in_use(root):
        beside = report_of(*asked)
    for report, count in ((beside, 0), (report_of(*asked), 1)):
        (found,) = (each for each in report["partitions"] if each["topic"] == "x")
        missing = [each for each in found["warnings"] if "Could not find offset index" in each]
        assert len(missing) == count


@pytest.mark.parametrize(("base", "count"), [(0, 1), (2, 0), (4, 0)])
def test_beside_a_broker_an_index_above_the_recovery_point_is_not_missing(
    tmp_path: Path, base: int, count: int
) -> None:
    log = LogBuilder("x-0")
    for _ in range(3):
        log.batch([(b"a", b"v"), (b"b", b"v")])
        if log.next_offset < 6:
            log.roll()
    log.recovery_point = 2
    root = write_log_dir(tmp_path / "data", [log])
    (root / "x-0" / f"{base:020d}.index").unlink()
    with in_use(root):
        (found,) = report_of(root, "--defaults", *NOW, "--dry-run")["partitions"]
    assert len([w for w in found["warnings"] if "Could not find offset index" in w]) == count


def test_directory_in_use_ends_with_3_and_touches_nothing(root: Path) -> None:
    with in_use(root):
        before = tree(root)
        result = run(root, "--defaults", *EXPIRE, *NOW)
        assert result.exit_code == 3
        assert "Nothing was changed: stop that process first, or look with --dry-run" in (
            result.stderr
        )
        assert "Failed to acquire lock on file .lock in" in result.stderr
        assert tree(root) == before


def test_one_directory_in_use_keeps_the_others_untouched(tmp_path: Path, root: Path) -> None:
    other = write_log_dir(tmp_path / "other", [log_of("y-0")])
    with in_use(root):
        assert run(other, root, "--defaults", *EXPIRE, *NOW).exit_code == 3
    assert segments(other, "y-0") == [0, 2, 4]


def test_lock_is_given_back(root: Path) -> None:
    report_of(root, "--defaults", *EXPIRE, *NOW)
    assert not (root / ".lock").exists()
    with (root / ".lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---- what is cleaned


def test_topic_globs_choose_what_is_cleaned_and_reported(root: Path) -> None:
    report = report_of(root, "--defaults", *EXPIRE, *NOW, "--topic", "ord*", "--topic", "nope")
    assert statuses(report) == {"orders-0": "cleaned", "orders-1": "cleaned"}
    assert segments(root, "orders-1") == [4]
    assert segments(root, "x-0") == [0, 2, 4]


def test_one_partitions_directory_is_cleaned_alone(root: Path) -> None:
    report = report_of(root / "orders-1", "--defaults", *EXPIRE, *NOW)
    assert statuses(report) == {"orders-1": "cleaned"}
    assert (segments(root, "orders-0"), segments(root, "orders-1")) == ([0, 2, 4], [4])


def test_topics_that_nothing_describes_are_left_alone_and_said_so(root: Path) -> None:
    before = tree(root)
    report = report_of(root, *NOW)
    assert set(statuses(report).values()) == {"left alone"}
    assert "no source describes its settings" in report["partitions"][0]["reason"]
    # Only the lock came and went.
    assert {k: v[2] for k, v in tree(root).items()} == {k: v[2] for k, v in before.items()}


def test_setting_of_a_topic_overrules_that_of_the_broker(root: Path) -> None:
    report_of(root, "--defaults", *NOW, *EXPIRE, "--set", f"orders:retention.ms={7 * DAY_MS}")
    assert segments(root, "orders-0") == [2, 4]
    assert segments(root, "x-0") == [4]


def test_milliseconds_overrule_hours_wherever_they_stand(root: Path) -> None:
    hours = ["--set", "log.retention.hours=1"]
    report_of(root, "--defaults", *NOW, "--set", f"log.retention.ms={7 * DAY_MS}", *hours)
    assert segments(root, "x-0") == [2, 4]


def test_setting_describes_a_topic_without_defaults(root: Path) -> None:
    report = report_of(root, *NOW, "--set", "x:retention.bytes=1", "--set", "x:retention.ms=-1")
    assert statuses(report) == {
        "orders-0": "left alone",
        "orders-1": "left alone",
        "x-0": "cleaned",
    }
    assert segments(root, "x-0") == [4]


@pytest.mark.parametrize(
    ("now", "left"),
    [
        ("2023-11-14T22:13:20Z", [2, 4]),
        ("2023-11-14T22:13:20+00:00", [2, 4]),
        ("2023-11-14 23:13:20+01:00", [2, 4]),
        ("2023-11-14T22:13:20", [2, 4]),
        ("2023-11-11", [0, 2, 4]),
        (str(NOW_MS), [2, 4]),
        ("2033-01-01", [6]),
    ],
)
def test_now_is_read_as_iso_8601_or_milliseconds(root: Path, now: str, left: list[int]) -> None:
    options = ["--set", f"log.retention.ms={7 * DAY_MS}", "--yes"]
    report_of(root, "--defaults", "--now", now, *options)
    assert segments(root, "x-0") == left


# ---- what the broker's file says

#: A setting of its own describes the topic; how long records are kept is left to the broker.
DESCRIBED = ("--set", "x:segment.bytes=1048576")


def test_no_record_goes_for_a_default_that_may_not_be_the_brokers(root: Path) -> None:
    before = {name: v[2] for name, v in tree(root).items()}
    for options in ((), ("--json",), ("--trash", root.parent / "trash")):
        result = run(root, *DESCRIBED, *NOW, "--yes", *options)
        assert result.exit_code == 2, result.output
        assert "retention.ms of x is taken for Kafka's default, 7 days" in result.output
        assert "--server-properties FILE" in result.output
        assert "Nothing was changed" in result.output
        assert {name: v[2] for name, v in tree(root).items()} == before
    planned = report_of(root, *DESCRIBED, *NOW, "--dry-run")
    assert any("retention.ms of x is taken for" in each for each in planned["warnings"])


def _file(root: Path, name: str, text: str) -> Path:
    path = root.parent / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("option", "text", "left"),
    [
        ("--server-properties", "log.retention.hours=720\n", [0, 2, 4]),
        ("--server-properties", "num.partitions=1\n", [2, 4]),
        ("--config-file", '{"broker": {"log.retention.hours": "720"}}', [0, 2, 4]),
        ("--defaults", None, [2, 4]),
        ("--set", "log.retention.ms=-1", [0, 2, 4]),
        ("--set", "x:retention.ms=604800000", [2, 4]),
    ],
)
def test_the_brokers_retention_is_taken_from_what_says_it(
    root: Path, option: str, text: str | None, left: list[int]
) -> None:
    if option in {"--server-properties", "--config-file"}:
        assert text is not None
        text = str(_file(root, "file", text))
    given = [option] if text is None else [option, text]
    report = report_of(root, *DESCRIBED, *NOW, "--topic", "x", *given)
    assert segments(root, "x-0") == left
    assert report["warnings"] == []


@pytest.mark.parametrize(
    "options",
    [
        ["--compaction-only"],
        ["--set", "x:cleanup.policy=compact", "--retention-only"],
        ["--now", str(NOW_MS - 5 * DAY_MS)],
    ],
)
def test_the_brokers_retention_does_not_matter_where_nothing_goes_for_its_age(
    root: Path, options: list[str]
) -> None:
    report = report_of(root, *NOW, *DESCRIBED, *options)
    assert report["warnings"] == []
    assert segments(root, "x-0") == [0, 2, 4]


def test_a_log_that_is_compacted_first_may_lose_records_for_their_age_then(root: Path) -> None:
    options = ("--set", "x:cleanup.policy=compact,delete", "--force")
    now = ("--now", str(NOW_MS - 3 * DAY_MS))
    result = run(root, *DESCRIBED, *options, *now)
    assert result.exit_code == 2
    assert "retention.ms of x is taken for" in result.stderr


def test_what_was_served_for_thirty_days_is_not_cut_to_seven(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with RunningBroker({"log.retention.hours": 720}, log_dir=root) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (made,) = admin.create_topics([NewTopic("orders", 1, 1)]).values()
        made.result()
        batch = build_batch([Record(0, broker.now_ms() - 8 * DAY_MS, b"k", b"v")], base_offset=0)
        broker.call(lambda running: running.replicas.partition("orders", 0).append(batch))
    assert "orders" in run(root, "--retention-only").stderr
    assert segments(root, "orders-0") == [0]
    properties = _file(root, "server.properties", "log.retention.hours=720\n")
    report_of(root, "--retention-only", "--server-properties", properties)
    assert segments(root, "orders-0") == [0]
    report_of(root, "--retention-only", "--defaults", "--yes")
    assert segments(root, "orders-0") == [1]


def test_by_a_metadata_log_of_a_newer_kafka_nothing_is_removed(root: Path) -> None:
    write_metadata_log(root, "x", level=34)
    words = "the metadata log is that of a newer Kafka than 4.4 (metadata.version 34)"
    result = run(root, *NOW, *EXPIRE)
    assert result.exit_code == 1
    assert words in result.stderr
    assert segments(root, "x-0") == [0, 2, 4]
    planned = report_of(root, *NOW, *EXPIRE, "--dry-run")
    assert any(each.startswith(words) for each in planned["warnings"])
    assert statuses(planned)["x-0"] == "planned"


@pytest.mark.parametrize("level", [30, 33])
def test_a_metadata_log_of_kafka_4_3_and_4_4_is_known(root: Path, level: int) -> None:
    write_metadata_log(root, "x", level=level)
    report_of(root, *NOW, *EXPIRE)
    assert segments(root, "x-0") == [4]


# ---- archives


def archive(root: Path, *, days: int) -> Path:
    """A topic that expires after a day, one that does not, and nothing newer than so many days."""
    logs = []
    for name in ("short-0", "short-1", "long-0"):
        log = LogBuilder(name)
        log.batch([(b"k", b"v")], timestamp=SystemClock().now_ms() - days * DAY_MS)
        logs.append(log)
    return write_log_dir(root, logs)


ARCHIVE = ("--defaults", "--set", f"short:retention.ms={DAY_MS}", "--set", "long:retention.ms=-1")


def test_an_archive_is_not_emptied_without_a_terminal_unless_that_is_confirmed(
    tmp_path: Path,
) -> None:
    root = archive(tmp_path / "data", days=8)
    before = tree(root / "short-0")
    for as_json in ((), ("--json",)):
        result = run(root, *ARCHIVE, *as_json)
        assert result.exit_code == 2
        assert "retention leaves no record of 1 topic" in result.output
        assert "short; the newest record is of " in result.output
        assert "8 days before the moment of the cleaning" in result.output
        assert "--trash DIR" in result.output
        assert "--yes" in result.output
        assert tree(root / "short-0") == before
    report = report_of(root, *ARCHIVE, "--yes")
    assert any("retention leaves no record of 1 topic" in each for each in report["warnings"])
    assert segments(root, "short-0") == [1]
    assert segments(root, "long-0") == [0]


def test_an_archive_that_goes_to_a_trash_is_not_asked_about(tmp_path: Path) -> None:
    root = archive(tmp_path / "data", days=8)
    report = report_of(root, *ARCHIVE, "--trash", tmp_path / "trash")
    assert any("retention leaves no record" in each for each in report["warnings"])
    assert segments(root, "short-0") == [1]


def test_a_dry_run_of_an_archive_warns_and_does_not_ask(tmp_path: Path) -> None:
    root = archive(tmp_path / "data", days=8)
    before = tree(root)
    result = run(root, *ARCHIVE, "--dry-run")
    assert result.exit_code == 0
    assert "warning: retention leaves no record of 1 topic" in result.stderr
    assert tree(root) == before


def test_a_directory_in_use_of_late_is_cleaned_as_before(tmp_path: Path) -> None:
    root = archive(tmp_path / "data", days=6)
    assert report_of(root, *ARCHIVE)["warnings"] == []
    assert segments(root, "short-0") == [1]


def test_an_idle_topic_of_a_directory_in_use_is_cleaned_as_before(tmp_path: Path) -> None:
    root = archive(tmp_path / "data", days=30)
    log = LogBuilder("busy-0")
    log.batch([(b"k", b"v")], timestamp=SystemClock().now_ms() - DAY_MS)
    shutil.copytree(write_log_dir(tmp_path / "other", [log]) / "busy-0", root / "busy-0")
    assert report_of(root, *ARCHIVE, "--topic", "short")["warnings"] == []
    assert segments(root, "short-0") == [1]


def test_a_moment_in_the_future_is_asked_about(tmp_path: Path) -> None:
    root = archive(tmp_path / "data", days=0)
    now_ms = SystemClock().now_ms()
    result = run(root, *ARCHIVE, "--now", now_ms + 3 * DAY_MS)
    assert result.exit_code == 2
    assert "days in the future" in result.output
    assert report_of(root, *ARCHIVE, "--now", now_ms + DAY_MS // 2)["warnings"] == []


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, [1]), ("n", 1, [0])])
def test_on_a_terminal_it_asks(tmp_path: Path, answer: str, code: int, left: list[int]) -> None:
    root = archive(tmp_path / "data", days=8)
    ours, theirs = pty.openpty()
    with closing(os.fdopen(ours, "r+b", buffering=0)) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-m", "cordwood", "clean", str(root), *ARCHIVE, "--retention-only"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
        )
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += terminal.read(4096)
        assert b"short; the newest record is of" in said
        assert segments(root, "short-0") == [0]
        terminal.write(f"{answer}\n".encode())
        with suppress(OSError):  # the terminal is closed at the end
            while data := terminal.read(4096):
                said += data
        assert process.wait() == code
        assert (b"nothing was changed" in said) == bool(code)
    assert segments(root, "short-0") == left


@pytest.mark.skipif(bool(may_mount()), reason=may_mount())
def test_trash_that_fills_up_is_reported_with_how_to_go_on_and_the_next_run_does(
    root: Path, tmp_path: Path
) -> None:
    before = tree(root / "x-0")
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        ballast = fill(disk, leave_bytes=8192)
        order = [root, "--defaults", *EXPIRE, *NOW, "--topic", "x", "--trash", disk / "trash"]
        result = run(*order)
        assert result.exit_code == 1
        assert f"x-0: no space: {disk}/trash/x-0/" in result.stderr
        assert "run the same command again: it continues from there" in result.stderr
        ballast.unlink()
        assert run(*order).exit_code == 0
        kept = tree(disk / "trash" / "x-0")
        gone = {name for name in before if name.startswith((f"{0:020d}", f"{2:020d}"))}
        assert {name: before[name] for name in gone} == {
            name: each for name, each in kept.items() if name not in NOT_REMOVED
        }
        assert segments(root, "x-0") == [4]


@pytest.mark.skipif(bool(may_mount()), reason=may_mount())
def test_a_disk_without_a_free_byte_is_cleaned_with_its_temporary_files_on_it(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        root = write_log_dir(disk / "logs", [log_of("orders-0"), log_of("x-0")])
        (disk / "tmp").mkdir()
        fill(disk)
        assert os.statvfs(disk).f_bavail == 0
        command = [sys.executable, "-m", "cordwood", "clean", str(root), "--retention-only"]
        done = subprocess.run(
            [*command, "--defaults", *EXPIRE, *NOW],
            env={**os.environ, "TMPDIR": f"{disk}/tmp", "HOME": str(disk)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "2 cleaned" in done.stdout
        assert segments(root, "orders-0") == segments(root, "x-0") == [4]
        assert os.statvfs(disk).f_bavail > 0


def test_trash_keeps_removed_files_under_their_names(root: Path, tmp_path: Path) -> None:
    before = tree(root / "x-0")
    trash = tmp_path / "deep" / "trash"
    report_of(root, "--defaults", *EXPIRE, *NOW, "--trash", trash, "--topic", "x")
    kept = tree(trash / "x-0")
    assert segments(root, "x-0") == [4]
    gone = {name for name in before if name.startswith((f"{0:020d}", f"{2:020d}"))}
    assert kept.keys() - NOT_REMOVED == gone
    assert {name: kept[name] for name in gone} == {name: before[name] for name in gone}


def test_the_parts_of_what_is_freed_add_up(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    superseded = LogBuilder("y-0")
    superseded.batch([(b"k", b"v" * 2000)])
    superseded.batch([(b"k", b"w")])
    superseded.roll()
    superseded.put(b"k", b"x")
    superseded.write(root / "y-0")
    configs = {
        "x": LogConfig(retention_ms=7 * DAY_MS),
        "y": LogConfig(cleanup_policy=frozenset({"compact"})),
    }
    report = clean_in_process(root, configs, now_ms=NOW_MS, force=True)
    show_report(report, Screen(), Choice(sort="reduction"))
    (summary, *_) = capsys.readouterr().out.splitlines()
    found = re.search(r"freed (\S+) \(compaction (\S+), time (\S+)\)", summary)
    assert found is not None, summary
    freed, *parts = map(parse_bytes, found.groups())
    assert freed == pytest.approx(sum(parts), rel=0.05)


def parse_bytes(text: str) -> float:
    return float(text.rstrip("K")) * (1024 if text.endswith("K") else 1)


def test_retention_only_leaves_compacted_topics_as_they_are(root: Path) -> None:
    report = report_of(
        root, *NOW, "--set", "x:cleanup.policy=compact", "--retention-only", "--force"
    )
    assert statuses(report)["x-0"] == "unchanged"


def test_second_run_changes_nothing(root: Path) -> None:
    report_of(root, "--defaults", *EXPIRE, *NOW)
    before = {name: (v[0], v[2]) for name, v in tree(root).items()}
    report = report_of(root, "--defaults", *EXPIRE, *NOW)
    assert set(statuses(report).values()) == {"unchanged"}
    assert {name: (v[0], v[2]) for name, v in tree(root).items()} == before


# ---- dry run


def test_dry_run_touches_nothing_and_tells_what_would_go(root: Path) -> None:
    before = tree(root)
    report = report_of(
        root, "--defaults", *EXPIRE, *NOW, "--dry-run", "--set", "x:cleanup.policy=compact"
    )
    assert tree(root) == before
    assert statuses(report) == {"orders-0": "planned", "orders-1": "planned", "x-0": "planned"}
    plans = {f"{p['topic']}-{p['partition']}": p for p in report["plan"]}
    expired = plans["orders-0"]["expired"]
    assert [e["base_offset"] for e in expired] == [0, 2]
    assert plans["orders-0"]["bytes_freed_by_retention"] == sum(e["bytes"] for e in expired)
    assert plans["x-0"]["compaction"]["groups"] == [[0, 2]]


def test_dry_run_mends_nothing(root: Path) -> None:
    (root / "x-0" / f"{2:020d}.index").unlink()
    (root / "x-0" / f"{3:020d}.timeindex").write_bytes(b"")
    (root / "x-0" / f"{0:020d}.log.cleaned").write_bytes(b"half")
    (root / "x-0" / f"{1:020d}.snapshot").write_bytes(b"stray")
    before = tree(root)
    report_of(root, "--defaults", *EXPIRE, *NOW, "--dry-run")
    assert tree(root) == before


def test_dry_run_beside_a_broker_touches_nothing_and_says_that_it_is_a_snapshot(
    root: Path,
) -> None:
    with in_use(root) as pid:
        before = tree(root)
        options = [*EXPIRE, *NOW, "--dry-run", "--set", "x:cleanup.policy=compact", "--force"]
        report = report_of(root, "--defaults", *options)
        result = run(root, "--defaults", *options)
        assert tree(root) == before
    assert report["in_use"] == [{"log_dir": str(root), "pid": pid}]
    assert statuses(report) == {"orders-0": "planned", "orders-1": "planned", "x-0": "planned"}
    assert result.exit_code == 0
    assert f"process {pid} uses {root}, a running broker" in result.stderr
    assert "this is a snapshot" in result.stderr


DRY = ["--dry-run", "--compaction-only", "--set", "x:cleanup.policy=compact", "--force"]


def test_dry_run_estimates_what_compaction_would_free(root: Path) -> None:
    before = tree(root)
    report = report_of(root, "--defaults", *DRY, *NOW)
    assert tree(root) == before
    found = {p["topic"]: p["estimate"] for p in report["partitions"]}
    size = sum((root / "x-0" / f"{base:020d}.log").stat().st_size for base in (0, 2))
    # Of two batches alike, the older one goes.
    assert found.pop("x") == {
        "bytes_before": size,
        "bytes_freed": size // 2,
        "bytes_freed_low": size // 2,
        "bytes_freed_high": size // 2,
        "records_before": 4,
        "records_discarded": 2,
        "tombstones_discarded": 0,
        "keys": 2,
        "bytes_read": 2 * size,
        "is_exact": True,
    }
    assert set(found.values()) == {None}
    result = run(root, "--defaults", *DRY, *NOW)
    after = (root / "x-0" / f"{4:020d}.log").stat().st_size + size // 2
    row = next(line for line in result.stdout.splitlines() if line.startswith("x-0"))
    assert row.split() == [
        "x-0",
        "compact",
        "planned",
        "3→3",
        *map(str, (size + size // 2, after)),
        str(size // 2),
        "2",
    ]
    assert f"retention would free 0, compaction {size // 2} (estimated in" in result.stdout


def test_without_an_estimate_no_record_is_read(root: Path) -> None:
    with (root / "x-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(70)
        file.write(b"??")  # no batch that can be read
    report = report_of(root, "--defaults", *DRY, *NOW, "--no-estimate")
    (partition,) = [p for p in report["partitions"] if p["topic"] == "x"]
    assert (partition["estimate"], partition["warnings"]) == (None, [])
    result = run(root, "--defaults", *DRY, *NOW, "--no-estimate")
    assert "retention would free 0; what compaction would free is not counted" in result.stdout
    assert partition["bytes_left"] is None
    row = next(line for line in result.stdout.splitlines() if line.startswith("x-0"))
    size = str(partition["bytes_before"])
    assert row.split() == ["x-0", "compact", "planned", "3→3", size], "nothing is known to go"
    both = ["--dry-run", "--no-estimate", "--set", "x:cleanup.policy=compact", "--force", *EXPIRE]
    expired = report_of(root, "--defaults", *both, *NOW)
    gone = sum(each["bytes_freed_by_retention"] for each in expired["plan"])
    total = run(root, "--defaults", *both, *NOW).stdout.splitlines()[-1]
    assert total.split() == ["total", "9→5", format_bytes(3 * int(size)), f"≥{gone}"]


def test_what_cannot_be_estimated_is_a_warning_and_is_not_counted(root: Path) -> None:
    with (root / "x-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(70)
        file.write(b"??")
    options = [*DRY, *NOW, "--set", "orders:cleanup.policy=compact"]
    result = run(root, "--defaults", *options)
    assert result.exit_code == 0
    words = " ".join(result.stderr.split())
    assert "x-0: warning: what its compaction would free is unknown" in words
    assert "a batch whose CRC does not match" in words
    assert ", not counting 1 that failed (estimated in" in result.stdout


def test_dry_run_of_a_stopped_broker_names_no_process(root: Path) -> None:
    assert report_of(root, "--defaults", *NOW, "--dry-run")["in_use"] == []


def _no_engine() -> AbstractContextManager[Engine]:
    raise AssertionError("a dry run starts no engine")


class _Deletes(Silence):
    """Deletes a partition when the others are about to be read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self, phase: str, total: int) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def test_dry_run_goes_on_where_a_partition_is_deleted_meanwhile(root: Path) -> None:
    resolved = Resolved(config=LogConfig(retention_ms=1), origin={}, warnings=())
    request = CleanRequest(
        log_dirs=(root,), resolve=lambda _: resolved, now_ms=NOW_MS, dry_run=True
    )
    report = clean(request, _no_engine, clock=SystemClock(), listener=_Deletes(root / "orders-0"))
    found = {f"{p.topic}-{p.partition}": (p.status, p.reason) for p in report.partitions}
    assert found["orders-0"] == (Status.LEFT_ALONE, "it was deleted while it was being read")
    assert found["x-0"][0] is Status.PLANNED
    assert not report.failed


# ---- without Java


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


COMPACTED = ["--set", "x:cleanup.policy=compact,delete", "--force"]


@pytest.mark.usefixtures("no_java")
def test_compaction_without_java_is_refused_before_anything_is_removed(root: Path) -> None:
    before = {name: v[2] for name, v in tree(root).items()}
    result = run(root, "--defaults", *EXPIRE, *COMPACTED, *NOW)
    assert result.exit_code == 1
    assert "needs Java 17 or newer" in result.stderr
    assert "--retention-only needs no Java" in result.stderr
    assert {name: v[2] for name, v in tree(root).items()} == before


@pytest.mark.usefixtures("no_java")
def test_java_home_without_java_is_no_java(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(root))
    assert run(root, "--defaults", *COMPACTED, *NOW).exit_code == 1


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("options", [["--retention-only"], ["--dry-run"]])
def test_retention_alone_and_dry_runs_need_no_java(root: Path, options: list[str]) -> None:
    report = report_of(root, "--defaults", *EXPIRE, *COMPACTED, *NOW, *options)
    assert statuses(report)["x-0"] in {"cleaned", "planned"}


@pytest.mark.parametrize("options", [[], ["--master", "sc://localhost:1"]])
def test_compaction_without_its_extra_is_refused_before_anything_is_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    before = {name: v[2] for name, v in tree(root).items()}
    result = run(root, "--defaults", *EXPIRE, *COMPACTED, *NOW, *options)
    assert result.exit_code == 2
    assert result.stderr == (
        "cordwood clean: compaction needs the extra 'spark': pyspark is not installed. Install it: "
        "pip install 'cordwood[spark]'. --retention-only needs no Java and no extra.\n"
    )
    assert {name: v[2] for name, v in tree(root).items()} == before


def test_retention_alone_loads_neither_spark_nor_compiled_code(root: Path) -> None:
    program = (
        "import sys\n"
        "from cordwood.surfaces.cli.main import app\n"
        "try:\n"
        "    app(sys.argv[1:])\n"
        "except SystemExit as stop:\n"
        "    code = stop.code\n"
        "found = [m for m in ('pyspark', 'py4j', 'pandas', 'numpy', 'numba') if m in sys.modules]\n"
        "print(code, found, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, "clean", str(root), "--defaults"),
            *(*EXPIRE, *COMPACTED, *NOW, "--retention-only"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "0 []", done.stderr
    assert segments(root, "x-0") == [4]


# ---- the report


def test_json_is_one_document_with_the_keys_that_scripts_read(root: Path) -> None:
    report = report_of(root, "--defaults", *EXPIRE, *NOW)
    assert {"plan", "partitions", "timing_s"} <= report.keys()
    assert {"session", "capture", "plan", "execute", "commit", "total"} <= report["timing_s"].keys()
    for partition in report["partitions"]:
        assert {
            *("topic", "partition", "status", "reason", "discarded", "cleaner_checkpoint"),
            *("segments_before", "segments_after", "bytes_before", "bytes_after"),
            *("records_before", "records_after"),
        } <= partition.keys()
        assert (partition["segments_before"], partition["segments_after"]) == (3, 1)
        assert partition["bytes_before"] > partition["bytes_after"]
    assert report["now_ms"] == NOW_MS


def test_table_names_what_was_cleaned_and_sums_up(root: Path) -> None:
    result = run(root, "--defaults", *EXPIRE, *NOW)
    assert result.exit_code == 0
    assert "orders-1" in result.stdout
    assert "3→1" in result.stdout.replace(" ", "")
    assert "3 cleaned; freed" in result.stdout


def test_what_a_trash_on_the_same_disk_takes_is_not_said_to_be_freed(root: Path) -> None:
    trash = root.parent / "trash"
    options = ["--defaults", *EXPIRE, *NOW, "--trash", trash]
    planned = run(root, *options, "--dry-run")
    assert "retention would move to the trash" in planned.stdout
    done = run(root, *options)
    assert done.exit_code == 0
    assert f"what was removed is in {trash}, on the same disk" in done.stdout
    assert "freed" not in done.stdout


def test_partition_that_fails_ends_with_1_and_the_others_are_done(root: Path) -> None:
    (root / "orders-1" / f"{0:020d}.txnindex").write_bytes(b"x")
    report = report_of(root, "--defaults", *EXPIRE, *NOW, exit_code=1)
    assert statuses(report) == {"orders-0": "cleaned", "orders-1": "failed", "x-0": "cleaned"}
    (reason,) = [p["reason"] for p in report["partitions"] if p["status"] == "failed"]
    assert f"{0:020d}.txnindex" in reason
    assert segments(root, "orders-1") == [0, 2, 4]


def test_assertions_may_not_be_switched_off(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "cordwood", "clean", str(root)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 1
    assert "does not run under python -O" in done.stderr


def test_a_log_file_says_what_was_removed_and_standard_error_does_not(
    root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    assert run(root, *NOW, *EXPIRE, "--dry-run", "--log-file", file).exit_code == 0
    assert "Deleted segment" not in file.read_text()
    result = run(root, *NOW, *EXPIRE, "--topic", "x", "--log-file", file)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line for line in file.read_text().splitlines() if "Deleted segment" in line]
    assert len(lines) == 2
    for line, base in zip(lines, (0, 2), strict=True):
        assert (
            f" INFO [x-0] Deleted segment {base} of 128 bytes (offsets {base} to {base + 1}) in "
            f"dir {root} due to log retention time 172800000ms breach based on " in line
        )
        assert "; retention.ms=172800000 (log.retention.hours=48, static broker, --set)" in line
        assert line.endswith(" (cordwood.audit)")


@pytest.mark.parametrize("option", ["--log-file", "--audit-log"])
def test_what_was_removed_is_noted_whatever_the_level_is(
    root: Path, tmp_path: Path, option: str
) -> None:
    file = tmp_path / "log"
    quiet = [option, file, "--log-level", "ERROR", "--log-format", "json"]
    assert run(root, *NOW, *EXPIRE, "--retention-only", *quiet).exit_code == 0
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(events) == 6
    first = events[0]
    del first["time"], first["message"]
    assert first == {
        "level": "INFO",
        "logger": "cordwood.audit",
        "event": "segment deleted",
        "partition": "orders-0",
        "log_dir": str(root),
        "base_offset": 0,
        "last_offset": 1,
        "size_bytes": 128,
        "rule": "time",
        "reason": "log retention time 172800000ms breach based on the largest record timestamp in "
        "the segment",
        "at_ms": NOW_MS,
        "setting": {
            "name": "retention.ms",
            "value": "172800000",
            "given": "log.retention.hours=48",
            "level": "static broker",
            "source": "--set",
        },
        "records_max": 2,
        "trash": None,
    }
    assert run(root, *NOW, *EXPIRE, "--retention-only", *quiet).exit_code == 0
    assert len(file.read_text().splitlines()) == 6, "a second run appends what it removes: nothing"


def test_an_audit_log_has_what_was_removed_and_the_log_file_the_rest(
    root: Path, tmp_path: Path
) -> None:
    audit, log = tmp_path / "audit", tmp_path / "log"
    files = ["--audit-log", audit, "--log-file", log]
    assert run(root, *NOW, *EXPIRE, "--retention-only", *files).exit_code == 0
    assert audit.read_text().count("Deleted segment") == 6
    assert "cordwood.audit" not in log.read_text()
    assert "Loading producer state" in log.read_text()


def test_an_audit_log_that_cannot_be_written_is_found_before_anything_is_removed(
    root: Path, tmp_path: Path
) -> None:
    before = tree(root)
    result = run(root, *NOW, *EXPIRE, "--audit-log", tmp_path / "none" / "audit")
    assert result.exit_code == 2
    assert f"--audit-log {tmp_path}/none/audit: cannot be written: No such file" in result.stderr
    assert tree(root) == before


def test_a_full_disk_of_the_audit_log_is_said_once_and_stops_no_cleaning(root: Path) -> None:
    result = run(root, *NOW, *EXPIRE, "--retention-only", "--audit-log", "/dev/full")
    assert result.exit_code == 0
    assert result.stderr.count("lines are lost") == 1
    assert "--audit-log /dev/full: lines are lost: No space left on device" in result.stderr
    assert segments(root, "x-0") == [4]


def test_a_dry_run_and_standard_error_have_no_event(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit"
    assert run(root, *NOW, *EXPIRE, "--dry-run", "--audit-log", file).exit_code == 0
    assert file.read_text() == ""
    result = run(root, *NOW, *EXPIRE, "--retention-only")
    assert (result.exit_code, result.stderr) == (0, "")
