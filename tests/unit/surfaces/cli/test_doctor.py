"""`cordwood doctor` on the machine that runs the tests, and how its lines look."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cordwood.storage.filesystem import DirectoryLock
from cordwood.surfaces.cli.doctor import lines
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.doctor import gather
from cordwood.surfaces.doctor.checks import Finding, Verdict
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.served import ServedBroker


def findings(*arguments: object, code: int | None = None) -> dict[str, dict[str, str]]:
    result = CliRunner().invoke(app, ["doctor", *map(str, arguments), "--json"])
    document: dict[str, Any] = json.loads(result.stdout)
    has_problem = any(each["verdict"] == "problem" for each in document["findings"])
    assert result.exit_code == int(has_problem) == int(not document["ok"])
    assert code is None or result.exit_code == code, result.stdout
    return {each["subject"]: each for each in document["findings"]}


def test_this_machine_is_examined_and_the_exit_code_says_whether_something_hinders() -> None:
    found = findings()
    assert {"Java", "memory", "processors", "open files", "clock", "temporary files"} <= set(found)
    assert found["Cordwood"]["verdict"] == "ok"
    assert f"Python {sys.version.split()[0]}" in found["Cordwood"]["found"]
    assert "log directory" not in found


def test_a_stopped_directory_is_examined_without_taking_its_lock(tmp_path: Path) -> None:
    log = LogBuilder("orders-0")
    log.batch([(b"a", b"v")], timestamp=NOW_MS)
    root = write_log_dir(tmp_path / "logs", [log])
    before = sorted(os.listdir(root))
    found = findings(root)
    assert sorted(os.listdir(root)) == before
    assert found["log directory"]["verdict"] == "ok"
    assert "1 partition, 1 segment" in found["log directory"]["found"]
    assert found["lock"]["found"] == "free: no broker runs on it"
    assert found["last stop"]["found"] == "clean"
    assert found["timestamps"]["verdict"] == "ok"
    assert "free" in found["disk"]["found"]
    (root / ".kafka_cleanshutdown").unlink()
    assert findings(root)["last stop"]["verdict"] == "warning"


def test_a_running_broker_is_recognized_by_its_directory(tmp_path: Path) -> None:
    # In a process of its own: a process does not see its own locks as held.
    with ServedBroker(tmp_path / "logs") as served:
        found = findings(served.log_dir)
        assert found["lock"]["verdict"] == "ok"
        assert found["lock"]["found"].startswith("held by a running broker, ")
        assert str(served.pid) in found["lock"]["found"]
    assert found["last stop"]["found"] == "the broker runs"
    assert found["meta.properties"]["found"].startswith("node ")
    assert found["topic settings"]["found"] == "of 0 topics, from the metadata log"


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_what_is_no_log_directory_hinders(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    found = findings(tmp_path / name, code=1)
    assert found["log directory"]["verdict"] == "problem"
    assert str(tmp_path / name) in found["log directory"]["found"]


@pytest.mark.parametrize("text", ["version=9\n", "garbage", "version=0\nbroker.id=1\n"])
def test_damaged_meta_properties_hinder_and_what_is_not_known_is_not_judged(
    tmp_path: Path, text: str
) -> None:
    log = LogBuilder("orders-0")
    log.batch([(b"a", b"v")], timestamp=NOW_MS)
    root = write_log_dir(tmp_path / "logs", [log])
    (root / ".kafka_cleanshutdown").unlink()
    (root / "meta.properties").write_text(text)
    with held(root) as holder:
        found = findings(root, code=1)
    assert found["meta.properties"]["verdict"] == "problem"
    assert found["lock"]["verdict"] == "warning"
    assert f"process {holder}" in found["lock"]["found"]
    found = findings(root, code=1)
    assert found["lock"]["found"] == "free: no broker runs on it"
    assert found.get("last stop", {"verdict": "warning"})["verdict"] == "warning"
    is_read = not text.startswith("version=9")
    assert ("timestamps" in found) == is_read == ("1 segment, " in found["log directory"]["found"])


def test_the_lock_of_a_partition_is_that_of_its_log_directory(tmp_path: Path) -> None:
    root = write_log_dir(tmp_path / "logs", [LogBuilder("orders-0"), LogBuilder("orders-1")])
    with held(root) as holder:
        found = findings(root / "orders-0")
    assert f"process {holder}" in found["lock"]["found"]
    assert found["meta.properties"]["found"].startswith("node ")
    assert "1 partition, 1 segment" in found["log directory"]["found"]


@contextmanager
def held(root: Path) -> Iterator[int]:
    """Has this process hold the lock of a directory."""
    lock = DirectoryLock(root)
    try:
        yield os.getpid()
    finally:
        lock.release()


def test_segments_with_records_of_the_future_are_found(tmp_path: Path) -> None:
    log = LogBuilder("orders-0")
    log.batch([(b"a", b"v")], timestamp=NOW_MS + 5000)
    log.roll()
    log.batch([(b"a", b"v")], timestamp=NOW_MS - 5000)
    root = write_log_dir(tmp_path / "logs", [log])
    (root / "orders-0" / "backup.timeindex").write_bytes(b"not an index")
    assert gather.log_directory(root, now_ms=NOW_MS).future == (("orders-0 at 0", 5000),)


def test_an_index_that_a_running_kafka_has_at_full_size_is_read_up_to_its_zeros(
    tmp_path: Path,
) -> None:
    log = LogBuilder("orders-0")
    log.batch([(b"a", b"v")], timestamp=NOW_MS + 5000)
    root = write_log_dir(tmp_path / "logs", [log])
    (index,) = (root / "orders-0").glob("*.timeindex")
    for entries in (1, 2, 1000):
        with index.open("ab") as file:
            file.write(bytes(12 * entries))
        assert gather.log_directory(root, now_ms=NOW_MS).future == (("orders-0 at 0", 5000),)
    index.write_bytes(bytes(12 * 1000))
    assert gather.log_directory(root, now_ms=NOW_MS).future == ()


def test_a_port_in_use_names_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        used = gather.port(number, "a test")
        assert not used.is_free
        assert used.user.endswith(f"({os.getpid()})")
    assert gather.port(number, "a test").is_free


def test_no_line_is_wider_than_the_terminal_and_a_remedy_stands_below() -> None:
    found = [
        Finding(verdict=Verdict.OK, subject="Java", found="17 " * 40),
        Finding(verdict=Verdict.PROBLEM, subject="disk", found="full", remedy="free some " * 9),
    ]
    shown = lines(found, 80)
    assert max(map(len, shown)) <= 80
    assert shown[0].startswith("ok       Java             17 17")
    assert any(line.startswith(" " * 23 + "-> free some") for line in shown)
    assert shown[-1] == "1 ok, 1 problem"
