"""`cordwood cluster up` as a process: its summary, and what is left of it when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.kafka import poll_until
from support.kafka_programs import kafka_home
from support.schemas import require_fit

WAIT_S = 120.0
#: Less than the minute that a controlled shutdown may take.
HURRY_S = 40.0


class Up:
    """The command, in a process group of its own, as a shell starts it."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.out, self.err = directory / "out", directory / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "cordwood", "cluster", "up", "--port", "0"),
                    *("--brokers", "2", *arguments),
                ],
                stdout=out,
                stderr=err,
                process_group=0,
            )

    @property
    def output(self) -> str:
        return self.out.read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        return self.err.read_text(encoding="utf-8")

    def wait_for(self, text: str) -> None:
        """Returns when this is in its output or its errors."""

        def is_there() -> bool:
            found = text in self.output or text in self.errors
            assert found or self.process.poll() is None, self.errors
            return found

        poll_until(is_there, timeout_s=WAIT_S, what=f"{text!r} is printed")

    def nodes(self) -> list[psutil.Process]:
        """The processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, number: int) -> int:
        """Sends a signal to the process group, as a terminal does; the exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(WAIT_S)


@contextmanager
def up(directory: Path, *arguments: str) -> Iterator[Up]:
    command = Up(directory, *arguments)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()


def require_gone(nodes: Sequence[psutil.Process]) -> None:
    poll_until(
        lambda: not any(each.is_running() for each in nodes),
        timeout_s=WAIT_S,
        what="the nodes have ended",
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_nodes_in_order(tmp_path: Path, number: int) -> None:
    directory = tmp_path / "cluster"
    with up(tmp_path, "--dir", str(directory), "--json") as command:
        command.wait_for("bootstrap_servers")
        facts: dict[str, Any] = json.loads(command.output)
        require_fit("cluster up", facts)
        nodes = command.nodes()
        assert {each.pid for each in nodes} == {each["pid"] for each in facts["nodes"]}
        assert [each["health"] for each in facts["nodes"]] == ["ok"] * 3
        assert command.end(number) == 0
        assert not any(each.is_running() for each in nodes)
    lines = command.errors.splitlines()
    assert sorted(lines[-3:-1]) == ["broker 1 has stopped", "broker 2 has stopped"]
    assert lines[-1] == "controller 100 has stopped"
    for broker in (1, 2):
        # A controlled shutdown leaves this mark.
        assert (directory / f"broker-{broker}" / "data" / ".kafka_cleanshutdown").exists()


def test_a_signal_during_the_start_leaves_nothing(tmp_path: Path) -> None:
    with up(tmp_path) as command:
        command.wait_for("controller 100 (Cordwood) serves")
        nodes = command.nodes()
        assert command.end(signal.SIGINT) == 0
        assert not any(each.is_running() for each in nodes)
        assert not command.output


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with up(tmp_path, "--dir", str(directory)) as command:
        command.wait_for("Ctrl-C stops it.")
        nodes = command.nodes()
        # Brokers wait for an answer to their controlled shutdown, and the command for them.
        next(each for each in nodes if "controller-100" in " ".join(each.cmdline())).suspend()
        os.killpg(command.process.pid, signal.SIGINT)
        log = directory / "broker-1" / "server.log"
        poll_until(
            lambda: "Shutting down" in log.read_text(encoding="utf-8"),
            timeout_s=WAIT_S,
            what="a broker begins to stop",
        )
        began_s = time.monotonic()
        os.killpg(command.process.pid, signal.SIGINT)
        command.process.wait(WAIT_S)
        assert time.monotonic() - began_s < HURRY_S
        assert not any(each.is_running() for each in nodes)
        assert command.errors.count("was killed") == 3


def test_no_node_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    with up(tmp_path, "--dir", str(tmp_path / "cluster")) as command:
        command.wait_for("Ctrl-C stops it.")
        nodes = command.nodes()
        assert len(nodes) == 3
        os.kill(command.process.pid, signal.SIGKILL)
        require_gone(nodes)


def test_a_node_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with up(tmp_path, "--json", "--dir", str(tmp_path / "cluster")) as command:
        command.wait_for("bootstrap_servers")
        broker = json.loads(command.output)["nodes"][1]
        os.kill(broker["pid"], signal.SIGKILL)
        command.wait_for(
            f"broker 1 has ended by itself: signal 9 ended it; the end of {broker['log_file']}:"
        )
        command.wait_for("Kafka Server started")
        assert command.end(signal.SIGINT) == 1
        assert "broker 2 has stopped" in command.errors


def test_a_temporary_directory_is_removed_at_the_end(tmp_path: Path) -> None:
    with up(tmp_path, "--json") as command:
        command.wait_for("bootstrap_servers")
        directory = Path(json.loads(command.output)["directory"])
        assert directory.is_dir()
        assert command.end(signal.SIGTERM) == 0
        assert not directory.exists()


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_a_mixed_cluster_has_brokers_of_both_kinds(tmp_path: Path) -> None:
    kafka = ("--with-kafka", "1", "--kafka-home", str(kafka_home()))
    with up(tmp_path, "--json", *kafka) as command:
        command.wait_for("bootstrap_servers")
        nodes = json.loads(command.output)["nodes"]
        assert [each["kind"] for each in nodes] == ["Cordwood", "Cordwood", "Kafka"]
        assert [each["health"] for each in nodes] == ["ok"] * 3
        processes = command.nodes()
        assert command.end(signal.SIGINT) == 0
        assert not any(each.is_running() for each in processes)
        assert "controller 100 has stopped" in command.errors
        assert "killed" not in command.errors
