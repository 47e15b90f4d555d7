"""Behaviour of a connection: requests, slow clients, and bytes that are no requests."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from cordwood.broker.broker import Broker
from cordwood.configs.listeners import Listener
from cordwood.coordinator.group.classic.group import ClassicGroup
from cordwood.format.record_batch import Record, build_batch
from cordwood.serving import server as server_module
from cordwood.serving.connection import Later
from cordwood.serving.server import Server, ServerLimits
from cordwood.serving.session import Session
from cordwood.serving.transport import PortInUseError
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Wire, request_body, request_frame

#: Nothing is waited for as long, unless it never comes.
HANGS_S = 120

METADATA, API_VERSIONS, FETCH, PRODUCE, DESCRIBE_CONFIGS, JOIN_GROUP = 3, 18, 1, 0, 32, 11


def connected(running: RunningBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.port), HANGS_S)


def frame(correlation_id: int, key: int = METADATA, version: int = 9) -> bytes:
    body = request_body(key, version, {"topics": []} if key == METADATA else {})
    return request_frame(key, version, correlation_id, "c", body)


def answers(sock: socket.socket, count: int) -> list[int]:
    """The correlation ids of the next responses."""
    stream = sock.makefile("rb")
    found = []
    for _ in range(count):
        (size,) = struct.unpack(">i", stream.read(4))
        found.append(struct.unpack(">i", stream.read(size)[:4])[0])
    return found


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_pipelined_requests_are_answered_in_order(running: RunningBroker) -> None:
    with connected(running) as sock:
        sock.sendall(b"".join(frame(number) for number in range(200)))
        assert answers(sock, 200) == list(range(200))


def test_a_request_that_waits_holds_back_those_behind_it(
    running: RunningBroker, wire: Wire
) -> None:
    wire.ask("metadata", 9, {"topics": [{"name": "held"}], "allow_auto_topic_creation": True})
    fetch = request_frame(
        FETCH,
        12,
        1,
        "c",
        request_body(
            FETCH,
            12,
            {
                "replica_id": -1,
                "max_wait_ms": 300,
                "min_bytes": 1,
                "max_bytes": 1000,
                "session_epoch": -1,
                "topics": [
                    {"topic": "held", "partitions": [{"partition": 0, "partition_max_bytes": 9}]}
                ],
            },
        ),
    )
    with connected(running) as sock:
        sock.sendall(fetch + frame(2) + frame(3))
        assert answers(sock, 3) == [1, 2, 3]


def test_a_request_byte_by_byte_is_answered(running: RunningBroker) -> None:
    with connected(running) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(7):
            sock.sendall(bytes([byte]))
        assert answers(sock, 1) == [7]


def test_a_client_that_does_not_read_is_not_read_from_and_others_are_served(
    running: RunningBroker, wire: Wire
) -> None:
    with connected(running) as slow:
        slow.setblocking(False)
        asked = 0
        many = b"".join(frame(number, API_VERSIONS, 3) for number in range(500))
        try:
            while asked < 10_000:  # far more answers than sockets hold
                slow.send(many)
                asked += 1
        except BlockingIOError:
            pass
        assert asked < 10_000, "the broker went on reading"
        assert wire.ask("metadata", 9, {"topics": []})["brokers"]


def test_one_request_at_a_time_from_a_client_that_does_not_read_piles_up_no_answers(
    running: RunningBroker, wire: Wire
) -> None:
    name = str(running.settings.node_id)
    asked = {"resource_type": 4, "resource_name": name, "configuration_keys": None}
    fields = {"resources": [asked], "include_documentation": True, "include_synonyms": True}
    one = request_frame(DESCRIBE_CONFIGS, 4, 1, "c", request_body(DESCRIBE_CONFIGS, 4, fields))
    with connected(running) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(200):
            slow.sendall(one)
            wire.ask("api_versions", 0, {})  # the broker has read that one alone
            poll_until(lambda: _unfinished(running) == 0, timeout_s=HANGS_S, what="its answer")
        assert 0 < _unsent(running) < 1 << 20


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">i", 104_857_601),
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhih", 10, METADATA, 99, 1, -1),
        struct.pack(">ihhih", 10, METADATA, 1, 1, 500),
        struct.pack(">ihhihi", 14, METADATA, 1, 1, -1, 2**31 - 1),
        struct.pack(">i", 0),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=[
        "negative length",
        "length above socket.request.max.bytes",
        "unknown API",
        "unknown version",
        "client id beyond the request",
        "array beyond the request",
        "empty request",
        "another protocol",
    ],
)
def test_what_is_no_request_closes_the_connection_and_no_other(
    running: RunningBroker, wire: Wire, data: bytes
) -> None:
    wire.ask("metadata", 9, {"topics": []})
    with connected(running) as sock:
        sock.sendall(data)
        assert is_closed(sock)
    assert wire.ask("metadata", 9, {"topics": []})["brokers"]


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    running: RunningBroker,
) -> None:
    with connected(running) as sock:
        sock.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 99, 5, -1))
        stream = sock.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(size)
    correlation_id, code, count, key, low, high = struct.unpack_from(">ihihhh", answer)
    assert (correlation_id, code, count) == (5, 35, 1)
    assert (key, low, high) == (API_VERSIONS, 0, 5)


def test_a_client_that_means_another_broker_is_told_so(wire: Wire) -> None:
    facts = wire.ask("describe_cluster", 1, {"endpoint_type": 1})
    own = {"cluster_id": facts["cluster_id"], "node_id": facts["brokers"][0]["broker_id"]}

    def error(**fields: object) -> str:
        software = {"client_software_name": "c", "client_software_version": "1"}
        return str(wire.ask("api_versions", 5, {**software, **fields})["error_code"])

    assert error() == error(**own) == "none"
    assert error(**{**own, "node_id": 99}) == "rebootstrap_required"
    assert error(**{**own, "cluster_id": "another"}) == "rebootstrap_required"
    assert error(cluster_id=own["cluster_id"]) == "invalid_request"
    assert error(node_id=own["node_id"]) == "invalid_request"


def test_idle_connections_are_closed_and_waiting_ones_are_not(running: RunningBroker) -> None:
    with connected(running) as sock, connected(running) as busy:
        for each in (sock, busy):
            each.sendall(frame(1))
            assert answers(each, 1) == [1]
        idle_s = running.settings.connections_max_idle_ms / 1000

        name = "{}:{}".format(*sock.getsockname())

        def look(silent_s: float) -> None:
            """Closes idle connections at the moment when `sock` has been silent for so long."""

            def close_idle(_: Broker) -> None:
                server = running.node.server
                (here,) = [each for each in server.connections if each.session.name == name]
                server.close_idle(here.last_active_s + silent_s)

            running.call(close_idle)

        look(idle_s - 1)
        busy.sendall(frame(2))
        assert answers(busy, 1) == [2]
        look(idle_s + 1)
        assert is_closed(sock)


_DAYS_24_MS = 24 * 86_400_000


def _waiting_fetch(topic: str) -> bytes:
    fields = _fetched(topic) | {"max_wait_ms": _DAYS_24_MS, "min_bytes": 1}
    return request_frame(FETCH, 12, 1, "c", request_body(FETCH, 12, fields))


def _waiting_join(group: str) -> bytes:
    """Joins a group of one other member, which does not join again: it is waited for."""
    fields = {
        "group_id": group,
        "session_timeout_ms": 300_000,
        "rebalance_timeout_ms": 300_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return request_frame(JOIN_GROUP, 3, 1, "c", request_body(JOIN_GROUP, 3, fields))


def _state(running: RunningBroker) -> tuple[int, int]:
    """The numbers of open connections and of fetches that wait."""

    def look(broker: Broker) -> tuple[int, int]:
        return running.node.server.connection_count, broker.replicas.delayed.fetch.delayed_count

    return running.call(look)


def _peers(running: RunningBroker) -> list[str]:
    return running.call(lambda _: [each.name for each in running.node.server.sessions()])


def _is_waiting(running: RunningBroker, name: str) -> bool:
    """Whether the connection from there has a request that waits for other clients."""

    def look(_: Broker) -> bool:
        server = running.node.server
        return any(each.session.name == name and each.is_busy for each in server.connections)

    return running.call(look)


def _until(running: RunningBroker, expected: tuple[int, int]) -> None:
    deadline = time.monotonic() + HANGS_S
    while _state(running) != expected:
        assert time.monotonic() < deadline, _state(running)
        time.sleep(0.005)


def test_a_wait_ends_when_its_client_has_gone_and_its_descriptor_is_released() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        wire.ask("metadata", 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
        before = _state(running)
        clients = [connected(running) for _ in range(100)]
        for client in clients:
            client.sendall(_waiting_fetch("t") + frame(2))  # one more is behind it
        _until(running, (before[0] + 100, 100))
        for client in clients:
            client.close()
        _until(running, before)


def test_a_wait_of_a_client_that_leaves_before_it_is_read_ends_at_once() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        wire.ask("metadata", 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
        before = _state(running)
        created = running.node.server.counters["PLAINTEXT"].created

        def leave(_: Broker) -> None:  # in the loop's own turn: it sees all of it at once
            with connected(running) as client:
                client.sendall(_waiting_fetch("t"))

        running.call(leave)
        deadline = time.monotonic() + HANGS_S
        while running.node.server.counters["PLAINTEXT"].created == created:
            assert time.monotonic() < deadline
        _until(running, before)


def test_a_member_that_waits_to_join_and_leaves_is_a_member_until_its_session_ends() -> None:
    with (
        RunningBroker({"offsets.topic.num.partitions": "1"}, engine=NoEngine) as running,
        Wire(running.port) as wire,
        connected(running) as first,
        connected(running) as second,
    ):
        asked = {"key": "g", "key_type": 0}
        poll_until(
            lambda: wire.ask("find_coordinator", 2, asked)["error_code"] == "none",
            timeout_s=HANGS_S,
            what="the coordinator",
        )
        first.sendall(_waiting_join("g"))
        answers(first, 1)
        second.sendall(_waiting_join("g"))
        name = "{}:{}".format(*second.getsockname())
        poll_until(lambda: _is_waiting(running, name), timeout_s=HANGS_S, what="the second")
        second.close()
        poll_until(lambda: name not in _peers(running), timeout_s=HANGS_S, what="its end")
        group = running.call(lambda broker: broker.groups.describe("g", ClassicGroup))
        assert len(list(group.members())) == 2


def test_what_a_client_sent_before_it_left_is_done(running: RunningBroker, wire: Wire) -> None:
    wire.ask("metadata", 9, {"topics": [{"name": "last"}], "allow_auto_topic_creation": True})
    records = build_batch([Record(0, 0, None, b"v")], base_offset=0)
    with connected(running) as client:
        body = request_body(PRODUCE, 9, _produced("last", records) | {"acks": 0})
        client.sendall(request_frame(PRODUCE, 9, 1, "c", body) * 20)
    deadline = time.monotonic() + HANGS_S
    while running.call(lambda broker: broker.replicas.partition("last", 0).log.log_end_offset) < 20:
        assert time.monotonic() < deadline


def test_a_wait_that_outlasts_the_idle_time_is_closed() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        wire.ask("metadata", 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
        with connected(running) as client:
            client.sendall(_waiting_fetch("t"))
            _until(running, (2, 1))
            running.call(_aged(running))
            server = running.node.server
            running.call(lambda broker: server.close_idle(broker.thread.loop.time()))
            assert is_closed(client)
            _until(running, (0, 0))


@pytest.mark.nightly
def test_a_thousand_clients_that_wait_24_days_and_leave_cost_nothing() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        wire.ask("metadata", 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
        before, opened = _state(running), descriptors()
        for _ in range(10):
            clients = [connected(running) for _ in range(100)]
            for client in clients:
                client.sendall(_waiting_fetch("t"))
            for client in clients:
                client.close()
        _until(running, before)
        assert descriptors() <= opened


def test_a_client_that_takes_its_answer_slowly_is_not_idle() -> None:
    with (
        RunningBroker(engine=NoEngine) as running,
        Wire(running.port) as wire,
        connected(running) as slow,
    ):
        records = build_batch([Record(0, 0, None, bytes(1_000_000))], base_offset=0)
        wire.ask("metadata", 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
        for _ in range(32):
            wire.ask("produce", 9, _produced("t", records))
        slow.sendall(request_frame(FETCH, 12, 1, "c", request_body(FETCH, 12, _fetched("t"))))
        assert len(slow.recv(4)) == 4
        server = running.node.server
        for _ in range(4):
            running.call(_aged(running))
            before = _unsent(running)
            assert before > 0
            while _unsent(running) == before:
                assert slow.recv(1 << 20)
            running.call(lambda broker: server.close_idle(broker.thread.loop.time()))
            assert _unsent(running) > 0, "closed while its answer was on the way"


def _aged(running: RunningBroker) -> Callable[[Broker], None]:
    """Has all connections be silent for longer than is allowed."""

    def age(_: Broker) -> None:
        for each in running.node.server.connections:
            each.last_active_s -= running.settings.connections_max_idle_ms / 1000 + 60

    return age


def _produced(topic: str, records: bytes) -> dict[str, Any]:
    data = [{"index": 0, "records": records}]
    return {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }


def _fetched(topic: str) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}
    return {
        "replica_id": -1,
        "max_bytes": 1 << 30,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }


def test_without_a_bound_of_silence_no_connection_is_idle() -> None:
    with (
        RunningBroker({"connections.max.idle.ms": "-1"}, engine=NoEngine) as running,
        connected(running) as sock,
    ):
        sock.sendall(frame(1))
        assert answers(sock, 1) == [1]
        server = running.node.server
        running.call(lambda broker: server.close_idle(broker.thread.loop.time() + 10**6))
        sock.sendall(frame(2))
        assert answers(sock, 1) == [2]


def _unfinished(running: RunningBroker) -> int:
    return running.call(lambda broker: broker.thread.slices.unfinished_count)


def _unsent(running: RunningBroker) -> int:
    """The largest number of unsent bytes of a connection; 0 if there is none."""
    server = running.node.server
    return running.call(lambda _: max([0, *(each.unsent_bytes for each in server.connections)]))


def test_one_connection_more_than_allowed_is_closed_at_once() -> None:
    with (
        RunningBroker({"max.connections.per.ip": "2"}, engine=NoEngine) as running,
        connected(running) as first,
        connected(running) as second,
    ):
        for each in (first, second):
            each.sendall(frame(1))
            assert answers(each, 1) == [1]
        with connected(running) as third:
            assert is_closed(third)
        first.close()
        # The broker hears of the close before it is asked again on the other connection.
        second.sendall(frame(2))
        assert answers(second, 1) == [2]


def test_an_address_may_have_a_bound_of_its_own() -> None:
    properties = {
        "max.connections.per.ip": "1",
        "max.connections.per.ip.overrides": "127.0.0.1:2",
    }
    with (
        RunningBroker(properties, engine=NoEngine) as running,
        connected(running) as first,
        connected(running) as second,
        connected(running) as third,
    ):
        for each in (first, second):
            each.sendall(frame(1))
            assert answers(each, 1) == [1]
        assert is_closed(third)


def test_beyond_max_connections_clients_wait_for_one_to_go() -> None:
    with (
        RunningBroker({"max.connections": "1"}, engine=NoEngine) as running,
        connected(running) as first,
    ):
        first.sendall(frame(1))
        assert answers(first, 1) == [1]
        with connected(running) as second:
            second.sendall(frame(2))
            first.sendall(frame(3))
            assert answers(first, 1) == [3]
            assert running.call(lambda _: running.node.server.connection_count) == 1
            first.close()
            assert answers(second, 1) == [2]


def test_without_descriptors_clients_wait_and_the_broker_does_not_spin(
    caplog: pytest.LogCaptureFixture,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (
        RunningBroker(engine=NoEngine) as running,
        connected(running) as known,
        socket.socket() as late,
    ):
        known.sendall(frame(1))
        assert answers(known, 1) == [1]
        caplog.clear()
        begun_s = time.monotonic()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
            late.connect(("127.0.0.1", running.port))
            for _ in range(50):  # turns of the loop
                running.call(lambda _: None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        # One at once, and one more for each second that a busy machine takes for these turns.
        tries = sum("Cannot accept" in each.message for each in caplog.records)
        assert 1 <= tries <= 1 + int((time.monotonic() - begun_s) / server_module._ACCEPT_RETRY_S)
        late.settimeout(HANGS_S)
        late.sendall(frame(2))
        assert answers(late, 1) == [2]


def test_buffers_of_sockets_are_those_given() -> None:
    given = {"socket.send.buffer.bytes": "20000", "socket.receive.buffer.bytes": "30000"}
    with RunningBroker(given, engine=NoEngine) as running, connected(running) as sock:
        sock.sendall(frame(1))
        assert answers(sock, 1) == [1]
        limits = running.node.server.limits
        assert (limits.send_buffer_bytes, limits.receive_buffer_bytes) == (20_000, 30_000)
    with RunningBroker(engine=NoEngine) as running:
        assert running.node.server.limits.send_buffer_bytes is None


def open_sockets() -> set[str]:
    """Open sockets by number and inode; fewer are no fault: an earlier test's may close."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # such as the one that lists the directory
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return {each for each in found if "socket:" in each}


def test_an_address_that_cannot_be_listened_at_leaves_no_descriptor_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = open_sockets()
        with pytest.raises(PortInUseError) as caught:
            Server(limits=ServerLimits()).bind(
                Listener("PLAINTEXT", "127.0.0.1", taken.getsockname()[1])
            )
        assert open_sockets() <= before
        assert "Address already in use" in str(caught.value)
        assert "another port with --port or in `listeners`" in str(caught.value)


def answer_nothing(_request: memoryview, _session: Session) -> Later:
    raise AssertionError("no request comes")


def test_clients_are_refused_until_requests_are_served() -> None:
    server = Server(limits=ServerLimits())
    loop = asyncio.new_event_loop()
    try:
        address = "127.0.0.1", server.bind(Listener("PLAINTEXT", "127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        server.start(loop, answer_nothing)
        socket.create_connection(address).close()
    finally:
        server.stop()
        loop.close()


def test_of_two_that_have_bound_an_address_the_second_to_serve_is_told_that_it_is_taken() -> None:
    servers = [Server(limits=ServerLimits()) for _ in range(2)]
    loop = asyncio.new_event_loop()
    try:
        port = servers[0].bind(Listener("PLAINTEXT", "127.0.0.1", 0))
        servers[1].bind(Listener("PLAINTEXT", "127.0.0.1", port))
        servers[0].start(loop, answer_nothing)
        with pytest.raises(PortInUseError, match=f"127.0.0.1:{port}: Address already in use"):
            servers[1].start(loop, answer_nothing)
    finally:
        for each in servers:
            each.stop()
        loop.close()


def test_a_produce_without_acks_that_fails_closes_the_connection(running: RunningBroker) -> None:
    body = request_body(
        PRODUCE,
        9,
        {
            "acks": 0,
            "timeout_ms": 1000,
            "topic_data": [
                {"name": "no-such", "partition_data": [{"index": 0, "records": b"x" * 80}]}
            ],
        },
    )
    with connected(running) as sock:
        sock.sendall(request_frame(PRODUCE, 9, 1, "c", body))
        assert is_closed(sock)
