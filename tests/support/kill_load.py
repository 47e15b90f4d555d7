"""A broker killed again and again while it is written to with acks=all, and what it must not lose.

Each writer has a partition of its own, writes batches of numbered records one after another,
and notes what was acknowledged. After each restart it continues. At the end every
acknowledged record must be at the offset it was acknowledged at, and numbers must not run
backwards but where a batch was sent again.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.format.record_batch import Record, build_batch, iter_batches
from support.kafka import poll_until
from support.served import ServedBroker
from support.wire import ConnectionClosedError, Wire

TOPIC = "killed"
_RECORDS = 20
_RUN_S = (0.05, 0.6)
#: A slow machine may take longer for so many in each run.
_BATCHES_MIN = 6
_NUMBER = struct.Struct(">q")


@dataclass
class Outcome:
    """Result: `complaints` is empty when nothing was lost."""

    kills: int = 0
    acknowledged: int = 0
    complaints: list[str] = field(default_factory=list)


class _Writer:
    """Writes to one partition until it is stopped; `acknowledged` are (first offset, number)."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.next_number = 0
        self.acknowledged: list[tuple[int, int]] = []

    def write(self, port: int, stop: threading.Event) -> None:
        try:
            with Wire(port, timeout_s=20) as wire:
                while not stop.is_set():
                    self._batch(wire)
        except (ConnectionClosedError, OSError):
            pass  # killed; the batch under way is not known to be there, and its numbers are gone

    def _batch(self, wire: Wire) -> None:
        number = self.next_number
        self.next_number += _RECORDS
        records = [
            Record(n, 1_700_000_000_000, b"k", _NUMBER.pack(number + n)) for n in range(_RECORDS)
        ]
        answer = wire.ask(
            "produce",
            9,
            {
                "acks": -1,
                "timeout": 10_000,
                "topic_data": [
                    {
                        "name": TOPIC,
                        "partition_data": [
                            {
                                "index": self.partition,
                                "records": build_batch(records, base_offset=0),
                            }
                        ],
                    }
                ],
            },
        )
        told = answer["responses"][0]["partition_responses"][0]
        assert told["error_code"] == "none", told
        self.acknowledged.append((told["base_offset"], number))


def run_kills(directory: Path, *, kills: int, seed: int, writers: int = 4) -> Outcome:
    """Kills a broker so often, and judges what is left."""
    rng = random.Random(seed)  # noqa: S311  # repeats itself
    broker = ServedBroker(directory / "logs", {"num.partitions": str(writers)})
    all_writers = [_Writer(partition) for partition in range(writers)]
    outcome = Outcome()
    broker.start()
    try:
        with Wire(broker.port) as wire:
            wire.ask(
                "create_topics",
                5,
                {
                    "timeout": 10_000,
                    "topics": [{"name": TOPIC, "num_partitions": writers, "replication_factor": 1}],
                },
            )
        for _ in range(kills):
            _write_until_killed(broker, all_writers, rng.uniform(*_RUN_S))
            outcome.kills += 1
            broker.start()
        for writer in all_writers:
            outcome.acknowledged += len(writer.acknowledged) * _RECORDS
            outcome.complaints += _complaints(broker.port, writer)
    finally:
        broker.stop()
    return outcome


def _write_until_killed(broker: ServedBroker, writers: list[_Writer], seconds: float) -> None:
    stop = threading.Event()
    before = sum(len(writer.acknowledged) for writer in writers)
    threads = [
        threading.Thread(target=writer.write, args=(broker.port, stop)) for writer in writers
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)  # the load, not a wait: the kill must come in the middle of it
    try:
        poll_until(
            lambda: sum(len(writer.acknowledged) for writer in writers) - before >= _BATCHES_MIN,
            timeout_s=60,
            what="batches are acknowledged",
            interval_s=0.001,
        )
    finally:
        broker.kill()
        stop.set()
        for thread in threads:
            thread.join()


def _complaints(port: int, writer: _Writer) -> list[str]:
    found: dict[int, int] = {}
    with Wire(port) as wire:
        offset = 0
        while True:
            answer = wire.ask(
                "fetch",
                11,
                {
                    "replica_id": -1,
                    "max_wait": 0,
                    "max_bytes": 1 << 24,
                    "session_epoch": -1,
                    "topics": [
                        {
                            "topic": TOPIC,
                            "partitions": [
                                {
                                    "partition": writer.partition,
                                    "fetch_offset": offset,
                                    "partition_max_bytes": 1 << 24,
                                }
                            ],
                        }
                    ],
                },
            )
            told = answer["responses"][0]["partitions"][0]
            assert told["error_code"] == "none", told
            if not told["records"]:
                break
            for _, batch in iter_batches(told["records"]):
                for record in batch.records():
                    found[record.offset] = _NUMBER.unpack(record.value or b"")[0]
            offset = max(found) + 1
    name = f"{TOPIC}-{writer.partition}"
    lost = [
        f"{name}: record {number + n}, acknowledged at {first + n}, is not there"
        for first, number in writer.acknowledged
        for n in range(_RECORDS)
        if found.get(first + n) != number + n
    ]
    numbers = [found[offset] for offset in sorted(found)]
    if numbers != sorted(set(numbers)):
        lost.append(f"{name}: records out of order")
    return lost[:20]
