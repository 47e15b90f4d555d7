"""What a base installation, without any extra, has to do: here the extras' packages are hidden."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.model.extras import PACKAGES, SPARK
from cordwood.testing.broker import RunningBroker
from support.log_builder import LogBuilder, write_log_dir
from support.no_engine import NoEngine

HIDDEN = (*PACKAGES[SPARK], "py4j", "grpc", "google.protobuf", "llvmlite")

#: Runs a command line with the packages of the extras hidden; a broker is told to stop once it has
#: started.
PROGRAM = f"""
import logging, os, signal, sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, *rest):
        return None if name in {HIDDEN} else self.finder.find_spec(name, *rest)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]

class StopWhenStarted(logging.Handler):
    def emit(self, record):
        if "Kafka Server started" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)

logging.getLogger("cordwood.serve").addHandler(StopWhenStarted())
sys.argv[0] = "cordwood"
from cordwood.surfaces.cli.entry import main
main()
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["clean", "--help"]])
def test_commands_run_without_any_extra(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_tool_runs_without_any_extra(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        done = run("topics", *server, "--create", "--topic", "prices")
        assert (done.returncode, done.stderr) == (0, "")
        done = run("topics", *server, "--list")
    assert done.stdout == "prices\n"


def test_a_broker_starts_and_stops_without_any_extra(tmp_path: Path) -> None:
    done = run("serve", "--log-dir", str(tmp_path / "logs"), "--port", "0", "--http-port", "0")
    assert done.returncode == 0, done.stderr
    assert "Shut down completed" in done.stderr
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_a_dry_run_without_compiled_code_says_what_an_estimate_needs(tmp_path: Path) -> None:
    log = LogBuilder("x-0")
    log.put(b"key", b"value")
    log.roll()
    log.put(b"key", b"value")
    root = write_log_dir(tmp_path / "logs", [log])
    done = run(
        "clean",
        str(root),
        "--dry-run",
        "--force",
        "--defaults",
        "--set",
        "x:cleanup.policy=compact",
    )
    assert (done.returncode, done.stderr) == (0, "")
    need = "what compaction would free is not counted: that needs pip install 'cordwood[native]'"
    assert need in done.stdout
