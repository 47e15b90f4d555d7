"""Producers with transactional ids, as raw requests; the same program for either broker.

Run as a program with a JSON job on standard input; prints a JSON result. A transaction is a batch
of `records` to a partition of the producer's own, and its commit (transactions of version 2).

- `connections` producers commit one transaction after the other for `seconds`; or
- each of them takes its share of `ids` new transactional ids, and commits one transaction of each.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from typing import Any

from cordwood.format.crc32c import crc32c
from cordwood.format.record_batch import Record, build_batch
from support.wire import request_body, request_frame

_PRODUCE, _PRODUCE_VERSION = 0, 12
_INIT, _INIT_VERSION = 22, 5
_END, _END_VERSION = 26, 5
_CONCURRENT_TRANSACTIONS = 51
#: Errors of a coordinator that is being made.
_NOT_YET = {14, 15, 16}
_RETRY_S = 0.001
_OPENED_AT_ONCE = 32
#: Where the fields are in a batch, and what its CRC covers.
_CRC_AT, _COVERED_AT, _PRODUCER_AT = 17, 21, 43
_IDENTITY = struct.Struct(">qh")


def id_of(number: int) -> str:
    """A transactional id; all have the same length."""
    return f"id-{number:08d}"


class _Producer:
    """One transactional id after the other, on one connection."""

    def __init__(
        self,
        job: dict[str, Any],
        partition: int,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._topic = job["topic"]
        self._reader, self._writer = streams
        value = b"x" * job["record_bytes"]
        now_ms = int(time.time() * 1000)
        self._batch = build_batch(
            [Record(n, now_ms, b"k", value) for n in range(job["records"])],
            base_offset=0,
            producer_id=0,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        body = request_body(
            _PRODUCE,
            _PRODUCE_VERSION,
            {
                "transactional_id": id_of(0),
                "acks": -1,
                "timeout_ms": 30_000,
                "topic_data": [
                    {
                        "name": self._topic,
                        "partition_data": [{"index": partition, "records": self._batch}],
                    }
                ],
            },
        )
        self._produce = request_frame(_PRODUCE, _PRODUCE_VERSION, 1, "load", body)
        fields: dict[str, Any] = {"transactional_id": id_of(0), "committed": True}
        body = request_body(_END, _END_VERSION, fields)
        self._end = request_frame(_END, _END_VERSION, 1, "load", body)
        fields = {
            "transactional_id": id_of(0),
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        body = request_body(_INIT, _INIT_VERSION, fields)
        self._init = request_frame(_INIT, _INIT_VERSION, 1, "load", body)
        self._name = id_of(0).encode()
        self._identity = b""
        self.retries = 0

    async def take(self, number: int) -> None:
        """Becomes the producer of another transactional id."""
        self._name = id_of(number).encode()
        answer = await self._asked(self._named(self._init), 5 + 4)
        self._identity = answer[11:21]

    async def transact(self) -> None:
        """Commits one transaction."""
        at = self._produce.index(self._batch)
        frame = bytearray(self._named(self._produce))
        frame[at + _PRODUCER_AT : at + _PRODUCER_AT + _IDENTITY.size] = self._identity
        end = at + len(self._batch)
        covered = crc32c(memoryview(frame)[at + _COVERED_AT : end])
        struct.pack_into(">I", frame, at + _CRC_AT, covered)
        await self._asked(bytes(frame), 5 + 1 + 1 + len(self._topic) + 1 + 4)
        # The id, the epoch, whether it commits, and no tags.
        frame = bytearray(self._named(self._end))
        frame[-2 - _IDENTITY.size : -2] = self._identity
        answer = await self._asked(bytes(frame), 5 + 4)
        self._identity = answer[11:21]

    def _named(self, frame: bytes) -> bytes:
        return frame.replace(id_of(0).encode(), self._name, 1)

    async def _asked(self, frame: bytes, code_at: int) -> bytes:
        """The answer without an error; while the last transaction is completed, asks again."""
        while True:
            self._writer.write(frame)
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            answer = await self._reader.readexactly(size)
            (code,) = struct.unpack_from(">h", answer, code_at)
            if not code:
                return answer
            if code != _CONCURRENT_TRANSACTIONS and code not in _NOT_YET:
                raise SystemExit(f"a request of {self._name.decode()} failed with error {code}")
            self.retries += 1
            await asyncio.sleep(_RETRY_S)


async def _work(job: dict[str, Any], producer: _Producer, own: int, latencies: list[float]) -> None:
    if "ids" in job:
        for number in range(own, job["ids"], job["connections"]):
            await producer.take(number)
            await producer.transact()
            latencies.append(0.0)
        return
    until = time.perf_counter() + job["seconds"]
    while time.perf_counter() < until:
        begun = time.perf_counter()
        await producer.transact()
        latencies.append(time.perf_counter() - begun)


async def _run(job: dict[str, Any]) -> dict[str, Any]:
    producers: list[_Producer] = []
    while len(producers) < job["connections"]:
        count = min(_OPENED_AT_ONCE, job["connections"] - len(producers))
        for streams in await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", job["port"]) for _ in range(count))
        ):
            producers.append(_Producer(job, len(producers) % job["partitions"], streams))
    if "ids" not in job:
        for number, producer in enumerate(producers):
            await producer.take(job.get("first_id", 0) + number)
    latencies: list[float] = []
    begun = time.perf_counter()
    await asyncio.gather(
        *(_work(job, producer, own, latencies) for own, producer in enumerate(producers))
    )
    took = time.perf_counter() - begun
    latencies.sort()
    return {
        "transactions": len(latencies),
        "seconds": took,
        "retries": sum(producer.retries for producer in producers),
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
    }


if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(_run(json.load(sys.stdin)))))
