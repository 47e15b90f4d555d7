"""Links between nodes that are cut, with servers and clients of the test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from cordwood.testing.switchboard import HOST, Cut, Switchboard
from support.kafka import poll_until

WAIT_S = 30.0
#: Connects, and sends a line for each that it reads, until its standard input ends.
CLIENT = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
for line in sys.stdin:
    try:
        link.sendall(line.encode())
        answer = link.recv(100)
    except OSError:
        answer = b""
    print(answer.decode().strip() or "closed", flush=True)
"""


@contextmanager
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""

    def serve(sock: socket.socket) -> None:
        with sock, suppress(ConnectionError):  # a link may be reset
            while data := sock.recv(1 << 16):
                sock.sendall(data)

    def accept() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def board() -> Iterator[Switchboard]:
    with closing(Switchboard()) as made:
        yield made


@pytest.fixture
def port(board: Switchboard) -> Iterator[int]:
    """The port at which node 1, an echo, is reached."""
    with echo() as behind:
        yield board.advertised_port(1, behind)


def connected(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=WAIT_S)


def answer(sock: socket.socket, data: bytes) -> bytes:
    """The echoed bytes; none where the link is closed."""
    try:
        sock.sendall(data)
        return sock.recv(1 << 16)
    except ConnectionError:
        return b""


def test_bytes_pass_both_ways_and_an_end_is_passed_on(board: Switchboard, port: int) -> None:
    with connected(port) as sock:
        assert answer(sock, b"hello") == b"hello"
        assert board.link_count == 1
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(10) == b""
    poll_until(lambda: board.link_count == 0, timeout_s=WAIT_S, what="nothing is left of the link")


def test_nothing_is_left_of_a_link_whose_client_has_closed_it(
    board: Switchboard, port: int
) -> None:
    for _ in range(20):
        with connected(port) as sock:
            assert answer(sock, b"hello") == b"hello"
    poll_until(lambda: board.link_count == 0, timeout_s=WAIT_S, what="nothing is left of 20 links")


def test_more_bytes_than_buffers_hold_arrive_whole(port: int) -> None:
    data = os.urandom(1 << 20) * 8
    with connected(port) as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        got = bytearray()
        while len(got) < len(data):
            got += sock.recv(1 << 20)
        sender.join()
    assert got == data


def test_a_connection_to_a_node_that_does_not_listen_is_closed(board: Switchboard) -> None:
    with closing(socket.socket()) as unused:
        unused.bind((HOST, 0))
        port = board.advertised_port(1, unused.getsockname()[1])
        with connected(port) as sock:
            assert answer(sock, b"hello") == b""


def test_a_cut_closes_what_is_open_and_what_is_opened(board: Switchboard, port: int) -> None:
    with connected(port) as sock:
        assert answer(sock, b"hello") == b"hello"
        board.cut_off(1)
        assert answer(sock, b"hello") == b""
    with connected(port) as sock:
        assert answer(sock, b"hello") == b""
    board.reconnect(1)
    with connected(port) as sock:
        assert answer(sock, b"hello") == b"hello"


def test_a_silent_cut_closes_nothing_and_holds_what_is_sent(board: Switchboard, port: int) -> None:
    with connected(port) as old:
        assert answer(old, b"hello") == b"hello"
        board.cut_off(1, Cut.SILENT)
        with connected(port) as new:
            for sock in (old, new):
                sock.sendall(b"later")
                sock.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    sock.recv(10)
                sock.settimeout(WAIT_S)
            board.reconnect(1)
            assert old.recv(10) == b"later"
            assert new.recv(10) == b"later"


@contextmanager
def client(port: int) -> Iterator[tuple[int, Callable[[str], str]]]:
    """A process that is connected: its number, and what sends a line and gives the answer."""
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        assert stdout.readline() == "connected\n"

        def send(line: str) -> str:
            stdin.write(f"{line}\n")
            return stdout.readline().strip()

        yield process.pid, send
        process.kill()


def test_a_node_that_is_cut_off_reaches_no_other_node(board: Switchboard, port: int) -> None:
    """Nodes 2 and 3 are processes that have connected to node 1; a client is no node."""
    # The number of a process is known before it connects, as a node's is.
    script = f"import os; print(os.getpid(), flush=True); input()\n{CLIENT}"
    nodes = []
    for node_id in (2, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        nodes.append(process)
        assert process.stdout is not None
        assert process.stdin is not None
        board.started(node_id, int(process.stdout.readline()))
        process.stdin.write("go\n")
        assert process.stdout.readline() == "connected\n"

    def send(process: subprocess.Popen[str], line: str) -> str:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write(f"{line}\n")
        return process.stdout.readline().strip()

    try:
        with client(port) as (_, send_as_client):
            assert [send(each, "hello") for each in nodes] == ["hello", "hello"]
            board.cut_off(2)
            assert [send(each, "hello") for each in nodes] == ["closed", "hello"]
            assert send_as_client("hello") == "hello"
    finally:
        for each in nodes:
            each.kill()
            each.communicate()


def test_a_node_is_cut_off_until_it_is_reconnected(board: Switchboard, port: int) -> None:
    del port
    board.cut_off(1)
    assert board.is_cut_off(1)
    board.reconnect_all()
    assert not board.is_cut_off(1)


def test_it_ends_while_clients_connect(board: Switchboard, port: int) -> None:
    is_over = threading.Event()

    def connect() -> None:
        while not is_over.is_set():
            with suppress(OSError), connected(port) as sock:
                answer(sock, b"hello")

    clients = [threading.Thread(target=connect) for _ in range(4)]
    for each in clients:
        each.start()
    try:
        poll_until(lambda: board.link_count > 0, timeout_s=WAIT_S, what="a link")
        board.close()
    finally:
        is_over.set()
        for each in clients:
            each.join()


def test_its_end_closes_links(port: int, board: Switchboard) -> None:
    with connected(port) as sock:
        assert answer(sock, b"hello") == b"hello"
        board.close()
        poll_until(lambda: answer(sock, b"x") == b"", timeout_s=WAIT_S, what="the link is closed")
