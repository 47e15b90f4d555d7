"""What a connection does with requests, slow clients, and bytes that are no requests."""

from __future__ import annotations

import socket
import struct

import pytest

from cordwood.testing.broker import RunningBroker
from cordwood.testing.no_engine import NoEngine
from cordwood.testing.wire import Wire, request_body, request_frame

METADATA, API_VERSIONS, FETCH, PRODUCE = 3, 18, 1, 0


def connected(running: RunningBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.port), 10)


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
                "max_wait": 300,
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
    assert (key, low, high) == (API_VERSIONS, 0, 4)


def test_idle_connections_are_closed_and_waiting_ones_are_not(running: RunningBroker) -> None:
    with connected(running) as sock, connected(running) as busy:
        for each in (sock, busy):
            each.sendall(frame(1))
            assert answers(each, 1) == [1]
        idle_s = running.settings.connections_max_idle_ms / 1000

        def look(in_s: float) -> None:
            server = running.node.server
            running.call(lambda broker: server.close_idle(broker.monotonic_s() + in_s))

        look(idle_s - 1)
        busy.sendall(frame(2))
        assert answers(busy, 1) == [2]
        look(idle_s + 1)
        assert is_closed(sock)


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


def test_a_produce_without_acks_that_fails_closes_the_connection(running: RunningBroker) -> None:
    body = request_body(
        PRODUCE,
        9,
        {
            "acks": 0,
            "timeout": 1000,
            "topic_data": [
                {"name": "no-such", "partition_data": [{"index": 0, "records": b"x" * 80}]}
            ],
        },
    )
    with connected(running) as sock:
        sock.sendall(request_frame(PRODUCE, 9, 1, "c", body))
        assert is_closed(sock)
