"""Asks a running broker over HTTP, for the commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from cordwood.model.errors import ConfigError, CordwoodError

_CONNECT_S = 5.0
#: A compaction that a moved clock has made due may take its time.
ANSWER_S: Final = 3600.0


class EndpointError(CordwoodError):
    """The endpoint does not answer or refuses the request; the text says what to do."""


class RefusedError(EndpointError):
    """The endpoint refuses the request: its status, and the reason that it gives."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__(f"{url} answers {status}: {reason}")
        self.status = status
        self.reason = reason


def ask(
    url: str, path: str, method: str = "GET", *, body: bytes = b"", timeout_s: float = ANSWER_S
) -> Any:
    """The JSON that a node answers.

    Args:
        url: of its endpoint, such as `http://127.0.0.1:9464`.
        path: below that, with a query.
        method: GET or POST.
        body: of a POST, JSON.
        timeout_s: how long its answer may take.

    Raises:
        RefusedError: it refuses.
        EndpointError: there is no broker.
    """
    try:
        return json.loads(read(url, path, method, body=body, timeout_s=timeout_s))
    except ValueError:
        raise EndpointError(f"{url} is not the HTTP endpoint of a Cordwood broker") from None


def read(
    url: str, path: str, method: str = "GET", *, body: bytes = b"", timeout_s: float = ANSWER_S
) -> str:
    """The text that a node answers; as `ask`.

    Raises:
        RefusedError: it refuses.
        EndpointError: there is no node.
    """
    status, body = _request(url, path, method, body, timeout_s)
    text = body.decode("utf-8", "replace").strip()
    if status != HTTPStatus.OK:
        raise RefusedError(url, status, text)
    return text


def query_of(path: str, **parameters: str | Sequence[str]) -> str:
    """A path with the parameters of a query; one with several values occurs as often."""
    return f"{path}?{urlencode(parameters, doseq=True)}"


def parse_url(url: str) -> tuple[str, int | None]:
    """The host and the port of an endpoint's address.

    Raises:
        ConfigError: it is not of the form `http://HOST:PORT`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{url}: {error}") from error
    if parts.scheme != "http" or not host:
        raise ConfigError(f"{url}: expected http://HOST:PORT")
    return host, port


def _request(url: str, path: str, method: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
    try:
        host, port = parse_url(url)
    except ConfigError as error:
        raise EndpointError(str(error)) from error
    # With TLS, which it loads: commands that read files do not wait for it.
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415

    connection = HTTPConnection(host, port, timeout=_CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(timeout_s)
        headers = {"Content-Type": "application/json"} if method == "POST" else {}
        connection.request(method, urlsplit(url).path.rstrip("/") + path, body or None, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise EndpointError(
            f"nothing answers at {url} ({reason}). Is `cordwood serve` running there?"
        ) from error
    finally:
        connection.close()
