"""The pytest plugin, in a project of its own that says nothing of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """\
def test_a_broker_is_there(cordwood_broker, cordwood_shared_broker):
    assert cordwood_broker.port != cordwood_shared_broker.port
    assert cordwood_broker.node.settings.integer("num.partitions") == 3
"""
CONFTEST = """\
import pytest

@pytest.fixture(scope="session")
def cordwood_properties():
    return {"num.partitions": 3}
"""


def run_pytest(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"),
            *(*options, "test_it.py"),
        ],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("named", ["", 'pytest_plugins = ["cordwood.testing.pytest_plugin"]\n'])
def test_pytest_finds_the_fixtures_by_itself_and_may_be_told_of_them(
    tmp_path: Path, named: str
) -> None:
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(named + CONFTEST, encoding="utf-8")
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_project_can_leave_the_fixtures_out(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    done = run_pytest(tmp_path, "-p", "no:cordwood.testing.pytest_plugin")
    assert "fixture 'cordwood_broker' not found" in done.stdout


def test_a_project_that_uses_no_fixture_loads_nothing_of_the_broker(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\n\ndef test_it():\n"
        "    ours = sorted(name for name in sys.modules if name.startswith('cordwood'))\n"
        "    assert ours == ['cordwood', 'cordwood.testing', 'cordwood.testing.pytest_plugin']\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


# ---- pytest --kafka

READS_THE_ENVIRONMENT = """\
import os

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]  # at the import, as a program's settings do


def test_it(cordwood_shared_broker):
    from confluent_kafka.admin import AdminClient

    assert cordwood_shared_broker.bootstrap_servers == SERVERS
    admin = AdminClient({"bootstrap.servers": SERVERS})
    assert admin.list_topics(timeout=30).brokers
    assert cordwood_shared_broker.node.settings.integer("num.partitions") == 3
"""


def test_a_suite_that_reads_the_environment_has_a_broker(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(READS_THE_ENVIRONMENT, encoding="utf-8")
    done = run_pytest(tmp_path, "-v", "--kafka", "--kafka-property", "num.partitions=3")
    assert done.returncode == 0, done.stdout
    header = r"^kafka: KAFKA_BOOTSTRAP_SERVERS=127\.0\.0\.1:\d+ \(Cordwood\)$"
    assert re.search(header, done.stdout, re.M)


def test_the_variables_can_be_named_and_all_workers_have_the_same_broker(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import os\nfrom pathlib import Path\nimport pytest\n\n\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "def test_it(number):\n"
        "    assert os.environ['BROKERS'] == os.environ['KAFKA']\n"
        "    Path(f'seen-{number}').write_text(os.environ['BROKERS'])\n",
        encoding="utf-8",
    )
    done = run_pytest(
        tmp_path, "-n", "2", "--kafka", "--kafka-env", "BROKERS", "--kafka-env", "KAFKA"
    )
    assert done.returncode == 0, done.stdout
    assert len({path.read_text() for path in tmp_path.glob("seen-*")}) == 1


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("log.retenton.ms=1", "did you mean log.retention.ms?"),
        ("num.partitions", "--cordwood-property num.partitions: NAME=VALUE is expected"),
    ],
)
def test_a_wrong_setting_ends_the_session_with_one_line(
    tmp_path: Path, given: str, error: str
) -> None:
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    done = run_pytest(tmp_path, "--kafka", "--kafka-property", given)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert error in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_the_broker_runs_before_a_conftest_is_imported_and_until_the_end(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import os\nimport socket\n\n"
        "SERVERS = os.environ['KAFKA_BOOTSTRAP_SERVERS']\n\n\n"
        "def pytest_unconfigure():\n"
        "    host, port = SERVERS.split(':')\n"
        "    socket.create_connection((host, int(port))).close()\n"
        "    print('still', SERVERS)\n",
        encoding="utf-8",
    )
    (tmp_path / "test_it.py").write_text(READS_THE_ENVIRONMENT, encoding="utf-8")
    done = run_pytest(tmp_path, "-s", "--kafka", "--kafka-property", "num.partitions=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "still 127.0.0.1:" in done.stdout


OWN_OPTION = """\
import os

BEFORE = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")


def pytest_addoption(parser):
    parser.addoption({option})


def pytest_configure(config):
    print("own:", config.option.kafka, BEFORE, os.environ.get("KAFKA_BOOTSTRAP_SERVERS"))
"""


@pytest.mark.parametrize(
    ("option", "given", "seen"),
    [
        ('"--kafka", action="store_true"', ["--kafka"], "own: True None None"),
        ('"--kafka", default="none"', ["--kafka", "other:9092"], "own: other:9092 None None"),
        ('"--kafka", default="none"', [], "own: none None None"),
    ],
)
def test_a_project_keeps_its_own_option_of_the_short_name(
    tmp_path: Path, option: str, given: list[str], seen: str
) -> None:
    (tmp_path / "conftest.py").write_text(OWN_OPTION.format(option=option), encoding="utf-8")
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n", encoding="utf-8")
    done = run_pytest(tmp_path, "-s", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen in done.stdout


def test_a_project_with_an_option_of_the_short_name_has_the_long_one(tmp_path: Path) -> None:
    own = OWN_OPTION.format(option='"--kafka", default="none"')
    (tmp_path / "conftest.py").write_text(own, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(READS_THE_ENVIRONMENT, encoding="utf-8")
    done = run_pytest(tmp_path, "-s", "--cordwood", "--cordwood-property", "num.partitions=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "own: none 127.0.0.1:" in done.stdout


def test_an_option_of_the_short_name_that_is_found_late_leaves_the_environment_as_it_was(
    tmp_path: Path,
) -> None:
    own = OWN_OPTION.format(option='"--kafka", action="store_true"')
    (tmp_path / "options.py").write_text(own, encoding="utf-8")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["options"]\n', encoding="utf-8")
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n", encoding="utf-8")
    done = run_pytest(tmp_path, "-s", "--kafka")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^own: True \S+ None$", done.stdout, re.M)


def test_a_worker_has_no_shared_broker_whose_clock_it_could_advance(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(cordwood_shared_broker):\n    pass\n", encoding="utf-8"
    )
    done = run_pytest(tmp_path, "-n", "1", "--kafka")
    assert done.returncode == 1
    assert "cordwood_shared_broker: with --cordwood the broker" in done.stdout
    assert "; use -n 0" in done.stdout


# ---- errors


def test_a_mark_with_arguments_that_have_no_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n\n@pytest.mark.cordwood_cluster(1)\n"
        "def test_it(cordwood_cluster):\n    pass\n",
        encoding="utf-8",
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "the mark takes arguments by name, such as brokers=1, not 1" in done.stdout


def test_a_fixture_that_fails_is_shown_as_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        CONFTEST.replace("num.partitions", "num.partitons"), encoding="utf-8"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "Failed: cordwood_shared_broker: " in done.stdout
    assert "did you mean num.partitions?" in done.stdout
    assert "pytest_plugin.py" not in done.stdout
    assert "During handling" not in done.stdout


def test_a_call_that_fails_is_shown_at_the_line_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(cordwood_broker):\n    cordwood_broker.files('prices-0')\n", encoding="utf-8"
    )
    done = run_pytest(tmp_path)
    assert "test_it.py:2: UnknownPartitionError" in done.stdout
    assert "no partition prices-0; there are " in done.stdout
    assert "cordwood/testing" not in done.stdout


def test_a_clock_that_is_advanced_by_no_time_is_shown_at_the_line_of_the_test(
    tmp_path: Path,
) -> None:
    lines = "\n\n".join(
        f"def test_{number}(cordwood_shared_broker):\n    cordwood_shared_broker.advance({span})"
        for number, span in enumerate(("day=1", "days=-1", "8"))
    )
    (tmp_path / "test_it.py").write_text(lines + "\n", encoding="utf-8")
    done = run_pytest(tmp_path)
    for number, said in enumerate(
        (
            "day is no unit; did you mean days=1?",
            "a clock cannot be moved back: days=-1",
            "8 of what? Such as days=8",
        )
    ):
        assert f"ConfigError: advance: {said}" in done.stdout
        assert f"test_it.py:{2 + 3 * number}: ConfigError" in done.stdout
    assert "cordwood/testing" not in done.stdout
