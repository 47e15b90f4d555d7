"""Makes the log directory that `make run` cleans, with a real Apache Kafka.

Writes into OUT (by default examples/): `kafka-logs.tar.xz`, the log directory of a Kafka that was
stopped cleanly and never cleaned anything; `made_at`, the moment it was stopped, in ms since the
epoch: cleaned with that as `--now`, it gives the same result for ever. The seed decides records,
codecs and batch sizes. Kafka listens on loopback, on ports that happen to be free.

usage: make_example.py [--seed N] [--out DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from support.kafka import RealKafka
from support.workload import DAY_MS, Workload

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ARCHIVE = "kafka-logs.tar.xz"
MADE_AT = "made_at"

COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(DAY_MS),
    "internal.segment.bytes": "32768",
}
DELETE = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "internal.segment.bytes": "32768",
}
TOPICS = {
    "customers": COMPACT,
    "orders": COMPACT,
    "prices": COMPACT,
    "devices": COMPACT,
    "carts": COMPACT,
    "payments": COMPACT,
    "sessions": {**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)},
    "clicks": {**DELETE, "retention.ms": str(DAY_MS)},
    "metrics": {**DELETE, "retention.bytes": "40000"},
    "audit": DELETE,
}
CODEC_OF = {
    "customers": "zstd",
    "orders": "lz4",
    "prices": "none",
    "devices": "snappy",
    "carts": "gzip",
}
STATES = ("created", "paid", "packed", "shipped", "delivered", "returned")


class Shop:
    """Writes what a small shop would."""

    def __init__(self, work: Workload, now_ms: int) -> None:
        self.work = work
        self.random = work.random
        self.now_ms = now_ms

    def value(self, number: int) -> bytes:
        fields: dict[str, Any] = {
            "version": number,
            "state": self.random.choice(STATES),
            "amount": self.random.randrange(100, 99_900) / 100,
            "note": " ".join(self.random.choice(STATES) for _ in range(self.random.randrange(8))),
        }
        return json.dumps(fields).encode()

    def write(
        self,
        topic: str,
        count: int,
        *,
        keys: int | None,
        producer: Producer | None = None,
        days_ago: tuple[float, float] = (0.1, 0.0),
        tombstones: float = 0.04,
    ) -> None:
        """Records over `keys` keys, low numbers more often than high ones, spread over time."""
        writer = producer or self.work.producer({"compression.type": CODEC_OF.get(topic, "lz4")})
        first, last = days_ago
        for number in range(count):
            key = None
            if keys is not None:
                key = f"{topic[:-1]}-{int(self.random.random() ** 2 * keys):04d}".encode()
            dead = key is not None and self.random.random() < tombstones
            ago_days = first + (last - first) * number / count
            self.work.send(
                writer,
                topic,
                None if dead else self.value(number),
                key=key,
                timestamp=self.now_ms - int(ago_days * DAY_MS),
            )
            if number % 100 == 0:
                writer.poll(0)
        self.work.flush(writer)

    def write_payments(self) -> None:
        """Transactions that overlap; about a third are aborted."""
        for number in range(60):
            name = f"till-{self.random.randrange(3)}"
            producer = self.work.transactional(name)
            producer.begin_transaction()
            self.write("payments", self.random.randint(5, 30), keys=150, producer=producer)
            if number % 3 == 1:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)

    def write_all(self) -> None:
        for topic in CODEC_OF:
            self.write(topic, 2_000, keys=300)
        self.write_payments()
        self.write("sessions", 2_000, keys=400, days_ago=(3, 0.01))
        self.write("clicks", 2_000, keys=None, days_ago=(4, 0.01))
        self.write("metrics", 2_000, keys=40)
        self.write("audit", 500, keys=None)
        self.work.commit_offsets(["orders", "clicks"], groups=1, commits=1)
        self.work.alter("__consumer_offsets", {"internal.segment.bytes": "8192"})
        self.work.commit_offsets(["orders", "clicks"], groups=3, commits=50)


def make(out: Path, seed: int) -> None:
    properties = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with (
        tempfile.TemporaryDirectory(prefix="make-example-") as scratch,
        RealKafka(Path(scratch) / "kafka", properties=properties) as kafka,
    ):
        kafka.start_without_cleaning()
        work = Workload(kafka, seed)
        work.create(TOPICS)
        Shop(work, time.time_ns() // 1_000_000).write_all()
        kafka.stop()
        made_at_ms = time.time_ns() // 1_000_000
        (copy,) = kafka.copy_data(Path(scratch) / "kafka-logs")
        with tarfile.open(out / ARCHIVE, "w:xz", preset=9) as archive:
            archive.add(copy, copy.name)
    (out / MADE_AT).write_text(f"{made_at_ms}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=EXAMPLES)
    options = parser.parse_args()
    make(options.out, options.seed)
    data = (options.out / ARCHIVE).read_bytes()
    print(f"{hashlib.sha256(data).hexdigest()} {ARCHIVE}, {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
