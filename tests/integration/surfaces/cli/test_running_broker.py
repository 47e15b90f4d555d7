"""Selection of the broker by `cordwood clock` and `cordwood cleaner`."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cordwood.configs.describe import describe
from cordwood.format.file_names import RUNTIME_FILE
from cordwood.queries.identity import NodeIdentity, runtime_files
from cordwood.storage.filesystem import DirectoryLock
from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.ports import free_port
from support.scrape import Probe, probed
from support.served import ServedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(log_dir=tmp_path / "logs", engine=NoEngine) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def advance(*options: str) -> Result:
    return run("clock", "--advance", "1h", *options)


@contextmanager
def stranger(answer: bytes) -> Iterator[tuple[str, list[str]]]:
    """A program that answers every request alike; its address, and what it was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer_anything(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = answer_anything  # noqa: N815  # the library's names

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("command", ["clock", "cleaner"])
def test_a_command_without_a_broker_is_a_usage_error(command: str) -> None:
    result = run(command)
    assert result.exit_code == 2
    assert "--log-dir DIR" in result.stderr
    assert run(command, "--log-dir", ".", "--url", "http://127.0.0.1:1").exit_code == 2


@pytest.mark.parametrize("url", ["localhost:9464", "https://localhost:9464", "http://h:port"])
def test_a_url_that_is_none_is_a_usage_error(url: str) -> None:
    result = run("clock", "--url", url)
    assert result.exit_code == 2
    assert f"--url {url}: " in result.stderr


@pytest.mark.parametrize("answer", [b'{"now_ms":0,"ahead_ms":0,"movable":true}', b"<html>"])
def test_a_program_that_is_no_broker_is_asked_who_it_is_and_nothing_else(answer: bytes) -> None:
    with stranger(answer) as (url, asked):
        result = advance("--url", url)
    assert result.exit_code == 1
    assert f"{url} is not the HTTP endpoint of a Cordwood broker" in result.stderr
    assert asked == ["GET /broker"]


# ---- by its Kafka address


def test_a_broker_is_found_by_its_kafka_address(broker: RunningBroker, probe: Probe) -> None:
    result = advance("--bootstrap-server", broker.bootstrap_servers)
    assert result.exit_code == 0, result.output
    assert f"Broker: 1 of cluster {broker.broker.cluster_id}, " in result.output
    assert broker.clock.ahead_ms == 3_600_000
    found = run("cleaner", "--bootstrap-server", broker.bootstrap_servers, "--json")
    assert json.loads(found.stdout)["broker"]["http_url"] == probe.url


def test_a_broker_without_http_says_so(broker: RunningBroker) -> None:
    result = advance("--bootstrap-server", broker.bootstrap_servers)
    assert result.exit_code == 1
    assert "serves no HTTP, as it was started with --http-port -1" in result.stderr


def test_another_broker_at_the_http_address_is_not_addressed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    with (
        RunningBroker(log_dir=tmp_path / "other", engine=NoEngine) as other,
        probed(other) as other_probe,
    ):
        broker.call(lambda each: setattr(each.configs, "http_url", other_probe.url))
        result = advance("--bootstrap-server", broker.bootstrap_servers)
        assert result.exit_code == 1
        assert f"answers broker 1 of cluster {other.broker.cluster_id}" in result.stderr
        assert other.clock.ahead_ms == broker.clock.ahead_ms == 0


def test_the_address_is_given_to_those_alone_who_ask_for_it_by_name(
    broker: RunningBroker, probe: Probe
) -> None:
    described = broker.call(lambda each: describe(each.configs, 4, "1"))
    assert not [entry for entry in described if entry.name.startswith("cordwood.")]
    named = broker.call(lambda each: describe(each.configs, 4, "1", wanted=["cordwood.http.url"]))
    assert [(entry.value, entry.is_read_only) for entry in named] == [(probe.url, True)]
    assert (
        broker.call(lambda each: describe(each.configs, 4, "", wanted=["cordwood.http.url"])) == []
    )


# ---- by a log directory


def test_a_broker_is_found_by_its_log_directory(broker: RunningBroker, probe: Probe) -> None:
    with runtime_files(probe.endpoint.identity):
        result = advance("--log-dir", str(broker.log_dir))
        assert result.exit_code == 0, result.output
        assert str(broker.log_dir) in result.output
    assert broker.clock.ahead_ms == 3_600_000
    assert not (broker.log_dir / RUNTIME_FILE).exists()


def test_a_directory_on_which_no_broker_runs_is_told(tmp_path: Path) -> None:
    result = advance("--log-dir", str(tmp_path))
    assert result.exit_code == 1
    assert f"no broker runs on {tmp_path}" in result.stderr
    result = advance("--log-dir", str(tmp_path / "none"))
    assert "there is no such directory" in result.stderr


def test_a_directory_that_something_else_uses_is_told(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    result = advance("--log-dir", str(tmp_path))
    lock.release()
    assert result.exit_code == 1
    assert "which is not a `cordwood serve` that has started" in result.stderr


def identity_of(log_dir: Path, url: str | None) -> NodeIdentity:
    return NodeIdentity(node_id=1, cluster_id="c", pid=1, log_dirs=(str(log_dir),), http_url=url)


def test_a_stale_file_does_not_lead_to_another_broker(
    broker: RunningBroker, probe: Probe, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    lock = DirectoryLock(elsewhere)
    with runtime_files(identity_of(elsewhere, probe.url)):
        result = advance("--log-dir", str(elsewhere))
    assert result.exit_code == 1
    assert "another one answers" in result.stderr
    with runtime_files(identity_of(elsewhere, f"http://127.0.0.1:{free_port()}")):
        result = advance("--log-dir", str(elsewhere))
    assert "does not answer" in result.stderr
    with runtime_files(identity_of(elsewhere, None)):
        assert "serves no HTTP" in advance("--log-dir", str(elsewhere)).stderr
    lock.release()
    assert broker.clock.ahead_ms == 0


def test_a_broker_is_found_by_the_file_that_its_killed_predecessor_left(
    broker: RunningBroker, probe: Probe
) -> None:
    with runtime_files(identity_of(broker.log_dir, probe.url)):
        result = advance("--log-dir", str(broker.log_dir))
    assert result.exit_code == 0, result.output
    assert f"process {os.getpid()}" in result.output
    assert broker.clock.ahead_ms == 3_600_000


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / RUNTIME_FILE).write_bytes(b"{}")
    result = advance("--log-dir", str(tmp_path))
    lock.release()
    assert result.exit_code == 1
    assert str(tmp_path / RUNTIME_FILE) in result.stderr


def test_serve_keeps_the_file_while_it_runs_and_starts_beside_a_stale_one(tmp_path: Path) -> None:
    served = ServedBroker(tmp_path / "logs").start()
    assert advance("--log-dir", str(served.log_dir)).exit_code == 0
    served.kill()
    assert (served.log_dir / RUNTIME_FILE).exists()
    assert "no broker runs on" in advance("--log-dir", str(served.log_dir)).stderr
    with served:
        result = run("clock", "--log-dir", str(served.log_dir), "--json")
        assert json.loads(result.stdout)["broker"]["pid"] == served.pid
    assert not (served.log_dir / RUNTIME_FILE).exists()
