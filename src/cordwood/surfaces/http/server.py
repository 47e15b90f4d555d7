"""A small HTTP/1.1 server in a thread of its own: one request a connection, everything bounded.

A request is received and an answer is taken within a time in total, however slowly bytes come or
go. A connection above a number takes the place of the one whose client is waited for the longest,
so that slow clients cannot keep others out. An answer is made in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from cordwood import __version__
from cordwood.model.errors import CordwoodError
from cordwood.serving.addresses import unmapped

_log = logging.getLogger(__name__)

_TEXT = "text/plain; charset=utf-8"
_BACKLOG = 128
_HEADERS_MAX = 100
_RETRY_AFTER_S = 1
_END_OF_HEAD = b"\r\n\r\n"


class Refusal(CordwoodError):
    """A refused request: an HTTP status, the reason, and in how many seconds to try again."""

    def __init__(self, status: int, reason: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after_s = retry_after_s


class Answer(NamedTuple):
    """The body of an answer; a refusal may say in how many seconds to try again."""

    body: bytes
    content_type: str
    retry_after_s: int | None = None


class Request(NamedTuple):
    """A request; `peer` is the client's address, `reached` the one that it has connected to."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: Message
    body: bytes = b""
    peer: str = ""
    reached: str = ""

    def one(self, name: str, default: str = "") -> str:
        """A parameter of the query."""
        return self.query.get(name, [default])[-1]

    def all(self, name: str) -> list[str]:
        """Every value of a parameter of the query that may occur several times."""
        return self.query.get(name, [])

    def header(self, name: str) -> str:
        """A header's value; empty if it is missing."""
        return str(self.headers.get(name, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of requests: total seconds, bytes, and concurrent requests.

    `answers` is of those that are being answered, beside those in the endpoint's lanes; `waiting`
    of those of one lane that wait.
    """

    receive_s: float = 10.0
    send_s: float = 10.0
    head_bytes: int = 16 << 10
    body_bytes: int = 1 << 20
    connections: int = 128
    answers: int = 16
    waiting: int = 7


class HttpServer:
    """Serves from its creation until `close`."""

    def __init__(
        self,
        sock: socket.socket,
        answer: Callable[[Request], Answer],
        *,
        limits: RequestLimits | None = None,
    ) -> None:
        """Listens.

        Args:
            sock: bound; closed by `close`.
            answer: is called in a thread of its own, and may raise a Refusal.
            limits: bounds of requests.
        """
        self._limits = limits or RequestLimits()
        self._answer = answer
        # Connections whose client has to send or to take something, the oldest first.
        self._slow: dict[asyncio.StreamWriter, None] = {}
        self._open = 0
        self._answering = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="http-endpoint", daemon=True)
        self._thread.start()
        # In that thread: the caller's may run an event loop of its own.
        listening = asyncio.start_server(
            self._serve, sock=sock, limit=self._limits.head_bytes, backlog=_BACKLOG
        )
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()

    def close(self) -> None:
        """Stops listening; does not wait for requests in progress."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
        finally:
            self._server.close()
            loop.run_until_complete(self._end())
            loop.close()

    async def _end(self) -> None:
        this = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not this]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- one connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            await self._serve_one(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError) as error:
            _log.debug("A request ended early: %r", error)
        finally:
            self._open -= 1
            self._slow.pop(writer, None)
            # What the client has not taken by now it does not get.
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._can_accept():
            return
        self._slow[writer] = None
        try:
            async with asyncio.timeout(self._limits.receive_s):
                request = await self._receive(reader)
                request = request._replace(
                    peer=_host(writer, "peername"), reached=_host(writer, "sockname")
                )
        except TimeoutError:
            seconds = f"{self._limits.receive_s:g} s"
            status, answer = 408, _text(f"the request was not received within {seconds}")
        except Refusal as refusal:
            status, answer = refusal.status, _text(str(refusal))
        else:
            self._slow.pop(writer, None)
            status, answer = await self._answered(request)
            self._slow[writer] = None
        writer.write(_head(status, answer) + answer.body)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.send_s):
                writer.close()
                await writer.wait_closed()

    def _can_accept(self) -> bool:
        """Whether one more connection is allowed; closes the oldest slow one if needed."""
        if self._open > self._limits.connections:
            oldest = next(iter(self._slow), None)
            if oldest is None:
                return False
            del self._slow[oldest]
            oldest.transport.abort()
        return True

    async def _receive(self, reader: asyncio.StreamReader) -> Request:
        try:
            head = await reader.readuntil(_END_OF_HEAD)
        except asyncio.LimitOverrunError:
            raise Refusal(
                431, f"the request's head is larger than {self._limits.head_bytes} bytes"
            ) from None
        line, _, rest = head.partition(b"\r\n")
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise Refusal(400, "not a request of HTTP/1.1")
        if rest.count(b"\n") > _HEADERS_MAX:
            raise Refusal(431, f"the request has more than {_HEADERS_MAX} headers")
        try:
            headers = HeaderParser().parsestr(rest.decode("latin-1"))
            url = urlsplit(words[1])
            size = _size_of_body(headers.get("Content-Length", "0"))
            query = parse_qs(url.query)
        except ValueError as error:
            raise Refusal(400, f"the request's head is malformed: {error}") from None
        if headers.get("Transfer-Encoding") is not None:
            raise Refusal(411, "a body needs a Content-Length")
        if size > self._limits.body_bytes:
            raise Refusal(413, f"a body may have at most {self._limits.body_bytes} bytes")
        body = await reader.readexactly(size)
        return Request(words[0], url.path, query, headers, body)

    async def _answered(self, request: Request) -> tuple[int, Answer]:
        if self._answering >= self._limits.answers:
            many = f"{self._answering} requests are being answered: try again later"
            return 503, _text(many)._replace(retry_after_s=_RETRY_AFTER_S)
        loop = self._loop
        done: asyncio.Future[tuple[int, Answer]] = loop.create_future()

        def settle(result: tuple[int, Answer]) -> None:
            self._answering -= 1
            if not done.done():
                done.set_result(result)

        def work() -> None:
            result = _answer(self._answer, request)
            with suppress(RuntimeError):  # the connection was closed in the meantime
                loop.call_soon_threadsafe(settle, result)

        self._answering += 1
        threading.Thread(target=work, name="http-request", daemon=True).start()
        return await done


def _host(writer: asyncio.StreamWriter, end: str) -> str:
    return unmapped(str(writer.get_extra_info(end)[0]))


def _size_of_body(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"Content-Length: {text!r}")
    return int(text)


def _answer(answer: Callable[[Request], Answer], request: Request) -> tuple[int, Answer]:
    try:
        return 200, answer(request)
    except Refusal as refusal:
        return refusal.status, _text(str(refusal))._replace(retry_after_s=refusal.retry_after_s)
    except Exception as error:
        _log.exception("Cannot answer %s %s", request.method, request.path)
        return 500, _text(str(error))


def _text(text: str) -> Answer:
    return Answer(f"{text}\n".encode(), _TEXT)


def _head(status: int, answer: Answer) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Server: cordwood/{__version__}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
    ]
    if answer.retry_after_s is not None:
        lines.append(f"Retry-After: {answer.retry_after_s}")
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")
