"""`cordwood serve`: what keeps it from starting, and how it stops."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.metadata.formatting import Voters, format_directories
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.surfaces.cli.load_progress import LoadLines
from cordwood.surfaces.cli.serve import _serve_node
from cordwood.surfaces.cli.serve_listening import HttpPlace
from cordwood.testing.broker import RunningBroker
from cordwood.testing.manual_clock import ManualClock
from support.commands import Commands, Outcome
from support.no_engine import NoEngine
from support.ports import free_port
from support.served import ServedBroker

_IN_USE, _USAGE, _FAILED = 3, 2, 1


Serve = Callable[..., Outcome]


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    with Commands() as commands:
        yield lambda *options: commands.run(["serve", "--http-port", "-1", *options])


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("listeners=SSL://127.0.0.1:0", "listeners"),
        ("ssl.keystore.location=/keys", "ssl.keystore.location"),
        ("sasl.enabled.mechanisms=PLAIN", "sasl.enabled.mechanisms"),
        ("authorizer.class.name=a.b.C", "authorizer.class.name"),
        ("remote.log.storage.system.enable=true", "remote.log.storage.system.enable"),
        ("process.roles=controller", "process.roles"),
        ("num.partitions=none", "num.partitions"),
    ],
)
def test_a_setting_that_is_not_served_or_wrong_is_fatal_and_named(
    tmp_path: Path, serve: Serve, setting: str, name: str
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path}/logs\n{setting}\n", encoding="utf-8")
    done = serve("--config", str(config))
    assert done.code == _USAGE, done.err
    assert name in done.err
    assert str(config) in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "logs").exists(), "nothing is touched"


def test_a_directory_in_use_is_refused(tmp_path: Path, serve: Serve) -> None:
    with ServedBroker(tmp_path / "logs"):
        done = serve("--log-dir", str(tmp_path / "logs"), "--port", "0")
    assert done.code == _IN_USE, done.err
    assert str(tmp_path / "logs") in done.err
    assert "Traceback" not in done.err


def test_a_port_in_use_is_named_and_the_directory_stays_clean(tmp_path: Path, serve: Serve) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = serve("--log-dir", str(tmp_path / "logs"), "--port", str(port))
    assert done.code == _FAILED, done.err
    assert f"127.0.0.1:{port}: Address already in use" in done.err
    assert "Traceback" not in done.err
    with ServedBroker(tmp_path / "logs"):
        pass


def test_a_directory_that_holds_something_else_is_not_formatted(
    tmp_path: Path, serve: Serve
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "letters.txt").write_text("dear", encoding="utf-8")
    done = serve("--log-dir", str(tmp_path / "logs"), "--port", "0")
    assert done.code == _FAILED, done.err
    assert "letters.txt" in done.err
    assert [each.name for each in (tmp_path / "logs").iterdir()] == ["letters.txt"]


@pytest.mark.parametrize("name", ["file", "file/below", "x" * 300])
def test_a_directory_that_cannot_be_created_is_named_with_what_to_do(
    tmp_path: Path, serve: Serve, name: str
) -> None:
    (tmp_path / "file").touch()
    done = serve("--log-dir", str(tmp_path / name), "--port", "0")
    assert done.code == _FAILED, done.err
    line = done.err.splitlines()[-1]
    assert line.startswith(f"cordwood serve: Log directory {tmp_path / name}: ")
    assert line.endswith("with --log-dir or log.dirs.")


def test_a_damaged_meta_properties_is_named_with_what_to_do(tmp_path: Path, serve: Serve) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("version=1\nnode.id=abc\ncluster.id=x\n", encoding="utf-8")
    done = serve("--log-dir", str(tmp_path), "--port", "0")
    assert done.code == _FAILED, done.err
    assert done.err.splitlines()[-1] == (
        f"cordwood serve: {path}: Unable to read node.id as a base-10 number. Restore the file "
        "from a copy, or give another directory"
    )


def test_a_server_properties_is_read_as_latin_1_as_java_does(tmp_path: Path, serve: Serve) -> None:
    config = tmp_path / "server.properties"
    config.write_bytes(b"# caf\xe9\nnum.partitions=none\n")
    done = serve("--config", str(config))
    assert done.code == _USAGE, done.err
    assert "num.partitions" in done.err


def test_it_stops_in_order_when_it_is_told_to(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path / "logs").start()
    assert not (tmp_path / "logs" / ".kafka_cleanshutdown").exists()
    assert broker.stop() == 0
    names = {each.name for each in (tmp_path / "logs").iterdir()}
    assert {
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    } <= names
    assert "Shut down completed" in broker.log


def test_it_stops_while_it_waits_for_a_controller(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    format_directories(
        [log_dir],
        node_id=1,
        cluster_id="Y29yZHdvb2QtdGVzdHMtMQ",
        clock=SystemClock(),
        controller_endpoints=[],
        voters=Voters.STATIC,
    )
    settings = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{free_port()}",
    }
    options = [
        part for name, value in settings.items() for part in ("--override", f"{name}={value}")
    ]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "cordwood", "serve", "--http-port", "-1"),
            *("--log-dir", str(log_dir), "--port", str(free_port()), *options),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = ""
    while "Unable to reach the controller" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.terminate()
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 0, rest
    assert "Shut down completed, before the start had ended" in rest
    assert "Traceback" not in rest


def test_a_new_group_does_not_wait_for_more_members(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "logs") as broker:
        assert static_setting(broker, "group.initial.rebalance.delay.ms") == "0"
        assert static_setting(broker, "offsets.topic.replication.factor") == "1"


def test_an_option_or_a_server_properties_decides_how_long_a_new_group_waits(
    tmp_path: Path,
) -> None:
    name = "group.initial.rebalance.delay.ms"
    with ServedBroker(tmp_path / "logs", {name: "7"}) as broker:
        assert static_setting(broker, name) == "7"
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=2\n", encoding="utf-8")
    with ServedBroker(tmp_path / "other", flags=("--config", str(config))) as broker:
        assert static_setting(broker, name) == "3000", "what a Kafka does with that file"


def static_setting(broker: ServedBroker, name: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (node,) = admin.list_topics(timeout=30).brokers
    (answer,) = admin.describe_configs([ConfigResource("broker", str(node))]).values()
    value: str | None = answer.result()[name].value
    return value


def test_old_and_misspelled_names_in_server_properties_are_warned_of(tmp_path: Path) -> None:
    names = {"file.delete.delay.ms": "5", "log.retenton.hours": "1"}
    with ServedBroker(tmp_path / "logs", names) as broker:
        assert "file.delete.delay.ms is ignored" in broker.log
        assert "log.retenton.hours is ignored; did you mean log.retention.hours?" in broker.log
        assert "log.segment.delete.delay.ms" in broker.log


def test_the_loading_of_many_logs_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    lines = LoadLines(clock)
    with caplog.at_level(logging.INFO):
        lines.begin(Path("/d"), 100)
        for number in range(100):
            clock.advance(1000)
            lines.advance(Path("/d"), f"t-{number}")
    assert caplog.messages[0] == "Loading 100 logs from /d"
    assert caplog.messages[1] == "Completed load of t-4 (5/100 completed in /d)"
    assert len(caplog.messages) == 21


def test_a_damaged_metadata_log_is_reported_without_a_traceback(
    tmp_path: Path, serve: Serve
) -> None:
    log_dir = tmp_path / "logs"
    with RunningBroker(log_dir=log_dir, engine=NoEngine):
        pass
    path = log_dir / "__cluster_metadata-0" / "00000000000000000000.log"
    data = path.read_bytes()
    *_, (_, last) = iter_batches(data)
    assert isinstance(last, RecordBatch)
    offset = last.header.next_offset
    epoch = last.header.partition_leader_epoch
    record = Record(offset, 1, None, b"\x01\x02\x00\x05ab")
    path.write_bytes(data + build_batch([record], base_offset=offset, partition_leader_epoch=epoch))
    done = serve("--log-dir", str(log_dir), "--port", "0")
    assert done.code == _FAILED, done.err
    assert f"{path}: TopicRecord at offset {offset} cannot be read" in done.err
    assert f"truncate -s {len(data)} {path}" in done.err
    assert "Traceback" not in done.err


def test_what_a_node_loads_is_loaded_before_there_is_an_event_loop(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from cordwood.serving import event_loop\n"
        "def run(main):\n"
        "    before = set(sys.modules)\n"
        "    try:\n"
        "        main.send(None)\n"
        "    except RuntimeError:\n"
        "        pass\n"
        "    main.close()\n"
        "    print(sorted(name for name in set(sys.modules) - before if 'cordwood' in name))\n"
        "event_loop.run = run\n"
        "from cordwood.surfaces.cli.main import app\n"
        "app(['serve', *sys.argv[1:], '--port', '0', '--http-port', '-1'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, "--log-dir", str(tmp_path / "logs")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_directory_that_is_none_of_kafkas_is_refused_with_what_is_in_it(
    tmp_path: Path, serve: Serve
) -> None:
    (tmp_path / "logs").mkdir()
    result = serve("--log-dir", str(tmp_path), "--port", "0")
    assert result.code == 1
    assert "it has no meta.properties, and is not empty (1 entries, such as" in result.err
    assert str(tmp_path / "logs") in result.err


def test_a_node_without_its_port_for_http_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(port: int | None, _host: str) -> socket.socket:
        raise ConfigError(f"--http-port {port}: no")

    async def start() -> None:
        pytest.fail("it starts")

    monkeypatch.setattr("cordwood.surfaces.http.endpoint.listen", refused)
    starting, node, http = start(), NoEngine(), HttpPlace(port=80)
    with pytest.raises(ConfigError, match="--http-port 80"):
        asyncio.run(_serve_node(node, node, starting, asyncio.Event(), http))  # type: ignore[arg-type]
    assert inspect.getcoroutinestate(starting) == inspect.CORO_CLOSED
