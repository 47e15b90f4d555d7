"""The HTTP endpoint of a running broker."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.queries.http_client import ask
from cordwood.serving.transport import PortInUseError
from cordwood.surfaces.http import endpoint as endpoint_module
from cordwood.surfaces.http.endpoint import ADVANCE_MS_MAX, HttpEndpoint, listen
from cordwood.surfaces.http.observed import ObservedBroker
from cordwood.surfaces.http.server import Answer, HttpServer, Refusal, Request, RequestLimits
from cordwood.testing.broker import RunningBroker
from support.in_process_engine import CompiledEngine
from support.kafka import poll_until
from support.scrape import Probe, probed, standing_still

DAY_MS = 86_400_000


PROPERTIES = {"offsets.topic.num.partitions": "1", "log.message.timestamp.type": "LogAppendTime"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(PROPERTIES, log_dir=tmp_path, engine=CompiledEngine) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
        yield found


@pytest.fixture(scope="module")
def shared_probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """The endpoint of one broker for all tests that need no state of their own."""
    log_dir = tmp_path_factory.mktemp("shared")
    with (
        RunningBroker(PROPERTIES, log_dir=log_dir, engine=CompiledEngine) as running,
        probed(running) as found,
    ):
        yield found


def create(broker: RunningBroker, topic: str, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.create_topics([NewTopic(topic, 1, 1, config=dict(config))]).values():
        done.result()


def produce(broker: RunningBroker, topic: str, *records: tuple[bytes, bytes]) -> None:
    """One batch a record."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
    for key, value in records:
        producer.produce(topic, value, key=key)
        assert producer.flush(30) == 0


def document(probe: Probe, path: str, method: str = "GET") -> Any:
    answer = probe.ask(path, method)
    assert answer.status == 200, answer.text
    assert answer.content_type.startswith("application/json")
    return json.loads(answer.text)


# ---- requests


def test_a_path_that_is_not_there_is_answered_with_those_that_are(shared_probe: Probe) -> None:
    answer = shared_probe.ask("/metric")
    assert answer.status == 404
    assert "/metrics" in answer.text
    assert "/clock/advance" in answer.text


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/metrics"), ("GET", "/clock/advance"), ("POST", "/health")]
)
def test_a_method_that_a_path_does_not_take_is_refused(
    shared_probe: Probe, method: str, path: str
) -> None:
    assert shared_probe.ask(path, method).status == 405


def test_health_says_who_serves(probe: Probe, broker: RunningBroker) -> None:
    found = document(probe, "/health")
    assert found["status"] == "ok"
    assert found["cluster_id"] == broker.broker.cluster_id
    assert found["node_id"] == 1
    assert found["offline_log_dirs"] == {}


def test_health_names_directories_that_failed(probe: Probe, broker: RunningBroker) -> None:
    broker.broker.replicas.logs.context.failures.fail(broker.log_dir, "the disk is gone")
    assert document(probe, "/health")["offline_log_dirs"] == {
        str(broker.log_dir): "the disk is gone"
    }


def test_a_broker_is_ready_while_its_replicas_are_in_sync(
    probe: Probe, broker: RunningBroker
) -> None:
    create(broker, "orders", {})
    assert document(probe, "/ready") == {"status": "ready", "node_id": 1}
    metadata = broker.broker.metadata
    topic = metadata.image.topics["orders"]
    behind = replace(topic.partitions[0], replicas=(1, 2), isr=(2,), leader=2)
    topics = metadata.image.topics.changed({"orders": replace(topic, partitions={0: behind})})
    metadata.image = replace(metadata.image, topics=topics)
    answer = probe.ask("/ready")
    assert answer.status == 503
    assert "1 of the 1 replicas of broker 1 are not in sync: orders-0" in answer.text


def test_a_scraper_that_asks_for_openmetrics_gets_it(probe: Probe) -> None:
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    answer = probe.ask("/metrics", headers=accept)
    assert answer.content_type.startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert "kafka_server_brokertopicmetrics_messagesin_total 0" in answer.text


def test_the_root_lists_the_paths(shared_probe: Probe) -> None:
    lines = shared_probe.ask("/").text.splitlines()
    assert "broker 1 of cluster" in lines[0]
    assert {"GET  /", "GET  /metrics", "GET  /explain", "POST /clock/advance"} <= set(lines)


def test_a_port_that_was_asked_for_and_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"--http-port {port}: another process listens"):
            listen(port)


def test_an_address_that_cannot_be_listened_at_is_an_error_with_its_port() -> None:
    with pytest.raises(ConfigError, match="--http-port 9464: "):
        listen(9464, "192.0.2.1")


def test_the_usual_port_is_replaced_by_a_free_one_with_a_warning_if_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(endpoint_module, "PORT", port)
        with listen(None) as sock:
            other = sock.getsockname()[1]
    assert other != port
    assert f"Port {port} of 127.0.0.1 is in use: metrics and status are at" in caplog.text
    assert f"http://127.0.0.1:{other} instead" in caplog.text


def test_a_loop_that_does_not_answer_fails_the_request_and_nothing_else(
    broker: RunningBroker, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "_LOOP_ANSWERS_S", 0.05)
    with standing_still(broker):
        assert probe.ask("/health").status == 503
        assert probe.ask("/metrics").status == 503
        assert probe.ask("/clock").status == 200
    monkeypatch.undo()
    assert probe.ask("/health").status == 200


# ---- slow clients, large requests


def received(sock: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    found = b""
    with suppress(ConnectionResetError):
        while data := sock.recv(65_536):
            found += data
    return found


def test_slow_clients_do_not_keep_others_out(broker: RunningBroker) -> None:
    limits = RequestLimits(connections=20)
    with probed(broker, limits=limits) as probe:
        slow = [socket.create_connection(("127.0.0.1", probe.endpoint.port)) for _ in range(20)]
        for each in slow:
            each.sendall(b"GET /cl")
        assert document(probe, "/clock")["movable"]
        slow[-1].sendall(b"ock HTTP/1.1\r\n\r\n")
        assert received(slow[-1]).startswith(b"HTTP/1.1 200 OK\r\n")
        assert received(slow[0]) == b"", "the oldest has made way"
        for each in slow:
            each.close()


def test_a_request_has_a_time_in_total_however_often_a_byte_comes(broker: RunningBroker) -> None:
    with (
        probed(broker, limits=RequestLimits(receive_s=0.3)) as probe,
        socket.create_connection(("127.0.0.1", probe.endpoint.port)) as slow,
    ):
        slow.settimeout(0.01)
        answer = b""
        # The last byte may meet a connection that is closed; the answer came before.
        for byte in b"GET /clock HTTP/1.1\r\n" + b"X: y\r\n" * 1_000:
            try:
                slow.sendall(bytes([byte]))
                answer += slow.recv(4096)
            except TimeoutError:
                continue
            except ConnectionError:
                break
            if answer:
                break
        slow.settimeout(120)
        answer += received(slow)
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


def test_an_answer_that_is_not_taken_is_given_up(broker: RunningBroker) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    large = Answer(bytes(64 << 20), "text/plain")
    server = HttpServer(sock, lambda _: large, limits=RequestLimits(send_s=0.2))
    with socket.create_connection(sock.getsockname()[:2]) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert slow.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        poll_until(lambda: not server._open, timeout_s=120, what="the end of the connection")
        assert len(received(slow)) < 64 << 20
    server.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /clock HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /clock HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"POST /clock/advance HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n", 413),
        (b"POST /clock/advance HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET /clock HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    ],
    ids=["large head", "many headers", "large body", "chunks", "no number", "TLS"],
)
def test_a_request_that_is_too_large_or_malformed_is_refused(
    shared_probe: Probe, request_: bytes, status: int
) -> None:
    with socket.create_connection(("127.0.0.1", shared_probe.endpoint.port)) as sock:
        with suppress(ConnectionError):  # it may be refused before it has been sent whole
            sock.sendall(request_)
        assert received(sock).startswith(b"HTTP/1.1 %d " % status)


# ---- pages of other sites


@pytest.mark.parametrize("host", ["localhost", "localhost:9464", "127.0.0.1:1", "[::1]:1"])
def test_a_request_that_changes_something_comes_to_a_name_of_the_broker(
    shared_probe: Probe, host: str
) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert shared_probe.ask("/clock/advance?ms=1", "POST", headers).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:9464"}, 421),
        ({"Host": "localhost@evil.example"}, 421),
        ({"Host": "[::1"}, 421),
        ({"Host": "localhost", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
        ({"Host": "localhost", "Origin": "http://localhost:3000"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_a_page_of_another_site_changes_nothing(
    shared_probe: Probe, headers: dict[str, str], status: int
) -> None:
    before = document(shared_probe, "/clock")["ahead_ms"]
    answer = shared_probe.ask("/clock/advance?ms=1000", "POST", headers)
    assert answer.status == status, answer.text
    assert answer.text.strip()
    assert document(shared_probe, "/clock")["ahead_ms"] == before


@pytest.mark.parametrize("path", ["/explain", "/metrics", "/health", "/"])
def test_a_page_of_another_site_reads_nothing_by_a_name_that_leads_here(
    shared_probe: Probe, path: str
) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:9464", "localhost@evil.example", "[::1"):
        assert shared_probe.ask(path, headers={"Host": host}).status == 421, host


@pytest.mark.parametrize("host", ["", "localhost:1", "192.0.2.7:9464", "[2001:db8::7]:9464"])
def test_an_address_that_is_forwarded_here_and_a_client_without_host_may_read(
    shared_probe: Probe, host: str
) -> None:
    assert shared_probe.ask("/clock", headers={"Host": host}).status == 200


def test_the_name_of_a_listener_is_a_name_of_the_broker(tmp_path: Path) -> None:
    properties = {"advertised.listeners": "PLAINTEXT://broker.test:19092"}
    with (
        RunningBroker(properties, log_dir=tmp_path, engine=CompiledEngine) as broker,
        probed(broker) as probe,
    ):
        answer = probe.ask("/clock/advance?ms=1", "POST", {"Host": "Broker.test:9464"})
        assert answer.status == 200, answer.text


@pytest.mark.parametrize(("remote_changes", "status"), [(False, 403), (True, 200)])
def test_another_machine_changes_something_only_where_that_is_allowed(
    broker: RunningBroker, remote_changes: bool, status: int
) -> None:
    endpoint = HttpEndpoint(
        ObservedBroker(broker.node), listen(0, "0.0.0.0"), remote_changes=remote_changes
    )
    headers = Message()
    headers["Host"], headers["Content-Type"] = "10.0.0.5:9464", "application/json"
    change = Request("POST", "/clock/advance", {"ms": ["1"]}, headers, b"", "10.0.0.9", "10.0.0.5")
    other_host = change._replace(reached="10.0.0.6")
    try:
        assert status_of(endpoint, change) == status
        assert status_of(endpoint, change._replace(method="GET", path="/clock")) == 200
        assert status_of(endpoint, other_host) == 421, "nobody has reached that address"
        own = change._replace(peer="10.0.0.5")
        assert status_of(endpoint, own) == 200, "it is at the address that it has reached"
        nowhere = change._replace(peer="", reached="")
        nowhere.headers.replace_header("Host", "localhost")
        assert status_of(endpoint, nowhere) == status
    finally:
        endpoint.close()


def status_of(endpoint: HttpEndpoint, request: Request) -> int:
    """Status of the answer to a request of any address."""
    try:
        endpoint._answer(request)
    except Refusal as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize(
    ("bound", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:"),
        ("127.0.0.2", "http://127.0.0.2:"),
        ("::1", "http://[::1]:"),
        ("::", "http://[::1]:"),
    ],
)
def test_the_url_of_an_endpoint_can_be_connected_to(
    broker: RunningBroker, bound: str, url: str
) -> None:
    if ":" in bound and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    endpoint = HttpEndpoint(ObservedBroker(broker.node), listen(0, bound))
    try:
        assert endpoint.url.startswith(url)
        assert ask(endpoint.url, "/health")["status"] == "ok"
    finally:
        endpoint.close()


# ---- the clock


def test_a_clock_moves_on_by_what_is_asked(probe: Probe, broker: RunningBroker) -> None:
    before = document(probe, "/clock")
    assert before["movable"]
    assert before["ahead_ms"] == 0
    after = document(probe, f"/clock/advance?ms={DAY_MS}", "POST")
    assert after["ahead_ms"] == DAY_MS
    assert after["now_ms"] >= before["now_ms"] + DAY_MS
    assert broker.clock.ahead_ms == DAY_MS


@pytest.mark.parametrize(
    "query",
    ["", "?ms=", "?ms=-1", "?ms=1.5", "?ms=week", f"?ms={ADVANCE_MS_MAX + 1}", "?ms=1&wait=x"],
)
def test_a_clock_is_not_moved_by_what_is_no_number(shared_probe: Probe, query: str) -> None:
    before = document(shared_probe, "/clock")["ahead_ms"]
    answer = shared_probe.ask(f"/clock/advance{query}", "POST")
    assert answer.status == 400
    assert "expected" in answer.text
    assert document(shared_probe, "/clock")["ahead_ms"] == before


def test_the_machines_clock_is_not_moved(
    probe: Probe, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.node, "clock", SystemClock())
    answer = probe.ask("/clock/advance?ms=1000", "POST")
    assert answer.status == 403
    assert "--test-clock" in answer.text
    assert document(probe, "/clock") | {"now_ms": 0} == {
        "now_ms": 0,
        "ahead_ms": 0,
        "movable": False,
    }


def test_retention_is_done_when_the_clock_has_been_moved(
    probe: Probe, broker: RunningBroker
) -> None:
    create(broker, "orders", {"retention.ms": "3600000", "segment.ms": "60000"})
    produce(broker, "orders", (b"k", b"old"))
    document(probe, "/clock/advance?ms=120000", "POST")
    produce(broker, "orders", (b"k", b"new"))
    assert len([name for name in broker.files("orders-0") if name.endswith(".log")]) == 2
    document(probe, "/clock/advance?ms=7200000&wait=false", "POST")
    scrape = probe.scrape()
    labels = {"topic": "orders", "partition": "0"}
    assert scrape.value("kafka_log_log_logstartoffset", **labels) == 2
    assert scrape.value("kafka_log_log_numlogsegments", **labels) == 1
    # The files go log.segment.delete.delay.ms later.
    document(probe, "/clock/advance?ms=61000&wait=false", "POST")
    logs = [name for name in broker.files("orders-0") if ".log" in name]
    assert logs == ["00000000000000000002.log"]


def test_compaction_is_done_when_the_clock_has_been_moved(
    probe: Probe, broker: RunningBroker
) -> None:
    create(
        broker,
        "table",
        {"cleanup.policy": "compact", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.01"},
    )
    produce(broker, "table", *[(b"k", b"%d" % number) for number in range(10)])
    document(probe, "/clock/advance?ms=120000&wait=false", "POST")
    produce(broker, "table", (b"k", b"last"))
    document(probe, "/clock/advance?ms=120000", "POST")
    found = document(probe, "/cleaner")
    partition = found["partitions"][0]
    assert (partition["topic"], partition["last_cleaned_ms"] is not None) == ("table", True)
    assert partition["checkpoint"] == 10
    assert found["last_runs"][0]["outcome"] == "cleaned"
    assert found["last_runs"][0]["messages_written"] == 1
    assert found["engine"]["state"] == "in process"


def test_an_endpoint_can_be_made_while_an_event_loop_runs() -> None:
    async def serve() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
            server = HttpServer(sock, lambda _: Answer(b"here", "text/plain"))
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
                writer.close()
                return answer
            finally:
                server.close()

    assert asyncio.run(serve()).endswith(b"here")
