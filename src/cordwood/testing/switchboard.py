"""TCP proxies between the nodes of a cluster, whose links can be cut.

Each node has one port here, which it advertises; clients and other nodes connect to that port, and
the bytes are passed on to where the node listens. Who has made a connection is known as well: the
process at its other end is found by the connection's inode (/proc/net/tcp, /proc/PID/fd). So one
port for each node is enough to cut a node off in both directions, whatever its program is, and all
nodes have the same view of the addresses.

All links belong to the event loop of a thread of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

HOST: Final = "127.0.0.1"
_BACKLOG: Final = 512
_CALL_S: Final = 30.0
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_BUFFER_BYTES: Final = 1 << 20

T = TypeVar("T")


class Cut(Enum):
    """Way in which a node is cut off.

    `CLOSED`: connections are closed, and new ones closed as soon as they are made; the peers notice
    at once. `SILENT`: connections stay, and no byte passes, as when a cable is unplugged; the peers
    notice by their timeouts.
    """

    CLOSED = "closed"
    SILENT = "silent"


class _End(asyncio.Protocol):
    """One of the two connections of a link."""

    transport: asyncio.Transport

    def __init__(self, link: _Link) -> None:
        self._link = link
        self.other: _End | None = None
        self._stopped_by: set[str] = set()
        self._waiting: list[bytes] = []
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        self._link.connected(self)

    def data_received(self, data: bytes) -> None:
        if self.other is None:  # not connected further yet
            self._waiting.append(data)
        else:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self._has_ended = True
        if self.other is None:
            return True
        if self.other._has_ended:
            self._link.close(after=self)
        else:
            self.other.transport.write_eof()
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        self._link.close(after=self)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.stop_reading("full")

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.read_again("full")

    def join(self, other: _End) -> None:
        """Passes on to `other` what comes, and what has come."""
        self.other = other
        for data in self._waiting:
            other.transport.write(data)
        self._waiting.clear()
        if self._has_ended:
            other.transport.write_eof()

    def stop_reading(self, reason: str) -> None:
        """Reads nothing until no reason is left."""
        if not self._stopped_by:
            self.transport.pause_reading()
        self._stopped_by.add(reason)

    def read_again(self, reason: str) -> None:
        """Takes a reason back."""
        if reason in self._stopped_by:
            self._stopped_by.discard(reason)
            if not self._stopped_by and not self.transport.is_closing():
                self.transport.resume_reading()


class _Link:
    """A connection to a node: that to the proxy, and that from the proxy on."""

    def __init__(self, board: _Board, target: int) -> None:
        self._board = board
        self.nodes = {target}
        self.target = target
        self.near = _End(self)
        self.far: _End | None = None
        self._is_held = False

    def connected(self, end: _End) -> None:
        """Notes that one of the two connections is open."""
        if end is self.near:
            self._board.accepted(self)

    async def connect(self) -> None:
        """Connects to where the target listens; closes the link if nothing listens there."""
        far = _End(self)
        try:
            await self._board.loop.create_connection(
                lambda: far, HOST, self._board.ports[self.target]
            )
        except OSError:
            self.close()
            return
        self.far = far
        if self.near.transport.is_closing():
            self.close()
            return
        self.near.join(far)
        far.join(self.near)
        if self._is_held:
            far.stop_reading("held")

    def hold(self) -> None:
        """Passes nothing on until `release`."""
        self._is_held = True
        for end in self._ends():
            end.stop_reading("held")

    def release(self) -> None:
        """Passes on what has come meanwhile, and what comes."""
        self._is_held = False
        for end in self._ends():
            end.read_again("held")

    def close(self, *, after: _End | None = None) -> None:
        """Closes both connections: at once, or after one of them what it has sent is passed on."""
        self._board.links.discard(self)
        for end in self._ends():
            if after is None:
                end.transport.abort()
            else:
                end.transport.close()

    def _ends(self) -> Iterator[_End]:
        yield self.near
        if self.far is not None:
            yield self.far


class _Board:
    """The state that belongs to the thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ports: dict[int, int] = {}
        self.pids: dict[int, int] = {}
        self.links: set[_Link] = set()
        self.cuts: dict[int, Cut] = {}
        self._waiting: dict[_Link, None] = {}
        self._servers: list[asyncio.Server] = []
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, node_id: int, sock: socket.socket) -> None:
        server = await self.loop.create_server(
            lambda: _Link(self, node_id).near, sock=sock, backlog=_BACKLOG
        )
        self._servers.append(server)

    def accepted(self, link: _Link) -> None:
        self.links.add(link)
        source = self._source(link.near.transport)
        if source is not None:
            link.nodes.add(source)
        how = {self.cuts.get(each) for each in link.nodes}
        if self._is_closed or Cut.CLOSED in how:
            link.close()
        elif Cut.SILENT in how:
            link.hold()
            self._waiting[link] = None
        else:
            self._connect(link)

    def _connect(self, link: _Link) -> None:
        task = self.loop.create_task(link.connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _source(self, transport: asyncio.Transport) -> int | None:
        """The node whose process has made a connection; None for a client's."""
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not peer or not self.pids:
            return None
        inode = _inode(peer[1], own[1])
        if inode is None:
            return None
        for node_id, pid in self.pids.items():
            if _has_socket(pid, inode):
                return node_id
        return None

    def cut(self, node_id: int, how: Cut) -> None:
        self.cuts[node_id] = how
        for link in [each for each in self.links if node_id in each.nodes]:
            if how is Cut.CLOSED:
                self._waiting.pop(link, None)
                link.close()
            else:
                link.hold()

    def reconnect(self, node_id: int) -> None:
        self.cuts.pop(node_id, None)
        for link in [each for each in self.links if node_id in each.nodes]:
            if any(each in self.cuts for each in link.nodes):
                continue
            link.release()
            if link in self._waiting:
                del self._waiting[link]
                self._connect(link)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._is_closed = True
        for link in list(self.links):
            link.close()
        # Connections that are being accepted or made, too.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports that were aborted are closed in the next turn


class Switchboard:
    """The ports of a cluster's nodes; a `Wiring` of a `LocalCluster`, until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._board = _Board(self._loop)
        self._thread = threading.Thread(target=self._run, name="switchboard", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._board.close())
            loop.close()

    def advertised_port(self, node_id: int, port: int) -> int:
        """A port here from which connections are passed on to `port`, where the node listens."""
        sock = socket.create_server((HOST, 0), backlog=_BACKLOG)
        sock.setblocking(False)
        self._call(lambda: self._board.ports.update({node_id: port}))
        done = asyncio.run_coroutine_threadsafe(self._board.listen(node_id, sock), self._loop)
        done.result(_CALL_S)
        found: int = sock.getsockname()[1]
        return found

    def started(self, node_id: int, pid: int) -> None:
        """The process is the node from now on: connections that it makes are the node's."""
        self._call(lambda: self._board.pids.update({node_id: pid}))

    def cut_off(self, node_id: int, how: Cut = Cut.CLOSED) -> None:
        """Cuts all links of a node, to it and from it, to other nodes and to clients."""
        self._call(lambda: self._board.cut(node_id, how))

    def reconnect(self, node_id: int) -> None:
        """Takes a cut back; a link stays cut while the node at its other end is."""
        self._call(lambda: self._board.reconnect(node_id))

    def reconnect_all(self) -> None:
        """Takes all cuts back."""
        for node_id in self._call(lambda: list(self._board.cuts)):
            self.reconnect(node_id)

    def is_cut_off(self, node_id: int) -> bool:
        """Whether a node is cut off."""
        return self._call(lambda: node_id in self._board.cuts)

    @property
    def link_count(self) -> int:
        """The number of links that are open."""
        return self._call(lambda: len(self._board.links))

    def close(self) -> None:
        """Closes all links, and ends the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _call(self, work: Callable[[], T]) -> T:
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # the caller's
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(_CALL_S)


def _inode(port: int, peer_port: int) -> int | None:
    """The inode of the loopback socket at `port` whose peer is at `peer_port`."""
    ends = (f":{port:04X}", f":{peer_port:04X}")
    for table in _TABLES:
        with suppress(OSError), table.open(encoding="ascii") as lines:
            for line in lines:
                words = line.split(None, 10)
                if words[1].endswith(ends[0]) and words[2].endswith(ends[1]):
                    return int(words[9])
    return None


def _has_socket(pid: int, inode: int) -> bool:
    """Whether a process has this socket open; false of a process that is gone."""
    wanted = f"socket:[{inode}]"
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    for name in names:
        with suppress(OSError):
            if os.readlink(f"{directory}/{name}") == wanted:
                return True
    return False
