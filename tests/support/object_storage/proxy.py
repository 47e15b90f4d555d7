"""A loopback HTTP proxy before a server, in threads, that does to requests what a plan says.

It is a reverse proxy: clients connect to its port as if it were the server, and requests are sent
on as they came, so that signatures stay valid. Each is read whole before it is sent on, and each
answer before it is given: bodies are limited by memory.
"""

from __future__ import annotations

import http.client
import socket
import socketserver
import struct
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Final, Self

from support.object_storage.faults import Fault, FaultKind, FaultPlan, ProxiedRequest, no_faults

_SERVER_SECONDS_MAX: Final = 120.0
_LENGTH: Final = "content-length"
#: Of one connection, not of the request or of the answer; the proxy gives its own.
_OF_CONNECTION: Final = frozenset({"connection", "keep-alive", "transfer-encoding", _LENGTH})
#: What the server is not asked for.
_REFUSALS: Final[Mapping[FaultKind, tuple[int, str]]] = {
    FaultKind.SLOW_DOWN: (503, "SlowDown"),
    FaultKind.CONFLICT: (409, "ConditionalRequestConflict"),
}
_WITHOUT_BODY: Final = frozenset({204, 304})
_INTERNAL_ERROR: Final = (500, "InternalError")
#: With these, close() sends a reset: linger for no time.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was dealt with, and what came of it."""

    request: ProxiedRequest
    fault: Fault
    statuses: tuple[int, ...]
    """Of the server's answers: none if it was not asked, two for a repeated request."""
    request_bytes: int
    """Of its body."""
    answer_bytes: int
    """Of the body of the server's last answer."""


@dataclass(slots=True)
class _Delayed:
    request: ProxiedRequest
    fault: Fault
    body: bytes
    left: int
    """Later requests to wait for."""


class FaultProxy:
    """The proxy: a context manager, with a port of its own and a plan that may be replaced."""

    def __init__(self, server_port: int, plan: FaultPlan = no_faults) -> None:
        """Listens at once; answers in the block.

        Args:
            server_port: of the server, at the loopback interface.
            plan: what happens to each request.
        """
        self._server_port = server_port
        self._plan = plan
        self._lock = threading.Lock()
        self._number = 0
        self._exchanges: list[Exchange] = []
        self._delayed: list[_Delayed] = []
        self._listener = _Listener(self)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        """The port at which clients connect, at the loopback interface."""
        return int(self._listener.server_address[1])

    @property
    def url(self) -> str:
        """The endpoint, for clients."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Requests dealt with, in the order of their ends; the delayed as they arrived."""
        with self._lock:
            return tuple(self._exchanges)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Breaks what is open; delayed requests that have not reached the server never do."""
        self._listener.shutdown()
        self._listener.break_connections()
        self._listener.server_close()
        self._thread.join()

    def follow(self, plan: FaultPlan) -> None:
        """Has the requests that come from now on follow another plan."""
        with self._lock:
            self._plan = plan

    def send_delayed(self) -> None:
        """Sends on all delayed requests now, in the order in which they came."""
        with self._lock:
            due, self._delayed = self._delayed, []
        for each in due:
            self._send_late(each)

    def deal_with(
        self, method: str, target: str, headers: tuple[tuple[str, str], ...], body: bytes
    ) -> tuple[Fault, _Answer | None]:
        """Sends a request on as the plan says; the answer to give, or None for none.

        For a handler of a connection.
        """
        with self._lock:
            named = {name.lower(): value for name, value in headers}
            request = ProxiedRequest(self._number, method, target, named)
            self._number += 1
            fault = self._plan(request)
            if fault.kind is FaultKind.DELAYED:
                self._delayed.append(_Delayed(request, fault, body, fault.later_requests))
                return fault, None
        answers: list[_Answer] = []
        if fault.kind in _REFUSALS:
            given: _Answer | None = _error(*_REFUSALS[fault.kind])
        elif fault.kind is FaultKind.NOT_SENT:
            given = None
        else:
            answers = self._ask(request, headers, body, twice=fault.kind is FaultKind.REPEATED)
            given = answers[-1] if answers else None
            if fault.kind is FaultKind.INTERNAL_ERROR:
                given = _error(*_INTERNAL_ERROR)
        self._note(request, fault, answers, body)
        self._send_due()
        return fault, given

    def _ask(
        self,
        request: ProxiedRequest,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        *,
        twice: bool,
    ) -> list[_Answer]:
        """The server's answers; none where it does not answer, as when it was killed."""
        answers = []
        for _ in range(2 if twice else 1):
            connection = http.client.HTTPConnection(
                "127.0.0.1", self._server_port, timeout=_SERVER_SECONDS_MAX
            )
            with suppress(OSError, http.client.HTTPException):
                connection.putrequest(
                    request.method, request.target, skip_host=True, skip_accept_encoding=True
                )
                for name, value in headers:
                    connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                answers.append(
                    _Answer(answer.status, answer.reason, tuple(answer.getheaders()), answer.read())
                )
            connection.close()
        return answers

    def _note(
        self, request: ProxiedRequest, fault: Fault, answers: list[_Answer], body: bytes
    ) -> None:
        exchange = Exchange(
            request,
            fault,
            tuple(answer.status for answer in answers),
            len(body),
            len(answers[-1].body) if answers else 0,
        )
        with self._lock:
            self._exchanges.append(exchange)

    def _send_due(self) -> None:
        """Sends on the delayed requests for which this one was the last to wait for."""
        due = []
        with self._lock:
            for each in self._delayed:
                each.left -= 1
                if each.left == 0:
                    due.append(each)
            self._delayed = [each for each in self._delayed if each.left]
        for each in due:
            self._send_late(each)

    def _send_late(self, late: _Delayed) -> None:
        headers = tuple(late.request.headers.items())
        answers = self._ask(late.request, headers, late.body, twice=False)
        self._note(late.request, late.fault, answers, late.body)


def _error(status: int, code: str) -> _Answer:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
    headers = (("Content-Type", "application/xml"),)
    return _Answer(status, http.client.responses[status], headers, body.encode())


class _Listener(socketserver.ThreadingTCPServer):
    """Accepts connections; a thread for each."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Takes errors as the end of a connection: of clients that have closed it."""

    def break_connections(self) -> None:
        with self._open_lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    # Else the body waits for the acknowledgement of the head.
    disable_nagle_algorithm = True
    server: _Listener

    def do_GET(self) -> None:
        """Deals with a request, of any method."""
        length = int(self.headers.get(_LENGTH, 0))
        if "transfer-encoding" in self.headers:
            self.send_error(411)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        headers = tuple(self.headers.items())
        fault, answer = self.server.proxy.deal_with(self.command, self.path, headers, body)
        if answer is None or fault.kind is FaultKind.ANSWER_LOST:
            self._break(is_reset=fault.is_reset)
            return
        whole = self._head(answer) + answer.body
        if fault.kind is FaultKind.ANSWER_HALVED:
            kept = len(whole) - (len(answer.body) + 1) // 2 if answer.body else len(whole) // 2
            self.wfile.write(whole[:kept])
            self._break(is_reset=fault.is_reset)
            return
        self.wfile.write(whole)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815  # the names that it looks for

    def _head(self, answer: _Answer) -> bytes:
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        # Of an object that is only asked about, the length is that of its body.
        dropped = _OF_CONNECTION - ({_LENGTH} if self.command == "HEAD" else set())
        lines += [
            f"{name}: {value}" for name, value in answer.headers if name.lower() not in dropped
        ]
        if _LENGTH in dropped and answer.status not in _WITHOUT_BODY:
            lines.append(f"Content-Length: {len(answer.body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _break(self, *, is_reset: bool) -> None:
        if is_reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            # The socket is closed when the last of these is; a shutdown before would be orderly.
            self.rfile.close()
            self.connection.close()
        else:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing: `exchanges` has it all."""
