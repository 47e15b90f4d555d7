"""The fault proxy before a server that counts requests."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.object_storage.faults import Fault, FaultKind, FaultScript
from support.object_storage.proxy import FaultProxy

BODY = b"0123456789"


class Counted(ThreadingHTTPServer):
    """Answers a PUT with how many requests came before, a GET with `BODY`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Counting)
        self.seen: list[tuple[str, str, bytes]] = []


class Counting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Counted

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        answer = BODY if self.command != "PUT" else b"%d" % len(self.server.seen)
        self.server.seen.append((self.command, self.path, body))
        self.send_response(200)
        self.send_header("X-Host", self.headers["host"])
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_PUT  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[Counted]:
    with Counted() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: Counted) -> Iterator[FaultProxy]:
    with FaultProxy(server.server_address[1]) as proxy:
        yield proxy


@contextmanager
def client(proxy: FaultProxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
    yield connection
    connection.close()


def ask(
    proxy: FaultProxy, method: str, target: str, body: bytes | None = None
) -> tuple[int, bytes]:
    with client(proxy) as connection:
        connection.request(method, target, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_requests_pass_as_they_came_and_a_connection_takes_several(
    proxy: FaultProxy, server: Counted
) -> None:
    with client(proxy) as connection:
        for number in range(3):
            connection.request("PUT", f"/a?n={number}", b"x" * number, {"Host": "storage.test"})
            answer = connection.getresponse()
            assert answer.headers["x-host"] == "storage.test"
            assert answer.read() == b"%d" % number
        connection.request("HEAD", "/a")
        answer = connection.getresponse()
        assert (answer.headers["content-length"], answer.read()) == ("10", b"")
    assert server.seen[2] == ("PUT", "/a?n=2", b"xx")
    last = proxy.exchanges[2]
    assert (last.request.path, last.statuses, last.request_bytes) == ("/a", (200,), 2)
    assert last.answer_bytes == 1


@pytest.mark.parametrize(
    ("kind", "status", "code", "reached"),
    [
        (FaultKind.SLOW_DOWN, 503, b"SlowDown", 0),
        (FaultKind.CONFLICT, 409, b"ConditionalRequestConflict", 0),
        (FaultKind.INTERNAL_ERROR, 500, b"InternalError", 1),
    ],
)
def test_an_error_is_answered_in_place_of_the_server(
    kind: FaultKind, status: int, code: bytes, reached: int, proxy: FaultProxy, server: Counted
) -> None:
    proxy.follow(FaultScript(Fault(kind)))
    answered, body = ask(proxy, "PUT", "/a", b"x")
    assert answered == status
    assert b"<Code>" + code + b"</Code>" in body
    assert len(server.seen) == reached
    assert ask(proxy, "PUT", "/a", b"x") == (200, b"%d" % reached)


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(("kind", "reached"), [(FaultKind.NOT_SENT, 0), (FaultKind.ANSWER_LOST, 1)])
def test_a_connection_breaks_before_or_after_the_server_was_asked(
    kind: FaultKind, reached: int, proxy: FaultProxy, server: Counted, *, is_reset: bool
) -> None:
    proxy.follow(FaultScript(Fault(kind, is_reset=is_reset)))
    with pytest.raises(ConnectionResetError) as raised:
        ask(proxy, "PUT", "/a", b"x")
    # http.client names an orderly end in place of an answer after the reset that it is not.
    assert isinstance(raised.value, http.client.RemoteDisconnected) is not is_reset
    assert len(server.seen) == reached


def test_half_of_a_body_is_given(proxy: FaultProxy) -> None:
    proxy.follow(FaultScript(Fault(FaultKind.ANSWER_HALVED)))
    with pytest.raises(http.client.IncompleteRead) as raised:
        ask(proxy, "GET", "/a")
    assert raised.value.partial == BODY[:5]


def test_a_repeated_request_gets_the_second_answer(proxy: FaultProxy, server: Counted) -> None:
    proxy.follow(FaultScript(Fault(FaultKind.REPEATED)))
    assert ask(proxy, "PUT", "/a", b"x") == (200, b"1")
    assert server.seen == [("PUT", "/a", b"x")] * 2
    assert proxy.exchanges[0].statuses == (200, 200)


def test_a_delayed_request_reaches_the_server_after_so_many_later_ones(
    proxy: FaultProxy, server: Counted
) -> None:
    proxy.follow(FaultScript(Fault(FaultKind.DELAYED, later_requests=2)))
    with pytest.raises(ConnectionResetError):
        ask(proxy, "PUT", "/late", b"late")
    for target in ("/1", "/2", "/3"):
        ask(proxy, "GET", target)
    assert [path for _, path, _ in server.seen] == ["/1", "/2", "/late", "/3"]
    assert server.seen[2][2] == b"late"


def test_delayed_requests_are_sent_on_when_the_test_says_so(
    proxy: FaultProxy, server: Counted
) -> None:
    proxy.follow(FaultScript(*[Fault(FaultKind.DELAYED, later_requests=9)] * 2))
    for target in ("/1", "/2"):
        with pytest.raises(ConnectionResetError):
            ask(proxy, "PUT", target, b"")
    assert server.seen == []
    proxy.send_delayed()
    assert [path for _, path, _ in server.seen] == ["/1", "/2"]


def test_without_a_server_connections_break() -> None:
    with Counted() as gone:
        port = gone.server_address[1]
    with FaultProxy(port) as proxy, pytest.raises(ConnectionResetError):
        ask(proxy, "GET", "/a")
