"""Every snippet of README.md is run as it is printed; and what it says of installations holds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.downloads import DOWNLOAD_ATTEMPTS
from support.page_logs import make_log, write_properties
from support.sessions import BLOCK, commands, require_printed, run_session

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def blocks(language: str, page: str = "README.md") -> list[str]:
    """The blocks of a page in a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [code for found, code in BLOCK.findall(text) if found == language]


def block(language: str, containing: str, page: str = "README.md") -> str:
    """The one block that contains a text."""
    (found,) = [code for code in blocks(language, page) if containing in code]
    return found


# ---- which test runs which block


def test_every_block_is_run_by_a_test_here() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {language for language, _ in BLOCK.findall(text)} == RUN_HERE.keys()
    for language, marks in RUN_HERE.items():
        for code in blocks(language):
            known = [mark for mark in marks if mark in code]
            assert len(known) == 1, f"no test, or several, run this block of README.md:\n{code}"


INSTALL, LOOK, CLEAN = "$ pip install", "$ cordwood explain", "$ cordwood clean"
FIXTURE, LOG = "(cordwood_broker)", "LogManager("
RUN_HERE = {"console": (INSTALL, LOOK, CLEAN), "python": (FIXTURE,)}


def test_it_is_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= WORDS_MAX


WORDS_MAX = 900


# ---- Python


def run_python(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    code = code.replace("/tmp/", f"{directory}/")
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )


def test_the_log_in_python_runs(tmp_path: Path) -> None:
    done = run_python(block("python", LOG, "docs/log-in-python.md"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "10.50" in done.stdout
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_the_test_with_the_fixture_passes(tmp_path: Path) -> None:
    (tmp_path / "test_prices.py").write_text(block("python", FIXTURE), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def _unavailable(reason: str) -> None:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


# ---- cleaning


def _print_of(mark: str, directory: Path) -> list[str]:
    """Output of the commands of a block, typed on the directory of a broker that has stopped.

    There is no Java, as where only the base is installed.
    """
    make_log(directory / "var" / "lib" / "kafka" / "data", clicks_kept_days=5)
    write_properties(directory)
    path = f"{BIN}:{os.environ['PATH']}"
    return run_session(commands(block("console", mark)), directory, PATH=path, JAVA_HOME="/none")


def test_the_commands_that_look_say_why_data_is_still_there(tmp_path: Path) -> None:
    summary, explained, changed = _print_of(LOOK, tmp_path)
    assert "disk of" in summary
    assert "cordwood clean /var/lib/kafka/data --retention-only" in summary
    assert "clicks-0" in explained
    assert "orders-0" not in explained
    assert "goes now" in explained
    assert "clicks" in changed


def test_the_commands_for_a_full_disk_free_what_they_have_said(tmp_path: Path) -> None:
    planned, cleaned = _print_of(CLEAN, tmp_path)
    said = re.search(r"retention would free (\S+)", planned)
    done = re.search(r"freed (\S+)", cleaned)
    assert said is not None, planned
    assert done is not None, cleaned
    assert said[1] == done[1] != "0"


@pytest.mark.spark
def test_the_demonstration_prints_what_is_shown_and_proves_the_result() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "demo.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # as on a terminal: what is left alone is reported there
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    directory = re.search(r"real Apache Kafka: (\S+)", done.stdout)
    assert directory is not None
    printed = done.stdout.replace(directory[1], "/tmp/kafka-logs")  # as it is shown
    (command,) = commands(block("console", "$ make run", "examples/README.md"))
    require_printed(command, printed)
    assert "Plan" in done.stdout


# ---- installation


def test_the_wheel_holds_the_package_and_of_the_tests_only_what_users_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"cordwood"}
    found = {name for name in names if name.startswith("cordwood/testing/")}
    assert found == {f"cordwood/testing/{name}.py" for name in FOR_USERS}


FOR_USERS = (
    *("__init__", "broker", "callers_line", "clock_span", "cluster", "in_process_engine"),
    *("kafka_container", "manual_clock", "pytest_plugin", "reference_cleaner", "reference_rules"),
    *("setting_text", "simulated_disk", "simulated_filesystem", "simulated_tree", "switchboard"),
)


def test_a_base_installation_serves_and_compacts_in_a_test(
    install: Callable[[str], Path], constraints: Path, tmp_path: Path
) -> None:
    python = install("")
    (tmp_path / "test_light.py").write_text(LIGHT_TEST, encoding="utf-8")
    site = site_packages(python)
    assert megabytes(site) < 250
    assert not [name for name in HEAVY if (site / name).exists()]
    add(python, "pytest", "confluent-kafka", constraints=constraints)
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_light.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout


HEAVY = ("numpy", "numba", "llvmlite", "pandas", "pyarrow", "pyspark", "zstandard")
LIGHT_TEST = """
import subprocess, sys
from pathlib import Path
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cordwood.testing.simulated_filesystem import SimulatedFileSystem


def test_the_simulated_file_system_needs_no_extra():
    assert SimulatedFileSystem().create(Path("/file")).size() == 0


def test_light(cordwood_broker):
    servers = {"bootstrap.servers": cordwood_broker.bootstrap_servers}
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "60000",
        "min.cleanable.dirty.ratio": "0.01",
        "message.timestamp.type": "LogAppendTime",
    }
    admin = AdminClient(servers)
    (made,) = admin.create_topics([NewTopic("t", 1, 1, config=config)]).values()
    made.result()
    producer = Producer({**servers, "compression.type": "zstd"})
    for _ in range(3):
        producer.produce("t", b"v" * 100_000, key=b"k")
        assert producer.flush(30) == 0
        cordwood_broker.advance(minutes=2, compact=False)
    cordwood_broker.advance(hours=1)
    producer.produce("t", b"serves on", key=b"k")
    assert producer.flush(30) == 0
    tool = [sys.executable, "-m", "cordwood", "get-offsets", "--topic", "t"]
    done = subprocess.run(
        [*tool, "--bootstrap-server", cordwood_broker.bootstrap_servers],
        capture_output=True, text=True, timeout=300,
    )
    assert done.stdout == "t:0:4\\n", done.stderr
    consumer = Consumer({**servers, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    assert [each.offset() for each in consumer.consume(3, timeout=60)] == [1, 2, 3]
    consumer.close()
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_a_full_installation_compacts(install: Callable[[str], Path], tmp_path: Path) -> None:
    with tarfile.open(ROOT / "examples" / "kafka-logs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    python = install("[all]")
    command = [str(python.with_name("cordwood")), "clean", str(tmp_path / "kafka-logs")]
    command += ["--json", "--yes", "--defaults"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    statuses = {each["topic"]: each["status"] for each in json.loads(done.stdout)["partitions"]}
    assert statuses["carts"] == "cleaned"


@pytest.mark.nightly
def test_the_commands_that_install_run_in_a_clean_environment(
    tmp_path: Path,
    wheel: Path,
    constraints: Path,
    record_property: Callable[[str, object], None],
) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}"
    site = site_packages(tmp_path / "venv" / "bin" / "python")
    before = megabytes(site)
    sizes = []
    for command in commands(block("console", INSTALL)):
        begun = time.monotonic()
        run_session(
            [command],
            tmp_path,
            PATH=path,
            PIP_CONSTRAINT=str(constraints),
            PIP_FIND_LINKS=str(wheel.parent),
        )
        sizes.append(megabytes(site) - before)
        record_property(
            "figure", f"$ {command.text}: {time.monotonic() - begun:.1f} s, {sizes[-1]:.0f} MB"
        )
    assert 0 < sizes[0] < 250
    assert sizes[1] > sizes[0]


def site_packages(python: Path) -> Path:
    (site,) = python.parents[1].glob("lib/python3*/site-packages")
    return site


def megabytes(directory: Path) -> float:
    """The size of a directory's files on disk."""
    seen = {}
    for path in directory.rglob("*"):
        facts = path.lstat()
        seen[facts.st_ino] = facts.st_blocks * 512
    return sum(seen.values()) / 1e6


@pytest.fixture(scope="module")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The versions that the project is developed with, for pip and uv."""
    lock = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+==[^\\\n]*?) *\\?$", lock, re.MULTILINE)
    assert len(pins) > 30
    target = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    target.write_text("\n".join(pins) + "\n", encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (found,) = target.iterdir()
    return found


def add(python: Path, *packages: str, constraints: Path) -> None:
    """Installs packages, from uv's cache where they are in it; the network may fail for a while."""
    command = ["uv", "pip", "install", "-q", "--python", str(python), *packages]
    command += ["--constraint", str(constraints)]
    for _ in range(DOWNLOAD_ATTEMPTS):
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]], capture_output=True, text=True, check=False
        )
        if not _is_unreachable(done):
            break
    else:
        _unavailable(f"packages cannot be fetched: {done.stderr}")
    assert done.returncode == 0, done.stderr


def _is_unreachable(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a command failed for the network."""
    words = ("Failed to fetch", "dns error", "Failed to download", "error sending request")
    return done.returncode != 0 and any(each in done.stderr for each in words)


@pytest.fixture
def install(
    tmp_path: Path,
    wheel: Path,
    constraints: Path,
    record_property: Callable[[str, object], None],
) -> Callable[[str], Path]:
    """Installs the wheel with extras in a clean environment; its Python."""

    def run(extras: str) -> Path:
        venv = tmp_path / "venv"
        begun = time.monotonic()
        subprocess.run([str(BIN / "uv"), "venv", "-q", str(venv)], check=True)
        python = venv / "bin" / "python"
        add(python, f"{wheel}{extras}", constraints=constraints)
        took = time.monotonic() - begun
        size = megabytes(site_packages(python))
        record_property("figure", f"cordwood{extras} installed: {took:.1f} s, {size:.0f} MB")
        return python

    return run
