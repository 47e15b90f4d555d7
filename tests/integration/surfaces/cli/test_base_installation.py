"""Functions of a base installation without any extra: the extras' packages are hidden here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.model.extras import extra_of
from cordwood.testing.broker import RunningBroker
from support.base_installation import HIDE
from support.log_builder import LogBuilder, write_log_dir
from support.no_engine import NoEngine

#: Runs a command line with the packages of the extras hidden; a broker is told to stop once it has
#: started.
PROGRAM = f"""{HIDE}
import logging, os, signal

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


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic that is due for retention and for compaction."""
    log = LogBuilder("x-0")
    for _ in range(2):
        log.put(b"key", b"value")
        log.roll()
    log.put(b"key", b"value")
    return write_log_dir(tmp_path_factory.mktemp("light") / "logs", [log])


SETTINGS = ("--defaults", "--set", "x:cleanup.policy=compact")


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "LOGS", *SETTINGS],
        ["advise", "LOGS", *SETTINGS],
        ["whatif", "LOGS", "--defaults", "--set", "x:retention.ms=1000"],
        ["whatif", "LOGS", "--defaults", "--set", "log.retention.hours=1"],
        ["clean", "LOGS", *SETTINGS, "--force", "--dry-run"],
        ["clean", "LOGS", *SETTINGS, "--force", "--dry-run", "--retention-only"],
        ["dump-log", "--print-data-log", "--files", "LOGS/x-0/00000000000000000000.log"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[-1:]),
)
def test_what_the_base_installation_has_to_do(logs: Path, arguments: list[str]) -> None:
    done = run(*(each.replace("LOGS", str(logs)) for each in arguments))
    assert done.returncode == 0, done.stderr
    assert "No module" not in done.stderr


def test_a_change_of_retention_needs_no_engine_although_a_compaction_is_due(tmp_path: Path) -> None:
    log = LogBuilder("x-0")
    for _ in range(2):
        log.put(b"key", b"value")
        log.roll()
    log.put(b"key", b"value")
    root = write_log_dir(tmp_path / "logs", [log])
    properties = tmp_path / "server.properties"
    properties.write_text(
        "log.cleanup.policy=compact,delete\nlog.retention.ms=-1\n"
        "log.cleaner.min.cleanable.ratio=0\n"
    )
    settings = ("--defaults", "--server-properties", str(properties))
    done = run("whatif", str(root), *settings, "--set", "x:retention.ms=9000000000000")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["explain", "LOGS", *SETTINGS, "--topic", "x", "--key", "key"], "native"),
        (["explain", "LOGS", *SETTINGS, "--record", "x:0:0"], "native"),
        (["verify", "LOGS"], "native"),
        (["verify", "--cleaning", "LOGS", "LOGS"], "native"),
        (["erase", "LOGS", "--topic", "x", "--key", "key"], "native"),
        (["clean", "LOGS", *SETTINGS, "--force"], "spark"),
        (["whatif", "LOGS", "--defaults", "--set", "x:cleanup.policy=compact"], "spark"),
    ],
    ids=lambda value: " ".join(value[:1] + value[-1:]) if isinstance(value, list) else value,
)
def test_a_command_that_needs_an_extra_names_it_and_ends_with_2(
    logs: Path, arguments: list[str], extra: str
) -> None:
    done = run(*(each.replace("LOGS", str(logs)) for each in arguments))
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert f"pip install 'cordwood[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_package_that_is_missing_where_nobody_asked_for_it_is_named_by_its_extra() -> None:
    error = extra_of(ModuleNotFoundError("No module", name="numpy.typing"), what="cordwood x")
    assert error is not None
    assert "cordwood x needs the extra 'native'" in str(error)
    assert extra_of(ModuleNotFoundError("No module", name="nowhere"), what="cordwood x") is None
