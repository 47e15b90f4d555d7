"""A steady or unbounded load of raw requests; the same program for either broker.

Run as a program with a JSON job on standard input; prints a JSON result. The requests are those to
produce with acks=all, with a reader beside them if the job says `follow`, or those to commit
offsets if it has `committed`, the number of partitions in a request.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from typing import Any

from cordwood.format.record_batch import Record, build_batch
from support.wire import request_body, request_frame

_PRODUCE, _FETCH, _COMMIT = 0, 1, 8
_VERSION = 9
_COMMIT_VERSION = 8
_OPENED_AT_ONCE = 32
_SENT = struct.Struct(">d")


def _batch(size_bytes: int, record_bytes: int, keys: int, turn: int) -> bytes:
    count = max(1, size_bytes // record_bytes)
    value = b"x" * max(1, record_bytes - 20)
    return build_batch(
        [
            Record(n, int(time.time() * 1000), b"key-%08d" % ((turn * count + n) % keys), value)
            for n in range(count)
        ],
        base_offset=0,
    )


def _produce(job: dict[str, Any], partition: int, number: int, turn: int) -> bytes:
    batch = _batch(job["batch_bytes"], job["record_bytes"], job["keys"], turn)
    body = request_body(
        _PRODUCE,
        _VERSION,
        {
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [
                {
                    "name": job["topic"],
                    "partition_data": [{"index": partition, "records": batch}],
                }
            ],
        },
    )
    return request_frame(_PRODUCE, _VERSION, number, "load", body)


def _commit(job: dict[str, Any], group: int, number: int, turn: int) -> bytes:
    """A commit of a group without members."""
    partitions = [
        {"partition_index": index, "committed_offset": turn, "committed_leader_epoch": -1}
        for index in range(job["committed"])
    ]
    body = request_body(
        _COMMIT,
        _COMMIT_VERSION,
        {
            "group_id": f"group-{group}",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": job["topic"], "partitions": partitions}],
        },
    )
    return request_frame(_COMMIT, _COMMIT_VERSION, number, "load", body)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _check(answer: bytes, job: dict[str, Any]) -> None:
    """Ends the load at an error."""
    at = 4 + 1 + 1 + 1 + len(job["topic"]) + 1 + 4
    if "committed" in job:
        at += 4  # the throttle time comes first
    (code,) = struct.unpack_from(">h", answer, at)
    if code:
        raise SystemExit(f"a request failed with error {code}")


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connected(job: dict[str, Any]) -> list[_Streams]:
    """All connections, a few at a time: no more than Kafka's listener keeps waiting."""
    streams: list[_Streams] = []
    while len(streams) < job["connections"]:
        count = min(_OPENED_AT_ONCE, job["connections"] - len(streams))
        streams += await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", job["port"]) for _ in range(count))
        )
    return streams


async def _writer(
    job: dict[str, Any],
    streams: _Streams,
    frames: list[bytes],
    until: float,
    out: dict[str, Any],
) -> None:
    """Sends the frames in turn until the time is over, and at least one."""
    reader, writer = streams
    in_flight: asyncio.Queue[float] = asyncio.Queue(job["in_flight"])
    rate = job.get("requests_per_s")

    async def read() -> None:
        while True:
            sent = await in_flight.get()
            if sent < 0:
                return
            _check(await _answer(reader), job)
            out["latencies"].append(time.perf_counter() - sent)

    task = asyncio.create_task(read())
    begun = time.perf_counter()
    number = 0
    while not number or time.perf_counter() < until:
        if rate:
            await asyncio.sleep(max(0.0, begun + number / rate - time.perf_counter()))
        frame = frames[number % len(frames)]
        await in_flight.put(time.perf_counter())
        writer.write(frame)
        await writer.drain()
        out["bytes"] += len(frame)
        number += 1
    await in_flight.put(-1.0)
    await task
    writer.close()


async def _reader(job: dict[str, Any], until: float, out: dict[str, Any]) -> None:
    """Follows partition 0 at its head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", job["port"])
    offset = await _end(job, reader, writer)
    number = 0
    while time.perf_counter() < until:
        number += 1
        body = request_body(
            _FETCH,
            11,
            {
                "replica_id": -1,
                "max_wait_ms": 500,
                "min_bytes": 1,
                "max_bytes": 1 << 22,
                "session_epoch": -1,
                "topics": [
                    {
                        "topic": job["topic"],
                        "partitions": [
                            {
                                "partition": 0,
                                "fetch_offset": offset,
                                "partition_max_bytes": 1 << 22,
                            }
                        ],
                    }
                ],
            },
        )
        writer.write(request_frame(_FETCH, 11, number, "load", body))
        answer = await _answer(reader)
        offset = max(offset, _high_watermark(answer, job["topic"]))
        out["fetches"] += 1
    writer.close()


def _high_watermark(answer: bytes, topic: str) -> int:
    at = 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    code, mark = struct.unpack_from(">hq", answer, at)
    if code:
        raise SystemExit(f"a fetch request failed with error {code}")
    return int(mark)


async def _end(
    job: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> int:
    body = request_body(
        2,
        1,
        {
            "replica_id": -1,
            "topics": [
                {"name": job["topic"], "partitions": [{"partition_index": 0, "timestamp": -1}]}
            ],
        },
    )
    writer.write(request_frame(2, 1, 0, "load", body))
    return int(struct.unpack(">q", (await _answer(reader))[-8:])[0])


async def _run(job: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"latencies": [], "bytes": 0, "fetches": 0}
    make = _commit if "committed" in job else _produce
    frames = [[make(job, p, n, n) for n in range(16)] for p in range(job["partitions"])]
    connections = await _connected(job)
    begun = time.perf_counter()
    until = begun + job["seconds"]
    works = [
        _writer(job, streams, frames[index % job["partitions"]], until, out)
        for index, streams in enumerate(connections)
    ]
    if job.get("follow"):
        works.append(_reader(job, until, out))
    await asyncio.gather(*works)
    took = time.perf_counter() - begun
    latencies = sorted(out.pop("latencies"))
    return {
        "mb_per_s": out["bytes"] / took / 1e6,
        "bytes": out["bytes"],
        "requests": len(latencies),
        "seconds": took,
        "fetches": out["fetches"],
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "max_ms": latencies[-1] * 1000,
    }


if __name__ == "__main__":
    import uvloop

    print(json.dumps(uvloop.run(_run(json.load(sys.stdin)))))
