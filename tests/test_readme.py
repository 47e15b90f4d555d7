"""Every snippet of README.md is run as it is printed, and prints what README.md shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.downloads import DOWNLOAD_ATTEMPTS
from support.kafka import KafkaUnavailableError, kafka_jars
from support.sessions import BLOCK, Command, commands, require_printed, run_session

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    """The blocks of README.md in a language."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [code for found, code in BLOCK.findall(text) if found == language]


def block(language: str, containing: str) -> str:
    """The one block that contains a text."""
    (found,) = [code for code in blocks(language) if containing in code]
    return found


# ---- which test runs which block


def test_every_block_is_run_by_a_test_here() -> None:
    kinds = {language for language in LANGUAGES if blocks(language)}
    assert kinds == {"console", "python"}
    for language, marks in RUN_HERE.items():
        for code in blocks(language):
            known = [mark for mark in marks if mark in code]
            assert len(known) == 1, f"no test, or several, run this block of README.md:\n{code}"


INSTALL, BROKER, DEMO, CLEAN = "$ pip wheel", "$ cordwood serve", "$ make run", "--dry-run\n"
CLUSTER = "$ cordwood cluster up"
FIXTURE, CONTEXT, LOG = "(cordwood_broker)", "RunningBroker(", "LogManager("
RUN_HERE = {"console": (INSTALL, BROKER, CLUSTER, DEMO, CLEAN), "python": (FIXTURE, CONTEXT, LOG)}
LANGUAGES = {found for found, _ in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))}


# ---- Python


def run_python(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    code = code.replace("/tmp/", f"{directory}/")
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )


def test_the_log_in_python_runs(tmp_path: Path) -> None:
    done = run_python(block("python", LOG), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "10.50" in done.stdout
    assert (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def test_the_broker_as_a_context_manager_runs(tmp_path: Path) -> None:
    done = run_python(block("python", CONTEXT), tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", done.stdout)


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


# ---- a broker and its tools


@pytest.fixture
def own_network() -> bool:
    """Whether commands can have a network of their own, in which the ports as printed are free."""
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if done.returncode:
        _unavailable("no network of its own can be made (unshare --net): ports may be taken")
    return True


def _unavailable(reason: str) -> None:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _with_kafkas_tools(directory: Path) -> bool:
    """Makes `kafka-get-offsets.sh` in a directory; False where there is no real Kafka."""
    try:
        kafka_jars()
    except KafkaUnavailableError:
        return False
    tool = directory / "kafka-get-offsets.sh"
    tool.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from support.kafka import kafka_tool\n"
        "done = kafka_tool('get-offsets', *sys.argv[1:])\n"
        "sys.stdout.write(done.stdout)\n"
        "sys.exit(done.returncode)\n",
        encoding="utf-8",
    )
    tool.chmod(0o755)
    return True


def test_the_session_with_a_broker_prints_what_is_shown(tmp_path: Path, own_network: bool) -> None:
    tools, work = tmp_path / "bin", tmp_path / "work"
    tools.mkdir()
    work.mkdir()
    session = commands(block("console", BROKER))
    if not _with_kafkas_tools(tools):
        session = [each for each in session if ".sh" not in each.text]
    if not shutil.which("curl"):
        session = [each for each in session if "curl" not in each.text]
    path = f"{tools}:{BIN}:{os.environ['PATH']}"
    printed = run_session(session, work, PATH=path, own_network=own_network)
    for command, output in zip(session, printed, strict=True):
        require_printed(command, output)
    assert "Shut down completed" in printed[0]


def test_the_session_with_a_cluster_prints_what_is_shown(tmp_path: Path, own_network: bool) -> None:
    session = commands(block("console", CLUSTER))
    path = f"{BIN}:{os.environ['PATH']}"
    printed = run_session(session, tmp_path, PATH=path, own_network=own_network)
    for command, output in zip(session, printed, strict=True):
        require_printed(command, output)
    assert "controller 100 has stopped" in printed[0]


# ---- cleaning


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A directory with what the commands name: logs, a backup of a partition, settings."""
    with tarfile.open(ROOT / "examples" / "kafka-logs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.copytree(tmp_path / "kafka-logs" / "orders-0", tmp_path / "backup" / "orders-0")
    (tmp_path / "server.properties").write_text("log.cleaner.threads=2\n", encoding="utf-8")
    return tmp_path


def _needs_spark(command: Command) -> bool:
    is_clean = command.text.startswith("cordwood clean")
    return is_clean and "--dry-run" not in command.text and "--retention-only" not in command.text


def test_the_commands_that_clean_without_spark_run(example: Path) -> None:
    session = [each for each in commands(block("console", CLEAN)) if not _needs_spark(each)]
    assert len(session) == 3
    path = f"{BIN}:{os.environ['PATH']}"
    plan, retention, dump = run_session(session, example, PATH=path)
    assert "planned" in plan
    assert "freed" in retention
    assert "isvalid: true" in dump


@pytest.mark.nightly
@pytest.mark.spark
def test_the_commands_that_clean_run(example: Path) -> None:
    if not shutil.which("jq"):
        _unavailable("jq is not installed")
    session = commands(block("console", CLEAN))
    path = f"{BIN}:{os.environ['PATH']}"
    printed = run_session(session, example, PATH=path)
    (partition,) = json.loads(printed[3])
    assert (partition["topic"], partition["status"]) == ("orders", "cleaned")
    assert any((example / "trash").rglob("*.log"))


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
    (command,) = commands(block("console", DEMO))
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
    *("__init__", "broker", "cluster", "manual_clock", "pytest_plugin"),
    *("setting_text", "switchboard", "simulated_disk", "simulated_filesystem", "simulated_tree"),
)


def test_a_base_installation_serves_and_names_the_extra_that_it_lacks(
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
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cordwood.model.errors import NotCompactedError
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
    with pytest.raises(NotCompactedError, match=r"pip install 'cordwood\\[spark\\]'"):
        cordwood_broker.advance(hours=1)
    assert cordwood_broker.node.cleaner.engine_available() == 0
    reason = cordwood_broker.node.cleaner.status()["engine"]["reason"]
    assert "pyspark" in reason
    producer.produce("t", b"serves on", key=b"k")
    assert producer.flush(30) == 0
    tool = [sys.executable, "-m", "cordwood", "get-offsets", "--topic", "t"]
    done = subprocess.run(
        [*tool, "--bootstrap-server", cordwood_broker.bootstrap_servers],
        capture_output=True, text=True, timeout=300,
    )
    assert done.stdout == "t:0:4\\n", done.stderr
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_a_full_installation_compacts(install: Callable[[str], Path], example: Path) -> None:
    python = install("[all]")
    command = [str(python.with_name("cordwood")), "clean", str(example / "kafka-logs")]
    command += ["--json", "--yes"]
    done = subprocess.run(
        command, cwd=example, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    statuses = {each["topic"]: each["status"] for each in json.loads(done.stdout)["partitions"]}
    assert statuses["carts"] == "cleaned"


@pytest.mark.nightly
def test_the_commands_that_install_run_in_a_clean_environment(
    tmp_path: Path, constraints: Path, record_property: Callable[[str, object], None]
) -> None:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    checkout = tmp_path / "checkout"
    for name in files.stdout.split():
        if (ROOT / name).exists():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}"
    site = site_packages(tmp_path / "venv" / "bin" / "python")
    before = megabytes(site)
    sizes = []
    for command in commands(block("console", INSTALL)):
        begun = time.monotonic()
        run_session([command], checkout, PATH=path, PIP_CONSTRAINT=str(constraints))
        sizes.append(megabytes(site) - before)
        record_property(
            "figure", f"$ {command.text}: {time.monotonic() - begun:.1f} s, {sizes[-1]:.0f} MB"
        )
    assert sizes[0] == 0
    assert sizes[1] < 250
    assert sizes[2] > sizes[1]


def site_packages(python: Path) -> Path:
    (site,) = python.parents[1].glob("lib/python3*/site-packages")
    return site


def megabytes(directory: Path) -> float:
    """What the files of a directory take on disk."""
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
