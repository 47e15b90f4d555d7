"""Spark elsewhere: its workers and the paths are checked before anything is changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import SparkContext

from cordwood.cleanup.engine.spark import session
from cordwood.cleanup.engine.spark.engine import SparkEngine
from cordwood.cleanup.engine.spark.machine import Machine
from cordwood.cleanup.engine.spark.session import spark_runner
from cordwood.model.errors import EngineError
from support.kafka import poll_until
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.requirements import require_own_network
from support.spark_servers import Machine as Network
from support.spark_servers import standalone_cluster, two_machines

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000
_SECONDS_MAX = 300


def log_dir(root: Path) -> Path:
    """A log that loses a segment by time and is compacted then."""
    log = LogBuilder("t-0")
    for day in range(6):
        if day:
            log.roll()
        at = NOW_MS - (6 - day) * DAY_MS
        log.batch([(b"a", b"%d" % day), (b"b%d" % day, b"w")], timestamp=at)
    return write_log_dir(root, [log])


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def clean(
    root: str, master: str, *options: str, cwd: Path, machine: Network | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    enter = () if machine is None else machine.enter
    command = [*enter, sys.executable, "-m", "cordwood", "clean", root, "--master", master]
    settings = ["--set", "t:cleanup.policy=compact,delete", "--set", f"t:retention.ms={4 * DAY_MS}"]
    return subprocess.run(
        [*command, *settings, "--force", "--defaults", "--now", str(NOW_MS), *options],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS_MAX,
        env=os.environ | {"PYTHONWARNINGS": "ignore"} | more,
    )


def test_a_relative_log_directory_is_cleaned_by_workers_with_other_working_directories(
    tmp_path: Path,
) -> None:
    log_dir(tmp_path / "far")
    here = tmp_path / "here"
    here.mkdir()
    shutil.copytree(tmp_path / "far", here / "data")
    (tmp_path / "spark").mkdir()
    with standalone_cluster(tmp_path / "spark") as address:
        done = clean("data", address, cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "1 cleaned" in done.stdout
    local = clean("far", "local[1]", cwd=tmp_path)
    assert local.returncode == 0, local.stderr
    assert local.stderr == ""
    assert contents(here / "data") == contents(tmp_path / "far")


def test_workers_of_another_machine_reach_the_driver_and_settings_of_spark_count(
    tmp_path: Path,
) -> None:
    """The networks of the two have nothing in common but a cable: no loopback interface."""
    require_own_network()
    root = log_dir(tmp_path / "data")
    local = shutil.copytree(root, tmp_path / "local")
    for name in ("spark", "conf"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.default.parallelism 3\n")
    with (
        two_machines() as (here, there),
        standalone_cluster(tmp_path / "spark", workers=1, machine=there) as address,
    ):
        assert address.startswith(f"spark://{there.address}:")
        done = clean(
            str(root),
            address,
            "--json",
            cwd=tmp_path,
            machine=here,
            SPARK_LOCAL_IP=here.address,
            SPARK_CONF_DIR=str(tmp_path / "conf"),
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["engine"]["slots"] == 3
    done = clean(str(local), "local[1]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert contents(root) == contents(local)


def test_a_cluster_without_workers_is_named_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_WORKERS_SECONDS_MAX", 1.0)
    with (
        standalone_cluster(tmp_path, workers=0) as address,
        pytest.raises(EngineError, match=f"{address} has given no worker in 1 s"),
        spark_runner(address),
    ):
        pass


def test_workers_without_the_python_of_the_driver_are_told_what_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    says = 'run no task: .*"/nowhere/python".* Each needs /nowhere/python, with cordwood'
    environment = dict(os.environ)
    with standalone_cluster(tmp_path, workers=1) as address, spark_runner(address) as runner:
        with pytest.raises(EngineError, match=says):
            SparkEngine(runner, slots=1).require_visible([tmp_path])
        assert not list(tmp_path.glob("cordwood.seen*"))
    of_pyspark = {"SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
    left = {name: value for name, value in os.environ.items() if name not in of_pyspark}
    assert left == {name: environment[name] for name in environment.keys() - of_pyspark}


def test_what_is_no_master_is_named_in_one_line(tmp_path: Path) -> None:
    """Spark gives up, and stops its virtual machine, which then has no text of the error."""
    root = log_dir(tmp_path / "data")
    before = contents(root)
    done = clean("data", "yarn", cwd=tmp_path)
    assert done.returncode == 1
    assert contents(root) == before
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("cordwood clean: Spark did not start on yarn: ")
    assert done.stdout == ""


def test_a_virtual_machine_that_ends_while_objects_are_released_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path)
    try:
        machine.launch()
        gateway = machine.context("local[1]")._gateway
        with ThreadPoolExecutor(1) as pool:
            # So that its thread has a connection.
            pool.submit(gateway.jvm.java.lang.System.nanoTime).result()
            thread = pool.submit(threading.get_ident).result()
            os.kill(gateway.proc.pid, signal.SIGSTOP)
            os.waitpid(gateway.proc.pid, os.WUNTRACED)
            # As Py4J's thread does that releases objects.
            release = pool.submit(gateway._gateway_client.garbage_collect_object, "o0", False)

            def is_waiting() -> bool:
                return sys._current_frames()[thread].f_code.co_name == "readinto"

            poll_until(is_waiting, timeout_s=60, what="the answer of a virtual machine is awaited")
            os.kill(gateway.proc.pid, signal.SIGKILL)
            release.result()
    finally:
        machine.stop()
        # Its virtual machine is gone, and with it the context that no other may stand beside.
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
    assert caplog.records == []
    assert "Traceback" not in capfd.readouterr().err
