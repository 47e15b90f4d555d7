"""Clients that send what no client should are refused or hung up on; the others are served."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest

from cordwood.format.compression import Codec, compress
from cordwood.format.record_batch import Record, build_batch
from support.bounded_frames import bounded_frames
from support.length_fuzz import send
from support.served import ServedBroker
from support.wire import Wire, request_body, request_frame

_MIB = 1 << 20
_API_VERSIONS, _METADATA, _UNREGISTER_BROKER = 18, 3, 64


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("hostile") / "logs") as running:
        yield running
        assert "Traceback" not in running.log, running.log[-4000:]


@pytest.fixture
def wire(broker: ServedBroker) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


def memory(broker: ServedBroker) -> int:
    """Resident bytes of the broker's process."""
    for line in Path(f"/proc/{broker.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def connect(broker: ServedBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), 30)


def serves(wire: Wire) -> bool:
    return bool(wire.ask("metadata", 9, {"topics": []})["brokers"])


def ends(sock: socket.socket) -> bool:
    """Whether the other side answers or closes, within the socket's time."""
    with contextlib.suppress(ConnectionError):
        sock.recv(1 << 16)
    return True


def valid_frames(wire: Wire) -> list[bytes]:
    """A request of each API in its lowest and highest version, at its defaults.

    But for UnregisterBroker: who may ask for that, and gets the number right, takes the one broker
    away, here as in Kafka.
    """
    frames = []
    for key, versions in wire.versions().items():
        if key == _UNREGISTER_BROKER:
            continue
        for version in {versions[0] if key else 3, versions[-1]}:
            frames.append(request_frame(key, version, 1, "c", request_body(key, version, {})))
    return frames


@pytest.mark.parametrize(
    "count", [600, pytest.param(20_000, marks=pytest.mark.nightly)], ids=["some", "many"]
)
def test_mutated_requests_are_answered_or_refused(
    broker: ServedBroker, wire: Wire, count: int
) -> None:
    rng = random.Random(count)
    frames = valid_frames(wire)
    before = memory(broker)
    for _ in range(count):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(4, len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        if rng.random() < 0.3:
            del frame[rng.randrange(8, len(frame)) :]
        frame[:4] = struct.pack(">i", len(frame) - 4)
        with connect(broker) as sock:
            sock.sendall(frame)
            sock.shutdown(socket.SHUT_WR)
            assert ends(sock)
    assert serves(wire)
    assert memory(broker) - before < 64 * _MIB


def test_requests_beyond_the_bounds_of_readers_are_refused(
    broker: ServedBroker, wire: Wire
) -> None:
    for name, frame, is_within in bounded_frames():
        assert send(broker.port, frame) == ("answered" if is_within else "closed"), name
    assert serves(wire)


def test_random_bytes_are_refused(broker: ServedBroker, wire: Wire) -> None:
    rng = random.Random(7)
    for size in (1, 3, 4, 5, 12, 100, 5000):
        for _ in range(20):
            with connect(broker) as sock:
                sock.sendall(rng.randbytes(size))
                sock.shutdown(socket.SHUT_WR)
                assert ends(sock)
    assert serves(wire)


def test_announced_sizes_cost_no_memory_until_they_come(broker: ServedBroker, wire: Wire) -> None:
    before = memory(broker)
    socks = [connect(broker) for _ in range(60)]
    try:
        for sock in socks:
            sock.sendall(struct.pack(">i", 100 * _MIB) + b"x")
        assert serves(wire)
        assert memory(broker) - before < 32 * _MIB
    finally:
        for sock in socks:
            sock.close()


def test_slow_senders_do_not_hold_up_others(broker: ServedBroker, wire: Wire) -> None:
    frame = request_frame(_METADATA, 9, 1, "c", request_body(_METADATA, 9, {"topics": []}))
    socks = [connect(broker) for _ in range(100)]
    try:
        for at in range(len(frame) - 1):
            for sock in socks[:10]:
                sock.sendall(frame[at : at + 1])
        assert serves(wire)
        for sock in socks[:10]:
            sock.sendall(frame[-1:])
            assert sock.recv(4)
    finally:
        for sock in socks:
            sock.close()


def test_a_thousand_idle_connections_cost_little(broker: ServedBroker, wire: Wire) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    before = memory(broker)
    hello = request_frame(
        _API_VERSIONS,
        3,
        1,
        "c",
        request_body(
            _API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"}
        ),
    )
    socks = [connect(broker) for _ in range(1000)]
    try:
        for sock in socks:
            sock.sendall(hello)
        for sock in socks:
            assert sock.recv(4)
        assert serves(wire)
        assert memory(broker) - before < 32 * _MIB
    finally:
        for sock in socks:
            sock.close()


@pytest.mark.parametrize(
    "count", [20_000, pytest.param(1_000_000, marks=pytest.mark.nightly)], ids=["some", "million"]
)
def test_tiny_requests_without_end_are_answered_in_bounded_memory(
    broker: ServedBroker, wire: Wire, count: int
) -> None:
    before = memory(broker)
    body = request_body(_METADATA, 9, {"topics": []})
    turn = 500
    with connect(broker) as sock:
        stream = sock.makefile("rb")
        for first in range(0, count, turn):
            sock.sendall(
                b"".join(request_frame(_METADATA, 9, first + n, None, body) for n in range(turn))
            )
            for n in range(turn):
                (size,) = struct.unpack(">i", stream.read(4))
                assert struct.unpack(">i", stream.read(size)[:4])[0] == first + n
    assert serves(wire)
    assert memory(broker) - before < 32 * _MIB


def malformed(payload: bytes, codec: Codec = Codec.NONE, count: int = 3) -> bytes:
    """A batch whose header and CRC are right, over records that are not."""
    whole = build_batch(
        [Record(n, 1_700_000_000_000, b"k", b"v") for n in range(count)], base_offset=0
    )
    head = bytearray(whole[:61])
    packed = payload if codec is Codec.NONE else bytes(compress(codec, payload))
    struct.pack_into(">i", head, 8, 61 - 12 + len(packed))
    struct.pack_into(">h", head, 21, list(Codec).index(codec))
    struct.pack_into(">I", head, 17, crc32c.crc32c(bytes(head[21:]) + packed))
    return bytes(head) + packed


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\xff" * 40, b"\x80" * 40, bytes(range(256)), b"\x0e\0\0\0\x02k\x02v\0" * 2],
    ids=["nothing", "one byte", "ones", "endless varint", "all bytes", "too few records"],
)
def test_a_right_crc_over_malformed_records_is_refused_and_nothing_is_appended(
    broker: ServedBroker, wire: Wire, codec: Codec, payload: bytes
) -> None:
    del broker
    wire.ask("metadata", 9, {"topics": [{"name": "bad"}], "allow_auto_topic_creation": True})
    answer = wire.ask(
        "produce",
        9,
        {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                {
                    "name": "bad",
                    "partition_data": [{"index": 0, "records": malformed(payload, codec)}],
                }
            ],
        },
    )
    told = answer["responses"][0]["partition_responses"][0]
    assert told["error_code"] in {
        "invalid_record",
        "corrupt_message",
        "unknown_server_error",
    }, told
    assert told["error_code"] != "unknown_server_error", "a typed refusal is wanted"
    end = wire.ask(
        "list_offsets",
        6,
        {
            "replica_id": -1,
            "topics": [{"name": "bad", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
    )
    assert end["topics"][0]["partitions"][0]["offset"] == 0


def test_half_open_connections_are_forgotten_when_the_peer_is_gone(
    broker: ServedBroker, wire: Wire
) -> None:
    for _ in range(50):
        sock = connect(broker)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(struct.pack(">i", 100) + b"half")
        sock.close()  # a reset, in the middle of a request
    assert serves(wire)
