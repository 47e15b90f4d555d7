"""Spark's Python daemon, started before Spark: it imports while the virtual machine starts.

It takes the place of the daemon that the virtual machine starts, see `daemon`. It ends when its
standard input is closed: first that which the driver holds, then that which the virtual machine
holds.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from pathlib import Path

from cordwood.cleanup.engine.spark.daemon import WARM_DAEMON, load, serve, socket_name
from cordwood.storage.filesystem import OS


def _bound(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_name(f"{path}.new") as name:
        listener.bind(name)
    listener.listen(1)
    # Nobody connects before it is ready.
    OS.rename(Path(f"{path}.new"), Path(path))
    return listener


def _accepted(listener: socket.socket, path: str) -> socket.socket | None:
    """The connection of the daemon that Spark has started; None if the driver has ended."""
    readable, _, _ = select.select([0, listener.fileno()], [], [])
    if 0 in readable:
        return None
    connection, _ = listener.accept()
    OS.remove(Path(path))
    listener.close()
    return connection


def _take_over(connection: socket.socket) -> None:
    """Takes the place of the process at the other end."""
    size, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    data = b""
    while len(data) < int.from_bytes(size, "big"):
        received = connection.recv(1 << 16)
        if not received:
            raise SystemExit("the process at the other end has ended")
        data += received
    order = json.loads(data)
    for at, descriptor in enumerate(descriptors):
        os.dup2(descriptor, at)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv[1:] = order["arguments"]
    connection.sendall(b"!")


def main() -> None:
    """Waits for the virtual machine, and serves as its daemon."""
    path = os.environ[WARM_DAEMON]
    if os.getsid(0) == os.getpid():
        # The daemon makes a process group of its own, which the leader of a session cannot.
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
    listener = _bound(path)
    load()
    connection = _accepted(listener, path)
    if connection is not None:
        _take_over(connection)
        # The connection stays open as long as this process lives.
        serve()


if __name__ == "__main__":
    main()
