"""The start of Spark for a local master: with an archive of classes and a warm daemon, or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.engine.child_session import members
from cordwood.cleanup.engine.run_directory import RunDirectory
from cordwood.cleanup.engine.spark import archive_maker, class_archive
from cordwood.cleanup.engine.spark.machine import Machine, find_java, local_command
from cordwood.cleanup.engine.spark.runner import RddRunner, Row
from cordwood.model.errors import EngineError
from support.cleaner_bench import until

pytestmark = pytest.mark.spark


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv(class_archive.CACHE_VARIABLE, str(path))
    return path


def parents_of_workers(context: Any) -> set[int]:
    """Runs a task on each of two slots; the processes that have forked the workers."""
    rows = RddRunner(context).run(2, lambda task: [Row(task, os.getppid(), b"")])
    assert {row.task for row in rows} == {0, 1}
    return {row.kind for row in rows}


def run(machine: Machine) -> set[int]:
    try:
        machine.launch()
        return parents_of_workers(machine.context("local[2]"))
    finally:
        machine.stop()


def test_an_archive_is_made_once_and_used(cache: Path) -> None:
    path = archive_maker.make()
    assert path is not None
    assert [each.name for each in cache.iterdir() if each.suffix != ".lock"] == [path.name]
    assert archive_maker.make() is None
    archive = class_archive.find(local_command())
    assert archive is not None
    # A virtual machine that may not start without it starts.
    strict = [flag.replace("auto", "on") for flag in archive.flags]
    subprocess.run([*archive.command.words(strict), "-version"], check=True, capture_output=True)
    with RunDirectory() as directory:
        assert run(Machine(directory.path))


def test_a_damaged_archive_is_passed_over(cache: Path) -> None:
    cache.mkdir()
    path = class_archive.path_in(cache, local_command())
    path.write_bytes(b"\xca\xfe" * 10_000)
    with RunDirectory() as directory:
        assert run(Machine(directory.path))


def test_a_virtual_machine_that_fails_with_its_archive_starts_without_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = find_java()
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        '#!/bin/sh\ncase "$*" in *SharedArchiveFile*) echo "bad archive"; exit 1;; esac\n'
        f'exec {java} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    cache.mkdir()
    path = class_archive.path_in(cache, local_command())
    path.touch()
    with RunDirectory() as directory:
        assert run(Machine(directory.path))
    assert not path.exists()


def test_a_virtual_machine_that_does_not_start_is_reported_with_its_last_words(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'Unrecognized option: -x'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with (
        RunDirectory() as directory,
        pytest.raises(EngineError, match=r"has ended: Unrecognized option: -x"),
    ):
        run(Machine(directory.path))


@pytest.mark.parametrize("name", ["short", "longer than the name of a socket may be" * 3])
def test_workers_are_forked_from_the_daemon_that_started_beside_the_virtual_machine(
    tmp_path: Path, name: str
) -> None:
    directory = tmp_path / name
    directory.mkdir()
    machine = Machine(directory)
    try:
        machine.launch()
        assert machine._daemon is not None
        leader = machine._daemon.pid
        parents = parents_of_workers(machine.context("local[2]"))
        assert parents <= set(members(leader))
    finally:
        machine.stop()
    assert members(leader) == []


def test_without_it_the_virtual_machine_starts_a_daemon_of_its_own() -> None:
    with RunDirectory() as directory:
        machine = Machine(directory.path)
        try:
            machine.launch()
            assert machine._daemon is not None
            for pid in members(machine._daemon.pid):
                os.kill(pid, signal.SIGKILL)
            assert parents_of_workers(machine.context("local[2]"))
        finally:
            machine.stop()


def test_a_warm_daemon_ends_with_the_process_that_has_started_it(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from cordwood.cleanup.engine.spark.machine import Machine\n"
        "machine = Machine(Path(sys.argv[1]))\n"
        "machine.launch()\n"
        "print(machine._daemon.pid, machine._process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, check=False
    )
    leaders = [int(word) for word in done.stdout.split()]
    assert len(leaders) == 2
    until(lambda: not any(members(leader) for leader in leaders))


def test_a_session_that_has_ended_and_the_next_have_virtual_machines_of_their_own() -> None:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415  # seconds

    def process_of(context: SparkContext) -> int:
        assert context._jvm is not None
        return int(context._jvm.java.lang.ProcessHandle.current().pid())

    own = SparkContext("local[1]", conf=SparkConf().set("spark.ui.enabled", "false"))
    first = process_of(own)
    own.stop()
    with RunDirectory() as directory:
        machine = Machine(directory.path)
        try:
            machine.launch()
            assert machine._process is not None
            assert process_of(machine.context("local[1]")) == machine._process.pid != first
        finally:
            machine.stop()
    again = SparkContext("local[1]", conf=SparkConf().set("spark.ui.enabled", "false"))
    try:
        assert process_of(again) == first
    finally:
        again.stop()
