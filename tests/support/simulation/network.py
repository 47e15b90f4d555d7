"""A network of nodes: connections whose bytes arrive late, never, or after those of others.

Fault model, with why the cluster must survive it: bytes of one connection arrive in order, as TCP
promises. Between connections everything may happen: any delay, also above the timeouts, so that a
request is carried out although its sender has given it up and sent it again on another connection
(a duplicate, out of order); a connection that ends before or after a request was delivered; links
that are cut in one direction or in both, where bytes wait until the link is whole again, and
nobody learns that the other end has gone. All protocols must be right whatever is lost or late.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from support.simulation.event_loop import PROCESS, Process, SimulatedLoop

_OWN_DELAY_S: Final = 0.0002

Accept = Callable[["Transport"], asyncio.Protocol]


@dataclass(slots=True, kw_only=True)
class Weather:
    """Quality of the network: times in ms, chances for each piece that is sent."""

    delay_ms: float = 1.0
    spike_chance: float = 0.0
    spike_ms: float = 0.0
    reset_chance: float = 0.0


class Transport(asyncio.Transport):
    """One end of a connection, as `asyncio.Transport`."""

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.protocol: asyncio.Protocol | None = None
        self.peer: Transport | None = None
        self.is_open = True
        #: When the last piece arrives that was sent from here; none overtakes it.
        self.last_arrival_s = 0.0
        #: What waits since the link is cut: what to do at the other end.
        self.waiting: list[Callable[[], None]] = []

    def write(self, data: Any) -> None:
        """Sends bytes."""
        if self.is_open:
            self._network.send(self, bytes(data))

    def abort(self) -> None:
        """Closes the connection at once; the protocol here is not notified."""
        if self.is_open and not self._network.is_over:
            self.is_open = False
            self._network.closed(self)

    def close(self) -> None:
        """Closes the connection at once."""
        self.abort()

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return not self.is_open

    def take(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self.is_open and self.protocol is not None:
            self.protocol.data_received(data)

    def lost(self) -> None:
        """The other end has gone."""
        if self.is_open:
            self.is_open = False
            if self.protocol is not None:
                self.protocol.connection_lost(None)


class Network:
    """The nodes that listen, and the links between nodes."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random) -> None:
        """All links are whole."""
        self._loop = loop
        self._rng = rng
        self.weather = Weather()
        self.is_over = False
        self._listeners: dict[tuple[str, int], tuple[Process, Accept]] = {}
        self._transports: dict[Transport, None] = {}
        self._cut: dict[tuple[str, str], None] = {}
        loop.network = self

    # ---- nodes

    def listen(self, process: Process, port: int, accept: Accept) -> None:
        """Has a process take connections at its node.

        Connections to the process before it end: TCP sends again what was not received, and the
        node's system does not know them any more.
        """
        self._listeners[process.name, port] = process, accept
        for each in list(self._transports):
            peer = each.peer
            if peer is not None and peer.process.name == process.name and peer.process.is_dead:
                self._loop.call_later(self._delay_s(), each.lost, context=each.process.context)

    def stop_listening(self, process: Process) -> None:
        """Refuses further connections to a process, and ends those that there are."""
        self._listeners = {
            key: each for key, each in self._listeners.items() if each[0] is not process
        }

    def process_ended(self, process: Process, *, says_so: bool) -> None:
        """A process has ended; with `says_so` its system ends the connections at once."""
        self.stop_listening(process)
        for each in [each for each in self._transports if each.process is process]:
            if says_so:
                each.abort()
            else:
                each.is_open = False
                self._transports.pop(each, None)

    # ---- links

    def cut(self, source: str, target: str) -> None:
        """Nothing arrives any more that `source` sends to `target`."""
        self._cut[source, target] = None

    def heal(self) -> None:
        """All links are whole: what waits arrives."""
        self._cut.clear()
        for each in list(self._transports):
            waiting, each.waiting = each.waiting, []
            for arrive in waiting:
                self._deliver(each, arrive)

    def _is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    # ---- connections

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[Transport, asyncio.Protocol]:
        """Connects, for the process that runs.

        Raises:
            ConnectionRefusedError: nobody listens there.
        """
        process = PROCESS.get()
        assert process is not None, "only processes connect"
        await asyncio.sleep(self._delay_s())
        while self._is_cut(process.name, host) or self._is_cut(host, process.name):
            await asyncio.sleep(0.1)
        found = self._listeners.get((host, port))
        if found is None or found[0].is_dead:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        server, accept = found
        near, far = Transport(self, process), Transport(self, server)
        near.peer, far.peer = far, near
        self._transports[near] = self._transports[far] = None
        near.protocol = protocol_factory()
        near.protocol.connection_made(near)
        far.protocol = accept(far)
        return near, near.protocol

    def send(self, sender: Transport, data: bytes) -> None:
        """Has bytes arrive at the other end, some time."""
        peer = sender.peer
        assert peer is not None, "connected"
        if self._rng.random() < self.weather.reset_chance:
            if self._rng.random() < 0.5:
                self._post(sender, lambda: peer.take(data))
            self._reset(sender)
            return
        self._post(sender, lambda: peer.take(data))

    def _reset(self, sender: Transport) -> None:
        """The connection ends at both ends, each at its time."""
        peer = sender.peer
        assert peer is not None, "connected"
        self._post(sender, peer.lost)
        self._post(peer, sender.lost)
        self._transports.pop(sender, None)
        self._transports.pop(peer, None)

    def closed(self, end: Transport) -> None:
        """One end was closed; the other learns of it."""
        self._transports.pop(end, None)
        if end.peer is not None and end.peer.is_open:
            self._transports.setdefault(end, None)  # for what still waits here
            self._post(end, end.peer.lost)

    def _post(self, sender: Transport, arrive: Callable[[], None]) -> None:
        peer = sender.peer
        assert peer is not None, "connected"
        if sender.waiting or self._is_cut(sender.process.name, peer.process.name):
            sender.waiting.append(arrive)
            self._transports.setdefault(sender, None)
        else:
            self._deliver(sender, arrive)

    def _deliver(self, sender: Transport, arrive: Callable[[], None]) -> None:
        peer = sender.peer
        assert peer is not None, "connected"
        at_s = max(self._loop.time() + self._delay_s(), sender.last_arrival_s + 1e-7)
        sender.last_arrival_s = at_s
        self._loop.call_at(at_s, arrive, context=peer.process.context)

    def _delay_s(self) -> float:
        weather, rng = self.weather, self._rng
        delay_ms = rng.expovariate(1 / weather.delay_ms) if weather.delay_ms else 0.0
        if weather.spike_chance and rng.random() < weather.spike_chance:
            delay_ms += rng.random() * weather.spike_ms
        return _OWN_DELAY_S + delay_ms / 1000
