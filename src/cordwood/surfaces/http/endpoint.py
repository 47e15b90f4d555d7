"""A node's HTTP endpoint for status, metrics and the test clock.

    GET  /                            the paths that the node has
    GET  /broker                      the node's identity, and the other brokers of its cluster
    GET  /metrics                     metrics for Prometheus
    GET  /cleaner                     of a broker: the state of every compacted log, with the reason
    GET  /explain?topic=GLOB          of a broker: why each segment stays or goes, and when
    GET  /whatif?set=[T:]KEY=VALUE    of a broker: what changed settings would do; set and
                                      topic as often as needed, days=N, groups=false
    GET  /clock                       the node's time
    POST /clock/advance?ms=N          advances the clock, with --test-clock; `wait=false` leaves
                                      compaction to the cleaner's threads
    GET  /holds                       of a broker: the legal holds
    POST /holds/add?id=I&topic=T      adds one; with partition=N, reason=TEXT, by=NAME
    POST /holds/release?id=I          releases one; with by=NAME
    GET  /trash                       of a broker: what is in its trash
    POST /trash/restore?topic=T       restores a deleted topic; with hold=ID it is held
    POST /trash/empty?older_than_ms=N deletes for good what is that old; dry_run=true only looks
    GET  /erasures                    of a broker: erasures under way, and the last ones; id=I
    POST /erasures/start              starts one, described by a body of JSON
    GET  /health                      200 while the node serves
    GET  /ready                       of a broker: 200 while it is active with all replicas in sync

A request is refused if a page of another site may have sent it, and one that changes something if
it comes from another machine, unless that is allowed.

The endpoint has threads of its own. They ask the event loop for a copy of its state, which it makes
in slices; if the loop does not answer in time, the request fails. The loop never waits for the
endpoint. What takes longer the more a node has (`/metrics`, and of a broker `/cleaner`, `/explain`,
`/whatif` and `/trash`) is computed for one request at a time; beyond a number that wait it is
refused with 503 and a Retry-After.
"""

from __future__ import annotations

import concurrent.futures
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlsplit

from prometheus_client.exposition import choose_encoder

from cordwood import __version__
from cordwood.model.clock import MovableClock
from cordwood.model.documents import document_text
from cordwood.model.errors import (
    ConfigError,
    CordwoodError,
    NotCompactedError,
)
from cordwood.queries.clock import clock_answer
from cordwood.queries.identity import NodeIdentity
from cordwood.serving.addresses import in_url, is_address, is_loopback, is_wildcard
from cordwood.serving.request_errors import UnansweredRequestError
from cordwood.serving.transport import PortInUseError
from cordwood.surfaces.http.lane import Lane
from cordwood.surfaces.http.observed import Action, Document, ObservedNode
from cordwood.surfaces.http.server import Answer, HttpServer, Refusal, Request, RequestLimits

T = TypeVar("T")

_log = logging.getLogger(__name__)

PORT = 9464

_LOOP_ANSWERS_S = 5.0
#: A hundred years: far enough to try out any retention, and no timestamp leaves its 64 bits.
ADVANCE_MS_MAX = 100 * 366 * 86_400_000

_ADVICE = (
    "The clock was advanced, and all other work that is due was done. Use wait=false "
    "(`cordwood clock --no-wait`) to leave compaction to the cleaner's threads."
)

_JSON = "application/json; charset=utf-8"


def listen(port: int | None, host: str = "127.0.0.1") -> socket.socket:
    """A socket for an endpoint; clients that come before it serves wait.

    Args:
        port: 0 for any that is free; None for `PORT`, or any that is free if that is taken.
        host: the address to listen at.

    Raises:
        PortInUseError: another process has the port.
        ConfigError: it cannot be listened at, for another reason.
    """
    wanted = PORT if port is None else port
    try:
        return _listening(host, wanted)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not wanted:
            raise ConfigError(
                f"--http-port {wanted}: {host}:{wanted} cannot be listened at: {error.strerror}. "
                "Choose another port: 0 for any that is free, -1 for no metrics and status"
            ) from error
        if port is not None:
            raise PortInUseError(
                f"--http-port {port}: another process listens at {host}:{port}. Stop it, or choose "
                "another port: 0 for any that is free, -1 for no metrics and status"
            ) from error
    sock = _listening(host, 0)
    _log.warning(
        "Port %s of %s is in use: metrics and status are at http://%s:%s instead; --http-port "
        "chooses a port",
        *(PORT, host, in_url(host), sock.getsockname()[1]),
    )
    return sock


def _listening(host: str, port: int) -> socket.socket:
    """Listens; at `::` for clients of IPv4, too."""
    if ":" not in host:
        return socket.create_server((host, port))
    return socket.create_server(
        (host, port), family=socket.AF_INET6, dualstack_ipv6=is_wildcard(host)
    )


class HttpEndpoint:
    """Serves from its creation until `close`."""

    def __init__(
        self,
        node: ObservedNode,
        sock: socket.socket,
        *,
        limits: RequestLimits | None = None,
        remote_changes: bool = False,
    ) -> None:
        """Begins to serve.

        Args:
            node: started; to be stopped after this is closed.
            sock: of `listen`; closed by `close`.
            limits: bounds of requests.
            remote_changes: whether clients on other machines may change something.
        """
        self._node = node
        self._remote_changes = remote_changes
        self._registry = node.registry(self._on_loop)
        limits = limits or RequestLimits()
        lanes = [
            Lane(what, waiting_max=limits.waiting)
            for what in ("questions", "scrapes", "moves of the clock")
        ]
        self._questions, self._scrapes, self._moves = lanes
        # Full lanes leave `answers` for the others: a healthy node always answers /health.
        answers = limits.answers + sum(lane.size_max for lane in lanes)
        self._routes: dict[tuple[str, str], Callable[[Request], Answer]] = {
            ("GET", "/broker"): self._broker,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/clock"): self._clock,
            ("POST", "/clock/advance"): self._advance,
        }
        for path, document in node.documents.items():
            self._routes["GET", path] = self._showing(document)
        for path, question in node.questions.items():
            self._routes["GET", path] = self._one_at_a_time(self._showing(question))
        for path, action in node.actions.items():
            self._routes["POST", path] = self._doing(action)
        self._routes["GET", "/"] = self._index
        self.host, self.port = sock.getsockname()[:2]
        self._server = HttpServer(sock, self._answer, limits=replace(limits, answers=answers))
        node.published(f"http://{in_url(self.host)}:{self.port}")

    @property
    def identity(self) -> NodeIdentity:
        """The identity of this node."""
        return self._node.identity(self.url)

    @property
    def url(self) -> str:
        """The endpoint's URL on this machine, without a slash at the end."""
        host = self.host
        if is_wildcard(host):
            host = "::1" if ":" in host else "127.0.0.1"
        return f"http://{in_url(host)}:{self.port}"

    def close(self) -> None:
        """Stops listening; does not wait for requests in progress."""
        self._server.close()

    # ---- requests

    def _answer(self, request: Request) -> Answer:
        method, path = request.method, request.path
        route = self._routes.get((method, path))
        if route is not None:
            self._require_own_name(request)
            if method != "GET":
                self._require_own_page(request)
                self._require_near(request)
            return route(request)
        others = [known for known, at in self._routes if at == path]
        if others:
            raise Refusal(405, f"{path} takes {' and '.join(others)}, not {method}")
        known = ", ".join(at for _, at in self._routes)
        raise Refusal(404, f"there is no {path} here, but {known}")

    def _require_own_name(self, request: Request) -> None:
        """Refuses a request that a page reaches by a name of its own site (DNS rebinding).

        A browser sends the name that it has looked up in Host. A request without Host, or with an
        address in it, is of no such page: of these only what changes nothing is answered, unless
        it has reached that address.

        Raises:
            Refusal: the name in Host is not one of this node.
        """
        host = request.header("Host")
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            name = host
        if is_loopback(name) or name in {*self._names(), request.reached}:
            return
        if request.method == "GET" and (not host or is_address(name)):
            return
        raise Refusal(
            421,
            f"the Host {host!r} is not a name of this node: use localhost, its address, or the "
            "name of one of its listeners",
        )

    def _require_own_page(self, request: Request) -> None:
        """Refuses a change that a page of another site makes a browser send.

        A browser sends the page's site in Origin, and sends JSON to another site only after it has
        asked for permission, which is not granted.

        Raises:
            Refusal: the request may come from another site.
        """
        origin = request.header("Origin")
        if origin and origin.lower() != f"http://{request.header('Host').lower()}":
            raise Refusal(403, f"a page of {origin} may not change anything here")
        if request.headers.get_content_type() != "application/json":
            raise Refusal(415, "Content-Type: expected application/json")

    def _require_near(self, request: Request) -> None:
        """Refuses a request of another machine: clients are not authenticated.

        One of this machine comes from a loopback address, or from the very address that it has
        reached.

        Raises:
            Refusal: it is one, and they may not change anything.
        """
        is_here = is_loopback(request.peer) or (request.peer and request.peer == request.reached)
        if not (self._remote_changes or is_here):
            raise Refusal(
                403,
                f"{request.peer} may not change anything here: only clients on the node's own "
                "machine may, unless it is started with --http-remote-changes",
            )

    def _names(self) -> set[str]:
        """The names and addresses at which clients reach this node."""
        return {each.lower() for each in (self.host, *self._node.host_names) if each}

    def _index(self, _: Request) -> Answer:
        """The page of paths."""
        lines = [f"cordwood {__version__}: {self.identity}", ""]
        lines += [
            f"{method:4} {path}" for method, path in sorted(self._routes, key=lambda at: at[::-1])
        ]
        return Answer("\n".join([*lines, ""]).encode(), "text/plain; charset=utf-8")

    def _broker(self, _: Request) -> Answer:
        return _json(replace(self.identity, other_brokers=self._node.other_brokers))

    def _metrics(self, request: Request) -> Answer:
        encode, content_type = choose_encoder(request.header("Accept"))
        with self._scrapes.turn():
            return Answer(encode(self._registry), content_type)

    def _showing(self, document: Document) -> Callable[[Request], Answer]:
        return self._doing(lambda request: document(self._on_loop, request))

    def _one_at_a_time(self, route: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
        def answer(request: Request) -> Answer:
            with self._questions.turn():
                return route(request)

        return answer

    def _doing(self, action: Action) -> Callable[[Request], Answer]:
        def answer(request: Request) -> Answer:
            try:
                return _json(action(request))
            except Refusal:
                raise
            except ConfigError as error:
                raise Refusal(400, str(error)) from error
            except (CordwoodError, OSError) as error:
                raise Refusal(500, str(error)) from error

        return answer

    def _clock(self, _: Request) -> Answer:
        return _json(clock_answer(self._node.clock))

    def _advance(self, request: Request) -> Answer:
        clock = self._node.clock
        if not isinstance(clock, MovableClock):
            raise Refusal(
                403,
                "this node uses the machine's clock, which cannot be advanced: start it with "
                "--test-clock",
            )
        ms = _milliseconds(request.one("ms"))
        wait = request.one("wait", "true")
        if wait not in {"true", "false"}:
            raise Refusal(400, f"wait={wait}: expected true or false")
        with self._moves.turn():
            clock.advance(ms)
            try:
                self._node.run_due(compact=wait == "true")
            except NotCompactedError as error:
                raise Refusal(500, str(NotCompactedError(error.reasons, advice=_ADVICE))) from error
            # What tasks have handed over to the event loop is done, too.
            self._on_loop(lambda: None)
        return self._clock(request)

    # ---- the event loop

    def _on_loop(self, work: Callable[[], T]) -> T:
        """Runs work on the event loop and waits for the result.

        Raises:
            Refusal: the loop is busy, or stopped.
        """
        try:
            done = self._node.result_of(work)
            try:
                return done.result(_LOOP_ANSWERS_S)
            except concurrent.futures.TimeoutError:
                done.cancel()
                raise Refusal(503, "the node does not answer: it is busy") from None
        except (RuntimeError, UnansweredRequestError) as error:
            raise Refusal(503, f"the node is stopping: {error}") from error


def _json(value: object) -> Answer:
    return Answer(document_text(value).encode() + b"\n", _JSON)


def _milliseconds(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or int(text) > ADVANCE_MS_MAX:
        raise Refusal(
            400, f"ms={text}: expected a number of milliseconds from 0 to {ADVANCE_MS_MAX}"
        )
    return int(text)
