"""What a broker tells of itself over HTTP, beside Kafka's port.

    GET  /broker                      which broker this is: ids, process, log directories
    GET  /metrics                     for Prometheus
    GET  /cleaner                     what the cleaner makes of every compacted log, and why
    GET  /clock                       the broker's time
    POST /clock/advance?ms=N          moves it on, with --test-clock; `wait=false` leaves compaction
                                      to the cleaner's threads
    GET  /health                      200 while clients are served

It has threads of its own. What belongs to the event loop is asked of the loop, which copies it; a
loop that does not answer in time makes a request fail, never the other way round.
"""

from __future__ import annotations

import concurrent.futures
import json
import logging
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from prometheus_client.exposition import choose_encoder

from cordwood import __version__
from cordwood.model.clock import MovableClock
from cordwood.model.errors import CordwoodError, NotCompactedError
from cordwood.surfaces.http.identity import BrokerIdentity
from cordwood.surfaces.metrics.collector import registry
from cordwood.surfaces.metrics.snapshot import Snapshot, take

if TYPE_CHECKING:
    from cordwood.node import Node

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LOOP_ANSWERS_S = 5.0
_CLIENT_SENDS_S = 10.0
_REQUESTS_MAX = 16
#: A hundred years: far enough to try out any retention, and no timestamp leaves its 64 bits.
ADVANCE_MS_MAX = 100 * 366 * 86_400_000

_ADVICE = (
    "The clock was moved, and everything else that is due by then is done. Give wait=false "
    "(`cordwood clock --no-wait`) to leave compaction to the cleaner's threads."
)

_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"


class _Refusal(CordwoodError):
    """A request that is not granted: an HTTP status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Answer(NamedTuple):
    body: bytes
    content_type: str = _JSON


class _Request(NamedTuple):
    query: dict[str, list[str]]
    accept: str

    def one(self, name: str, default: str = "") -> str:
        """A parameter of the query."""
        return self.query.get(name, [default])[-1]


class HttpEndpoint:
    """Serves from when it is made until `close`."""

    def __init__(self, node: Node, port: int, host: str = "127.0.0.1") -> None:
        """Listens; where the port is taken, at another, since a broker runs without metrics too.

        Args:
            node: started; to be stopped after this is closed.
            port: 0 for any that is free.
            host: the address to listen at.
        """
        self._node = node
        self._registry = registry(self._snapshot)
        self._moving = threading.Lock()
        self._routes: dict[tuple[str, str], Callable[[_Request], _Answer]] = {
            ("GET", "/broker"): self._broker,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/cleaner"): self._cleaner,
            ("GET", "/clock"): self._clock,
            ("POST", "/clock/advance"): self._advance,
            ("GET", "/health"): self._health,
        }
        self._server = _listen(host, port, partial(_Handler, self._answer))
        self.host = host
        self.port: int = self._server.server_address[1]
        if port not in {0, self.port}:
            _log.warning(
                "Port %s of %s is in use: metrics and status are at %s instead",
                port,
                host,
                self.url,
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="http-endpoint", daemon=True
        )
        self._thread.start()
        configs = node.broker.configs
        node.broker.call_soon(lambda: setattr(configs, "http_url", self.url))

    @property
    def identity(self) -> BrokerIdentity:
        """Which broker answers here."""
        return BrokerIdentity.of(self._node, self.url)

    @property
    def url(self) -> str:
        """Where it is, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    def close(self) -> None:
        """Stops listening; requests under way are not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ---- requests

    def _answer(self, method: str, path: str, request: _Request) -> _Answer:
        route = self._routes.get((method, path))
        if route is not None:
            return route(request)
        others = [known for known, at in self._routes if at == path]
        if others:
            raise _Refusal(405, f"{path} takes {' and '.join(others)}, not {method}")
        known = ", ".join(at for _, at in self._routes)
        raise _Refusal(404, f"there is no {path} here, but {known}")

    def _broker(self, _: _Request) -> _Answer:
        return _json(self.identity.to_json())

    def _metrics(self, request: _Request) -> _Answer:
        encode, content_type = choose_encoder(request.accept)
        return _Answer(encode(self._registry), content_type)

    def _cleaner(self, _: _Request) -> _Answer:
        return _json(self._node.broker.cleaner.status())

    def _clock(self, _: _Request) -> _Answer:
        clock = self._node.clock
        is_movable = isinstance(clock, MovableClock)
        ahead_ms = clock.ahead_ms if isinstance(clock, MovableClock) else 0
        return _json({"now_ms": clock.now_ms(), "ahead_ms": ahead_ms, "movable": is_movable})

    def _advance(self, request: _Request) -> _Answer:
        clock = self._node.clock
        if not isinstance(clock, MovableClock):
            raise _Refusal(
                403,
                "this broker goes by the machine's clock, which is not moved: start it with "
                "--test-clock",
            )
        ms = _milliseconds(request.one("ms"))
        wait = request.one("wait", "true")
        if wait not in {"true", "false"}:
            raise _Refusal(400, f"wait={wait}: expected true or false")
        with self._moving:
            clock.advance(ms)
            try:
                self._node.run_due(compact=wait == "true")
            except NotCompactedError as error:
                raise _Refusal(
                    500, str(NotCompactedError(error.reasons, advice=_ADVICE))
                ) from error
            # What tasks have handed over to the event loop is done, too.
            self._on_loop(lambda: None)
        return self._clock(request)

    def _health(self, _: _Request) -> _Answer:
        connections = self._on_loop(lambda: self._node.server.connection_count)
        offline = self._node.broker.logs.context.failures.offline
        return _json(
            {
                "status": "ok",
                "version": __version__,
                "cluster_id": self._node.broker.cluster_id,
                "node_id": self._node.broker.node_id,
                "connections": connections,
                "offline_log_dirs": {str(path): reason for path, reason in offline.items()},
            }
        )

    # ---- the event loop

    def _snapshot(self) -> Snapshot:
        return self._on_loop(lambda: take(self._node))

    def _on_loop(self, work: Callable[[], T]) -> T:
        """What `work` gives on the event loop's thread.

        Raises:
            _Refusal: the loop is busy, or stopped.
        """
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work())
                except BaseException as error:  # the caller's
                    done.set_exception(error)

        try:
            self._node.broker.call_soon(run)
            return done.result(_LOOP_ANSWERS_S)
        except concurrent.futures.TimeoutError:
            done.cancel()
            raise _Refusal(503, "the broker does not answer: it is busy") from None
        except RuntimeError as error:
            raise _Refusal(503, f"the broker is stopping: {error}") from error


class _Server(ThreadingHTTPServer):
    """With a bound on the threads that answer."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, *arguments: Any) -> None:
        self._free = threading.BoundedSemaphore(_REQUESTS_MAX)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("A request of %s ended early", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One connection, of which one request is answered."""

    timeout = _CLIENT_SENDS_S
    server_version = f"cordwood/{__version__}"
    sys_version = ""

    def __init__(self, answer: Callable[[str, str, _Request], _Answer], *arguments: Any) -> None:
        self._answer = answer
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answers."""
        self._respond("GET")

    def do_POST(self) -> None:
        """Answers; a body is not read."""
        self._respond("POST")

    def _respond(self, method: str) -> None:
        url = urlsplit(self.path)
        request = _Request(parse_qs(url.query), self.headers.get("Accept", ""))
        status = 200
        try:
            answer = self._answer(method, url.path, request)
        except _Refusal as refusal:
            status, answer = refusal.status, _Answer(f"{refusal}\n".encode(), _TEXT)
        except Exception as error:
            _log.exception("Cannot answer %s %s", method, url.path)
            status, answer = 500, _Answer(f"{error}\n".encode(), _TEXT)
        self.send_response(status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's
        _log.debug("%s %s", self.address_string(), format % args)


def _listen(host: str, port: int, handler: Callable[..., _Handler]) -> _Server:
    try:
        return _Server((host, port), handler)
    except OSError:
        if port == 0:
            raise
        return _Server((host, 0), handler)


def _json(value: object) -> _Answer:
    return _Answer(json.dumps(value, default=str).encode() + b"\n")


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or int(text) > ADVANCE_MS_MAX:
        raise _Refusal(
            400, f"ms={text}: expected a number of milliseconds from 0 to {ADVANCE_MS_MAX}"
        )
    return int(text)
