"""`cordwood LOG_DIR`: a summary, what is wrong, and the commands that follow."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
)
from cordwood.insight.outlook import When
from cordwood.storage.filesystem import DirectoryLock
from cordwood.surfaces.cli.main import app
from support.clean import digest_tree
from support.golden import Golden
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.served import ServedBroker

DAY_MS = 86_400_000


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result


def summary(*arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json", code=code).stdout)
    return found


def log_of(name: str, *, records: int = 1) -> LogBuilder:
    """Two segments: one that is nine days old, and one of an hour ago."""
    log = LogBuilder(name)
    log.batch([(b"k", b"v" * 100)] * records, timestamp=NOW_MS - 9 * DAY_MS)
    log.roll()
    log.batch([(b"k", b"w")], timestamp=NOW_MS - 3_600_000)
    return log


@pytest.fixture
def root(tmp_path: Path) -> Path:
    logs = [log_of("large-0", records=50), log_of("small-0"), log_of("small-1")]
    return write_log_dir(tmp_path / "logs", logs)


def known(root: Path) -> tuple[object, ...]:
    return root, "--defaults", "--now", NOW_MS


def problems(answer: dict[str, Any]) -> list[str]:
    return [each["code"] for each in answer["problems"] if each["code"] != "disk-full"]


def test_one_command_says_what_fills_a_disk_what_goes_and_what_to_type(root: Path) -> None:
    before = digest_tree(root)
    answer = summary(*known(root))
    assert digest_tree(root) == before
    (directory,) = answer["log_dirs"]
    usage = shutil.disk_usage(root)
    assert directory["disk_bytes"] == usage.total
    assert 0 <= directory["disk_free_bytes"] <= usage.total
    assert {each["topic"]: each["partitions"] for each in answer["topics"]} == {
        "large": 1,
        "small": 2,
    }
    assert answer["bytes"] == sum(path.stat().st_size for path in root.rglob("*.log"))
    goes = answer["summary"]["now"]
    assert goes["segments"] == 3
    command = answer["next"][1]["command"]
    assert command == f"cordwood clean {root} --defaults --retention-only"
    # The directory is as full as a disk: the second command that is typed cleans it.
    run(*shlex.split(command)[1:], "--now", NOW_MS, "--yes")
    assert answer["bytes"] - summary(*known(root))["bytes"] == goes["bytes"]


def test_what_the_broker_decides_is_assumed_and_its_file_is_asked_for(root: Path) -> None:
    config = root.parent / "config.json"
    config.write_text('{"topics": {"large": {"segment.bytes": "1048576"}}}', encoding="utf-8")
    described = ("--config-file", config, "--now", NOW_MS)
    answer = summary(root, *described)
    assert answer["retention_assumed"] == ["large"]
    warnings = [each["text"] for each in answer["problems"] if each["code"] == "warning"]
    assert [each for each in warnings if "retention.ms of large is taken for Kafka's" in each]
    asked = "--server-properties /etc/kafka/server.properties"
    assert all(asked in each["command"] for each in answer["next"])
    for command in (["explain"], ["whatif", "--set", "large:retention.ms=1"]):
        shown = run(*command, root, *described)
        assert "retention.ms of large is taken" in " ".join(shown.stderr.split())
    properties = root.parent / "server.properties"
    properties.write_text("log.retention.hours=720\n", encoding="utf-8")
    answer = summary(root, *described, "--server-properties", properties)
    assert answer["retention_assumed"] == []
    assert "warning" not in problems(answer)


def test_the_sizes_add_up(golden_a: Golden) -> None:
    answer = summary(golden_a.root / "before", "--now", golden_a.cleaned_at_ms, "--no-estimate")
    assert answer["bytes"] == sum(each["bytes"] for each in answer["topics"])
    for each in answer["topics"]:
        parts = sum(each[when] for when in When) + each["bytes_not_read"]
        assert each["bytes"] == parts, each["topic"]
    for when in When:
        assert answer["summary"][when]["bytes"] == sum(each[when] for each in answer["topics"])


def test_what_compaction_would_free_is_that_of_a_dry_run(golden_a: Golden) -> None:
    where = (golden_a.root / "before", "--now", golden_a.cleaned_at_ms)
    found = summary(*where)["compaction"]
    report = summary("clean", *where, "--dry-run")
    estimates = [each["estimate"] for each in report["partitions"] if each["estimate"]]
    assert found["bytes_freed"] == sum(each["bytes_freed"] for each in estimates) > 0
    assert found["partitions"] >= len(estimates)
    quick = summary(*where, "--no-estimate")["compaction"]
    assert quick["bytes_freed"] is None
    assert "clean --dry-run" in quick["why_not"]


def test_three_commands_agree_on_what_goes_now_and_within_a_day(golden_a: Golden) -> None:
    where = (golden_a.root / "before", "--now", golden_a.cleaned_at_ms)
    found = summary(*where, "--no-estimate")["summary"]
    explained = summary("explain", *where)["summary"]
    planned = summary("clean", *where, "--dry-run", "--no-estimate")
    assert found == explained
    assert planned["bytes_next_24h"] == found["next_24h"]["bytes"] > 0
    freed = sum(each["bytes_freed_by_retention"] for each in planned["plan"])
    assert freed == found["now"]["bytes"] > 0


def test_the_commands_that_follow_take_the_same_settings_and_run(root: Path) -> None:
    config = root.parent / "our config.json"
    config.write_text('{"topics": {"large": {"retention.ms": "1000"}}}')
    answer = summary(root, "--config-file", config, "--now", NOW_MS)
    assert len(answer["next"]) == 3
    for each in answer["next"]:
        words = shlex.split(each["command"])
        assert words[0] == "cordwood"
        assert str(root) in words
        assert words[words.index("--config-file") + 1] == str(config)
        run(*words[1:], "--now", NOW_MS, *(["--yes"] if words[1] == "clean" else []))


def test_what_is_wrong_is_said(root: Path) -> None:
    assert problems(summary(*known(root))) == []
    (root / CLEAN_SHUTDOWN).unlink()
    (root / "small-1" / LEADER_EPOCH_CHECKPOINT).write_text("nonsense")
    answer = summary(*known(root), code=1)
    assert problems(answer) == ["unclean-stop", "damaged"]
    assert "'nonsense' in a checkpoint" in answer["problems"][-1]["text"]
    assert {each["topic"] for each in answer["topics"]} == {"large", "small"}


def test_logs_that_no_cleaner_has_cleaned_for_days_though_they_were_due_are_named(
    tmp_path: Path,
) -> None:
    log = LogBuilder("users-0", modified_ms=NOW_MS - 9 * DAY_MS)
    for number in range(10):
        at_ms = NOW_MS - (9 - number) * DAY_MS
        if number:
            log.roll(modified_ms=at_ms)
        log.batch([(b"k%d" % n, b"v") for n in range(20)], timestamp=at_ms)
    log.cleaner_checkpoint = 40
    root = write_log_dir(tmp_path / "logs", [log])
    cleaned_ms = NOW_MS - 8 * DAY_MS
    os.utime(root / CLEANER_OFFSET_CHECKPOINT, ns=(cleaned_ms * 1_000_000,) * 2)
    compacted = ("--set", "users:cleanup.policy=compact")
    answer = summary(*known(root), *compacted)
    (overdue,) = answer["overdue_cleanings"]
    assert (overdue["topic"], overdue["cleaned_ms"]) == ("users", cleaned_ms)
    assert problems(answer) == ["not-cleaned"]
    said = " ".join(run(*known(root), *compacted).stdout.split())
    assert "not finished a cleaning of users-0 since 2023-11-06 22:13:20Z, though" in said
    off = ("--set", "log.cleaner.enable=false")
    assert problems(summary(*known(root), *compacted, *off)) == []
    os.utime(root / CLEANER_OFFSET_CHECKPOINT)
    assert problems(summary(*known(root), *compacted)) == []


def test_a_directory_in_use_is_looked_at_and_not_to_be_cleaned(root: Path) -> None:
    program = (
        "import sys, pathlib; from cordwood.storage.filesystem import DirectoryLock;"
        "lock = DirectoryLock(pathlib.Path(sys.argv[1])); print('held', flush=True);"
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert DirectoryLock.holder(root) == holder.pid
        answer = summary(*known(root))
    finally:
        holder.communicate()
    assert problems(answer) == ["in-use"]
    assert answer["log_dirs"][0]["in_use_by"] == holder.pid
    assert not any("--retention-only" in each["command"] for each in answer["next"])


def test_a_running_broker_says_how_its_cleaner_is(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "logs", {"log.cleaner.enable": "false"}) as served:
        answer = summary(served.log_dir)
        assert problems(answer) == ["in-use", "cleaner-off"]
        assert answer["log_dirs"][0]["in_use_by"] == served.pid
        assert "log.cleaner.enable=false" in run(served.log_dir).stdout


def test_topics_without_settings_have_a_size_and_are_named(root: Path) -> None:
    answer = summary(root, "--now", NOW_MS)
    assert problems(answer) == ["no-settings"]
    assert answer["bytes"] == sum(path.stat().st_size for path in root.rglob("*.log"))
    assert answer["summary"]["bytes"] == 0
    assert "unknown" in run(root, "--now", NOW_MS).stdout


def test_a_directory_that_cannot_be_read_is_an_error_and_others_are_shown(
    root: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, says in ((empty, "not an entry of a Kafka broker's log.dirs"), (tmp_path / "no", "")):
        result = run(path, code=2)
        assert result.stderr.startswith(f"cordwood LOG_DIR: {path}: ")
        assert says in result.stderr
    answer = summary(*known(root), empty, code=1)
    assert problems(answer) == ["unreadable"]
    assert [each["log_dir"] for each in answer["log_dirs"]] == [str(root)]


def test_a_name_of_a_command_is_no_directory(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(root, tmp_path / "clean")
    monkeypatch.chdir(tmp_path)
    assert "Missing argument" in run("clean", code=2).output
    assert "small" in run("./clean", "--defaults").stdout
    assert "No such command 'cleen'" in run("cleen", code=2).output


COUNTING = """
import sys
opened = []
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(sys.argv[1]):
        opened.append(arguments[0])
sys.addaudithook(note)
from cordwood.surfaces.cli.main import app
try:
    app([sys.argv[1], "--defaults", "--json"])
except SystemExit:
    pass
print(len(opened), sum(each.endswith(".log") for each in opened), file=sys.stderr)
print(*sorted(name for name in sys.modules if name.count(".") == 1), file=sys.stderr)
"""


def test_few_files_of_a_partition_are_opened_and_no_client_is_loaded(tmp_path: Path) -> None:
    count = 100
    root = write_log_dir(tmp_path / "logs", [LogBuilder(f"t-{n}") for n in range(count)])
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, str(root)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert json.loads(done.stdout)["partitions"] == count
    counts, modules = done.stderr.splitlines()
    opened, logs = map(int, counts.split())
    assert opened <= 6 * count + 20
    assert logs <= 2 * count
    # What talks to a broker, or is one, takes as long to load as a hundred partitions.
    assert not {"cordwood.client", "cordwood.broker", "cordwood.coordinator"} & set(modules.split())
