"""The process that Spark forks its Python workers from, with all that they need loaded before.

Workers then share its memory, and none of them spends seconds on the same imports. For a local
master such a process has started beside the virtual machine, by `warm_daemon`. What the virtual
machine starts then only passes its standard input, output and environment on to it, and lives as
long as it does.

Source: pyspark.daemon; org.apache.spark.api.python.PythonWorkerFactory.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

#: The environment variable that names the socket of the warm daemon.
WARM_DAEMON: Final = "CORDWOOD_WARM_DAEMON"


@contextmanager
def socket_name(path: str) -> Iterator[str]:
    """A name of the socket `path` that is short enough for its address, which has 107 bytes."""
    directory, name = os.path.split(path)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)


def hand_over(path: str) -> bool:
    """Passes this process's place on to the warm daemon, and waits for its end.

    Returns:
        False if there is none: it has a place already, has ended, or did not start.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            with socket_name(path) as name:
                connection.connect(name)
            order = json.dumps({"environment": dict(os.environ), "arguments": sys.argv[1:]})
            data = order.encode()
            socket.send_fds(connection, [len(data).to_bytes(8, "big")], [0, 1, 2])
            connection.sendall(data)
            if not connection.recv(1):
                return False
        except OSError:
            return False
        # From now on these are the other's: the virtual machine sees its end by them.
        for descriptor in (0, 1):
            os.close(descriptor)
        with suppress(OSError):
            connection.recv(1)
        return True


def load() -> None:
    """Imports all that workers need."""
    import pyspark.daemon  # noqa: PLC0415  # seconds, and not for a process that only waits
    import pyspark.worker  # noqa: F401, PLC0415

    import cordwood.cleanup.engine.spark.worker  # noqa: F401, PLC0415

    # It stays: a worker, which collects garbage after every task, need not look through it.
    gc.collect()
    gc.freeze()


def serve() -> None:
    """Forks workers for the virtual machine, until that ends."""
    import pyspark.daemon  # noqa: PLC0415

    pyspark.daemon.manager()


def main() -> None:
    """Serves as Spark's daemon, unless a warm one does."""
    path = os.environ.get(WARM_DAEMON)
    if path and hand_over(path):
        return
    load()
    serve()


if __name__ == "__main__":
    main()
