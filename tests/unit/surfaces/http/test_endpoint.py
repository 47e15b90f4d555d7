"""The HTTP endpoint of a running broker."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.model.clock import SystemClock
from cordwood.surfaces.http import endpoint as endpoint_module
from cordwood.surfaces.http.endpoint import ADVANCE_MS_MAX, HttpEndpoint
from cordwood.testing.broker import RunningBroker
from cordwood.testing.in_process_engine import ManagedInProcessEngine
from cordwood.testing.scrape import Probe, probed

DAY_MS = 86_400_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    properties = {
        "offsets.topic.num.partitions": "1",
        "log.message.timestamp.type": "LogAppendTime",
    }
    with RunningBroker(properties, log_dir=tmp_path, engine=ManagedInProcessEngine) as running:
        yield running


@pytest.fixture
def probe(broker: RunningBroker) -> Iterator[Probe]:
    with probed(broker) as found:
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


def test_a_path_that_is_not_there_is_answered_with_those_that_are(probe: Probe) -> None:
    answer = probe.ask("/metric")
    assert answer.status == 404
    assert "/metrics" in answer.text
    assert "/clock/advance" in answer.text


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/metrics"), ("GET", "/clock/advance"), ("POST", "/health")]
)
def test_a_method_that_a_path_does_not_take_is_refused(
    probe: Probe, method: str, path: str
) -> None:
    assert probe.ask(path, method).status == 405


def test_health_says_who_serves(probe: Probe, broker: RunningBroker) -> None:
    found = document(probe, "/health")
    assert found["status"] == "ok"
    assert found["cluster_id"] == broker.broker.cluster_id
    assert found["node_id"] == 1
    assert found["offline_log_dirs"] == {}


def test_health_names_directories_that_failed(probe: Probe, broker: RunningBroker) -> None:
    broker.broker.logs.context.failures.fail(broker.log_dir, "the disk is gone")
    assert document(probe, "/health")["offline_log_dirs"] == {
        str(broker.log_dir): "the disk is gone"
    }


def test_a_scraper_that_asks_for_openmetrics_gets_it(probe: Probe) -> None:
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    answer = probe.ask("/metrics", headers=accept)
    assert answer.content_type.startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert "kafka_server_brokertopicmetrics_messagesin_total 0" in answer.text


def test_a_port_that_is_taken_is_replaced_by_a_free_one_with_a_warning(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with caplog.at_level(logging.WARNING):
            endpoint = HttpEndpoint(broker.node, port)
        try:
            assert endpoint.port != port
            assert f"Port {port} of 127.0.0.1 is in use" in caplog.text
            assert document(Probe(endpoint), "/health")["status"] == "ok"
        finally:
            endpoint.close()


def test_a_loop_that_does_not_answer_fails_the_request_and_nothing_else(
    broker: RunningBroker, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "_LOOP_ANSWERS_S", 0.05)
    go_on, is_stopped = threading.Event(), threading.Event()

    def stand_still() -> None:
        is_stopped.set()
        assert go_on.wait(30)

    broker.broker.call_soon(stand_still)
    assert is_stopped.wait(30)
    assert probe.ask("/health").status == 503
    assert probe.ask("/metrics").status == 503
    assert probe.ask("/clock").status == 200
    go_on.set()
    monkeypatch.undo()
    assert probe.ask("/health").status == 200


def test_requests_above_the_bound_are_turned_away_until_others_have_ended(probe: Probe) -> None:
    idle = [socket.create_connection(("127.0.0.1", probe.endpoint.port)) for _ in range(16)]
    with socket.create_connection(("127.0.0.1", probe.endpoint.port)) as one_more:
        assert one_more.recv(1) == b""
    for each in idle:
        each.sendall(b"GET /clock HTTP/1.0\r\n\r\n")
        assert each.recv(12) == b"HTTP/1.0 200"
        while each.recv(4096):
            pass
        each.close()
    assert document(probe, "/clock")["movable"]


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
def test_a_clock_is_not_moved_by_what_is_no_number(
    probe: Probe, broker: RunningBroker, query: str
) -> None:
    answer = probe.ask(f"/clock/advance{query}", "POST")
    assert answer.status == 400
    assert "expected" in answer.text
    assert broker.clock.ahead_ms == 0


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
