"""Clients meet a broker that is not ready: some of their requests are refused, or lose the answer.

A proxy before a running broker, which advertises the proxy's address. What a script says of an API
happens to its next requests, one entry each; others are passed on.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from cordwood.protocol.apis import APIS
from cordwood.protocol.headers import parse_start, response_header
from cordwood.protocol.messages import encode, response_codec
from cordwood.protocol.requests import RequestReader
from cordwood.serving.error_answers import error_answer
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine

LOST = -100
"""An entry of a script: the request is carried out, and the connection ends without an answer."""


class CarriedOut(NamedTuple):
    """An entry of a script: the request is carried out, and answered with an error nonetheless."""

    code: int


Entry = int | CarriedOut


class EarlyBroker:
    """A broker that answers as a script says; a context manager."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.bootstrap_servers = f"127.0.0.1:{port}"
        advertised = {"advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}"}
        self.broker = RunningBroker({**(properties or {}), **advertised}, engine=NoEngine)
        self._script: dict[str, list[Entry]] = {}
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        self.broker.start()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.broker.stop()

    def say(self, **script: Sequence[Entry]) -> None:
        """What the next requests of each API get: codes of errors, `CarriedOut`, or `LOST`."""
        self._script = {api: list(entries) for api, entries in script.items()}

    @property
    def unsaid(self) -> dict[str, list[Entry]]:
        """The entries for which no request has come."""
        return {api: entries for api, entries in self._script.items() if entries}

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, port = self.broker.bootstrap_servers.split(":")
                server = socket.create_connection((host, int(port)))
                self._sockets += [client, server]
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError, EOFError):
            while True:
                frame = _frame(client)
                header = parse_start(memoryview(frame))
                entries = self._script.get(APIS[header.api_key].snake_name)
                entry = entries.pop(0) if entries else 0
                if not isinstance(entry, CarriedOut) and entry not in {0, LOST}:
                    client.sendall(_sized(_refusal(frame, entry)))
                    continue
                server.sendall(_sized(frame))
                if _wants_answer(frame):
                    answer = _frame(server)
                    if entry == LOST:
                        return
                    if isinstance(entry, CarriedOut):
                        answer = _refusal(frame, entry.code)
                    client.sendall(_sized(answer))


def _refusal(frame: bytes, code: int) -> bytes:
    view = memoryview(frame)
    header = parse_start(view)
    request = RequestReader(header.api_key, header.api_version).read(view, header.body_at)
    fields = error_answer(header.api_key, header.api_version, request, code, None)
    assert fields is not None, "the answer can say it"
    codec = response_codec(header.api_key, header.api_version)
    return response_header(header.correlation_id, flexible=codec.is_flexible) + encode(
        codec, fields
    )


def _wants_answer(frame: bytes) -> bool:
    view = memoryview(frame)
    header = parse_start(view)
    if header.api_key != 0:
        return True
    request = RequestReader(header.api_key, header.api_version).read(view, header.body_at)
    return bool(request.acks)


def _sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _frame(source: socket.socket) -> bytes:
    return _exactly(source, int.from_bytes(_exactly(source, 4), "big"))


def _exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
