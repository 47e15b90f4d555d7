"""Makes golden data with a real Apache Kafka: log directories before and after its own cleaning.

Writes into OUT, which must not exist: `before` and `after`, one and the same log directory of a
stopped Kafka around its own cleaning; `before-2` and `after-2`, the same after more was written to
it; `topics.json`, each topic's configs and the times of writing; `cleaner.log`, what Kafka's
cleaner said. The seed decides records, codecs, batch and segment sizes. Kafka listens on loopback,
on ports that happen to be free.

usage: make_golden.py --seed N --out DIR [--kafka VERSION] [--archive FILE.tar.xz]
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

from support import live
from support.group_kinds import make_groups
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_3, KAFKA_VERSIONS
from support.workload import CODECS, DAY_MS, Workload

FOREVER = str(2**63 - 1)
SEGMENT_BYTES = (32768, 65536, 131072)
# Broker-wide settings are changed for the topics about them; the others say what they want.
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DAY_MS),
}
DELETE = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
DELETE_OLD = {**DELETE, "retention.ms": str(DAY_MS)}
AT_ONCE = {**COMPACT, "delete.retention.ms": "0"}
ANY_TIME = {"message.timestamp.after.max.ms": FOREVER}

TOPICS: dict[str, dict[str, str]] = {
    **{f"codec-{codec}": COMPACT for codec in CODECS},
    "mixed-codecs": COMPACT,
    "tombstones-kept-long": COMPACT,
    "tombstones-gone": AT_ONCE,
    "transactions": COMPACT,
    "transactions-gone": AT_ONCE,
    "open-transaction": COMPACT,
    "idempotent-few-keys": COMPACT,
    "headers": COMPACT,
    "log-append-time": {**COMPACT, "message.timestamp.type": "LogAppendTime"},
    "min-lag": {**COMPACT, "min.compaction.lag.ms": str(DAY_MS)},
    "old-and-future": {**COMPACT, **ANY_TIME},
    "one-key": COMPACT,
    "empty": COMPACT,
    "retention-time": DELETE_OLD,
    "retention-time-all": DELETE_OLD,
    "retention-future": {**DELETE_OLD, **ANY_TIME},
    "retention-bytes": {**DELETE, "retention.bytes": "200000"},
    "retention-bytes-and-time": {**DELETE_OLD, "retention.bytes": "300000"},
    "compact-and-delete": {**COMPACT, **DELETE_OLD, "cleanup.policy": "compact,delete"},
    "delete-records": DELETE,
    "keep-forever": DELETE,
}


def write_codecs(work: Workload) -> None:
    for codec in CODECS:
        settings = {"compression.type": codec}
        work.fill(f"codec-{codec}", 2000, keys=400, settings=settings)
        work.fill("mixed-codecs", 500, settings=settings)


def write_compacted(work: Workload, now_ms: int) -> None:
    offsets_ms = (-10 * DAY_MS, -1000, 0, 3_600_000, 30 * DAY_MS)
    for topic in ("tombstones-kept-long", "tombstones-gone"):
        work.fill(topic, 2000, keys=300, tombstones=0.4)
    for topic in ("transactions", "transactions-gone"):
        work.transactions(topic, 60, keys=250)
        work.fill(topic, 300, keys=250)
    for _ in range(4):
        settings = {"enable.idempotence": True}
        work.fill("idempotent-few-keys", 500, keys=150, settings=settings)
    work.fill("headers", 2000, headers=True)
    work.fill("log-append-time", 2000)
    work.fill("min-lag", 2000)
    work.fill(
        "old-and-future", 2000, timestamp=lambda n: now_ms + work.random.choice(offsets_ms) + n
    )
    work.fill("one-key", 2000, keys=1, tombstones=0)


def write_open_transaction(work: Workload, *, first: bool) -> None:
    work.fill("open-transaction", 1500)
    if first:
        left_open = work.transactional("golden-left-open", transaction_timeout_ms=900_000)
        left_open.begin_transaction()
        work.fill("open-transaction", 50, producer=left_open)
    work.fill("open-transaction", 800)


def write_retained(work: Workload, now_ms: int) -> None:
    def old_then_new(old: int, future: int | None) -> live.Timestamps:
        def timestamp(number: int) -> int:
            ago_ms = 3 * DAY_MS if number < old else 3_600_000
            return now_ms - ago_ms + number + (30 * DAY_MS if number == future else 0)

        return timestamp

    for topic, old in (
        ("retention-time", 1300),
        ("retention-time-all", 2000),
        ("retention-future", 1300),
        ("retention-bytes-and-time", 1300),
        ("compact-and-delete", 1300),
    ):
        future = 700 if topic == "retention-future" else None
        work.fill(topic, 2000, timestamp=old_then_new(old, future))
    for topic in ("retention-bytes", "delete-records", "keep-forever"):
        work.fill(topic, 2000)


def write(state: live.Live, *, first: bool) -> None:
    work = state.work
    if first:
        sizes = {name: str(work.random.choice(SEGMENT_BYTES)) for name in TOPICS}
        work.create({t: {**c, "internal.segment.bytes": sizes[t]} for t, c in TOPICS.items()})
        live.write_first_round(state)
    else:
        live.write_second_round(state)
    write_codecs(work)
    write_compacted(work, state.now_ms)
    write_open_transaction(work, first=first)
    write_retained(work, state.now_ms)
    if first:
        work.delete_records("delete-records", 1111)
    make_groups(state.kafka.port, "codec-none")


def make(out: Path, seed: int, version: str) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="make-golden-") as scratch,
        RealKafka(
            Path(scratch) / "kafka", properties=live.STATIC_PROPERTIES, version=version
        ) as kafka,
    ):
        work = Workload(kafka, seed)
        made_at_ms, cleaned_at_ms, cleaned_first = [], [], []
        for suffix in ("", "-2"):
            kafka.start_without_cleaning()
            made_at_ms.append(time.time_ns() // 1_000_000)
            write(live.Live(kafka=kafka, work=work, now_ms=made_at_ms[-1]), first=not suffix)
            kafka.stop()
            kafka.copy_data(out / f"before{suffix}")
            cleaned_at_ms.append(time.time_ns() // 1_000_000)
            kafka.run_cleaner_until()
            cleaned_first.append(live.cleaned_first(kafka))
            kafka.copy_data(out / f"after{suffix}")
        said = [line for line in kafka.server_log.splitlines() if "leaner" in line]
    facts = {
        "kafka": version,
        "seed": seed,
        "made_at_ms": made_at_ms[0],
        "made_at_2_ms": made_at_ms[1],
        "cleaned_at_ms": cleaned_at_ms[0],
        "cleaned_at_2_ms": cleaned_at_ms[1],
        "cleaned_first": cleaned_first,
        "topics": {**TOPICS, **live.TOPICS, **live.PARTITIONED},
    }
    (out / "topics.json").write_text(json.dumps(facts, indent=1))
    lines = [line for line in said if "log.cleaner" not in line and " DEBUG " not in line]
    (out / "cleaner.log").write_text("".join(f"{line}\n" for line in lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a directory to be made")
    parser.add_argument("--kafka", choices=KAFKA_VERSIONS, default=KAFKA_4_3, help="its version")
    parser.add_argument("--archive", type=Path, help="pack it into this .tar.xz too")
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists already")
    make(options.out, options.seed, options.kafka)
    if options.archive is not None:
        with tarfile.open(options.archive, "w:xz") as archive:
            archive.add(options.out, options.out.name)
        print(hashlib.sha256(options.archive.read_bytes()).hexdigest(), options.archive.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
