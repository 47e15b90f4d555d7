"""Produce requests with transactional batches, which are verified before they are appended."""

from __future__ import annotations

import socket
import threading
from typing import Any

from cordwood.broker.broker import Broker
from cordwood.format.record_batch import Record, build_batch, iter_batches
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import API_KEYS, Plain, read_response, request_body, request_frame
from support.wire_client import WireClient, batch_of

VERSION = 11
SECONDS_MAX = 60.0


def transactional_batch(producer: Plain, value: bytes) -> bytes:
    return build_batch(
        [Record(0, 1_700_000_000_000, b"k", value)],
        base_offset=0,
        producer_id=producer["producer_id"],
        producer_epoch=producer["producer_epoch"],
        base_sequence=0,
        is_transactional=True,
    )


def produce_frame(topic: str, records: bytes, transactional_id: str | None = None) -> bytes:
    data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
    asked = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 5000}
    body = request_body(API_KEYS["produce"], VERSION, {**asked, "topic_data": [data]})
    return request_frame(API_KEYS["produce"], VERSION, 1, "t", body)


def error_of(sock: socket.socket) -> Any:
    size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
    answer = read_response(API_KEYS["produce"], VERSION, sock.recv(size, socket.MSG_WAITALL))
    return answer["responses"][0]["partition_responses"][0]["error_code"]


def test_a_batch_that_is_verified_is_not_overwritten_by_another_request() -> None:
    """The batch was a view of the buffer that all connections receive into."""
    with RunningBroker(engine=NoEngine) as running, WireClient(running.port) as wire:
        for topic in ("t", "other"):
            wire.create(topic)
        begin = {"transactional_id": "mine", "transaction_timeout_ms": 60_000}
        producer = wire.ask("init_producer_id", 4, {**begin, "producer_id": -1})
        added = {
            "v3_and_below_transactional_id": "mine",
            "v3_and_below_producer_id": producer["producer_id"],
            "v3_and_below_producer_epoch": producer["producer_epoch"],
            "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
        }
        wire.ask("add_partitions_to_txn", 3, added)
        frames = [
            produce_frame("t", transactional_batch(producer, b"whole"), "mine"),
            produce_frame("other", batch_of(b"x" * 2000)),
        ]
        socks = [socket.create_connection(("127.0.0.1", running.port), SECONDS_MAX) for _ in frames]
        for sock, _ in zip(socks, frames, strict=True):
            # Both are known to the broker before it is held.
            sock.sendall(produce_frame("other", batch_of(b"first")))
            assert error_of(sock) == "none"
        sent = threading.Event()

        def hold(_: Broker) -> bool:
            return sent.wait(SECONDS_MAX)

        holding = threading.Thread(target=running.call, args=(hold,))
        holding.start()
        for sock, frame in zip(socks, frames, strict=True):
            sock.sendall(frame)
        sent.set()
        holding.join()
        assert [error_of(sock) for sock in socks] == ["none", "none"]
        for sock in socks:
            sock.close()
        [(_, batch)] = iter_batches(wire.fetch("t")["records"])
        assert [record.value for record in batch.records()] == [b"whole"]
