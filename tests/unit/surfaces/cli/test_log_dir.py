"""`cordwood LOG_DIR`: a summary, what is wrong, and the commands that follow."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cordwood.cleanup.schedule.cleaner_answer import CleanerStatus
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RUNTIME_FILE,
)
from cordwood.model.documents import from_document, to_document
from cordwood.model.errors import CorruptError
from cordwood.queries.explain.answer import When
from cordwood.queries.identity import BROKER, CONTROLLER, NodeIdentity
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
    assert command == f"cordwood clean {root} --now {NOW_MS} --defaults --retention-only"
    # The directory is as full as a disk: the second command that is typed cleans it.
    run(*shlex.split(command)[1:], "--yes")
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
        assert words[words.index("--now") + 1] == str(NOW_MS)
        run(*words[1:], *(["--yes"] if words[1] == "clean" else []))


def test_the_commands_that_follow_are_about_the_partitions_that_were_given(root: Path) -> None:
    given = [root / "small-0", root / "large-0"]
    answer = summary(*given, *known(root)[1:])
    for each in answer["next"]:
        words = shlex.split(each["command"])
        assert [word for word in words if word.startswith(str(root))] == list(map(str, given))
    sizes = {each["topic"]: each["bytes"] for each in summary(*known(root))["topics"]}
    run(*shlex.split(answer["next"][1]["command"])[1:], "--yes")
    after = summary(*known(root))
    assert sum(sizes.values()) - after["bytes"] == answer["summary"]["now"]["bytes"] > 0
    assert after["summary"]["now"]["segments"] == 1  # of small-1


def test_what_is_changed_is_no_part_of_a_question_and_expires_by_its_policy(root: Path) -> None:
    compacted = ("--set", "large:cleanup.policy=compact")
    commands = [each["command"] for each in summary(*known(root), *compacted)["next"]]
    assert [command.split()[1] for command in commands] == ["clean", "clean", "explain"]
    assert all(" --set large:cleanup.policy=compact " in command for command in commands)
    # Nothing goes and nothing is due: the third one is a question.
    kept = ("--set", "small:retention.ms=-1", "--set", "large:min.cleanable.dirty.ratio=1")
    commands = [each["command"] for each in summary(*known(root), *compacted, *kept)["next"]]
    asked = shlex.split(commands[-1])
    assert asked[1] == "whatif"
    assert [asked[at + 1] for at, word in enumerate(asked) if word == "--set"] == [
        "small:retention.ms=1d"
    ]


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


class _Stranger(BaseHTTPRequestHandler):
    """Answers everything with an empty JSON document."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Keeps standard error free."""


@contextmanager
def left_by_a_lost_broker(root: Path, *, role: str = BROKER) -> Iterator[None]:
    """A directory in use whose last broker gave an address at which something else answers."""
    server = HTTPServer(("127.0.0.1", 0), _Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    left = NodeIdentity.here(
        node_id=1,
        cluster_id="c",
        log_dirs=[root],
        http_url=f"http://127.0.0.1:{server.server_port}",
        role=role,
    )
    (root / RUNTIME_FILE).write_text(json.dumps(to_document(left)))
    lock = DirectoryLock(root)
    try:
        yield
    finally:
        lock.release()
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_answers_in_the_place_of_a_lost_broker_is_not_taken_for_it(root: Path) -> None:
    with left_by_a_lost_broker(root):
        answer = summary(*known(root))
    assert problems(answer) == ["in-use", "no-answer"]
    assert "does not answer" in answer["problems"][-1]["text"]
    with left_by_a_lost_broker(root, role=CONTROLLER):
        assert problems(summary(*known(root))) == ["in-use"]


def test_an_answer_that_is_none_of_a_cleaner_is_an_error() -> None:
    answers: list[Any] = [{}, [], {"enabled": True, "threads": None}]
    for answer in answers:
        with pytest.raises(CorruptError, match="not an answer of this version"):
            from_document(CleanerStatus, answer)


def test_a_partition_that_is_left_alone_is_looked_at_alone(root: Path) -> None:
    answer = summary(root / "small-1", "--now", NOW_MS)
    size = sum(path.stat().st_size for path in (root / "small-1").glob("*.log"))
    assert (answer["partitions"], answer["bytes"]) == (1, size)
    assert [each["topic"] for each in answer["topics"]] == ["small"]


def compacted_dir(
    tmp_path: Path, *names: str, policy: str = "compact"
) -> tuple[Path, tuple[object, ...]]:
    """Logs of which a compaction is due, and the options for it."""
    root = write_log_dir(tmp_path / "logs", [log_of(name, records=50) for name in names])
    options = (root, "--defaults", "--now", NOW_MS, "--set", f"log.cleanup.policy={policy}")
    return root, (*options, "--set", "log.retention.ms=-1")


def test_a_log_that_cannot_be_read_to_estimate_it_is_named_and_not_to_be_compacted(
    tmp_path: Path,
) -> None:
    root, options = compacted_dir(tmp_path, "bad-0", "good-0")
    assert summary(*options)["compaction"]["is_exact"]
    segment = min((root / "bad-0").glob("*.log"))
    segment.write_bytes(b"?" * segment.stat().st_size)
    answer = summary(*options, code=1)
    (failed,) = answer["compaction"]["failed"]
    assert (failed["topic"], failed["partition"]) == ("bad", 0)
    assert problems(answer) == ["not-estimated"]
    assert answer["problems"][-1]["text"].startswith("bad-0: what its compaction would free is")
    assert not answer["compaction"]["is_exact"]
    assert answer["compaction"]["bytes_freed"] > 0
    alone = summary(root / "bad-0", *options[1:], code=1)
    assert alone["compaction"]["bytes_freed"] is None
    assert [each["command"].split()[1] for each in alone["next"]] == ["clean", "explain"]
    assert (
        "is not counted: no log that is due can be read"
        in run(root / "bad-0", *options[1:], code=1).stdout
    )


def test_a_log_of_which_retention_leaves_nothing_is_not_due_for_compaction(tmp_path: Path) -> None:
    _, options = compacted_dir(tmp_path, "gone-0", "kept-0", policy="compact,delete")
    options += ("--set", "gone:retention.ms=1")
    answer = summary(*options, "--no-estimate")
    due = {each["topic"]: each["compactions_due"] for each in answer["topics"]}
    assert due == {"gone": 0, "kept": 1}
    plan = summary("clean", *options, "--dry-run", "--no-estimate")["plan"]
    read = sum(each.get("compaction", {}).get("bytes_to_read", 0) for each in plan)
    assert answer["compaction"]["bytes_to_read"] == read > 0


def test_topics_without_settings_have_a_size_and_are_named(root: Path) -> None:
    answer = summary(root, "--now", NOW_MS)
    assert problems(answer) == ["no-settings"]
    assert answer["bytes"] == sum(path.stat().st_size for path in root.rglob("*.log"))
    assert answer["summary"]["bytes"] == 0
    shown = run(root, "--now", NOW_MS).stdout
    assert "unknown" in shown
    assert "What goes is not known: no log was looked into." in shown
    (total,) = [line.split() for line in shown.splitlines() if line.startswith("total  ")]
    assert total[-3:] == ["0", "0", total[2]], "nothing is known to stay: it is not read"
    assert "not read" not in run(*known(root)).stdout


def test_a_directory_that_cannot_be_read_is_an_error_and_others_are_shown(
    root: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, says in ((empty, "not an entry of a Kafka broker's log.dirs"), (tmp_path / "no", "")):
        result = run(path, code=2)
        assert result.stderr.startswith(f"cordwood: {path}: ")
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
    assert "No such command 'xxxx" in run("x" * 300, code=2).output


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
