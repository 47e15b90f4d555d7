"""One broker, many topics: pairs of log directories before and after a real Kafka's own cleaning.

`record_rounds` writes topics that are each about one rule (a threshold, a lag, a change of policy,
a broker-wide default, ...), lets Kafka clean, writes more and lets it clean again. `record_kill`
does the same around a SIGKILL. Both keep copies of the stopped broker's directories, and its
server.properties as it was while it cleaned.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from support.kafka import RealKafka, copy_log_dir, read_checkpoint
from support.workload import DAY_MS, Workload

Timestamps = Callable[[int], int]
"""Milliseconds since the epoch, by a record's number."""

_COMPACT: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DAY_MS),
    "internal.segment.bytes": "16384",
}
_DELETE: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "internal.segment.bytes": "16384",
}
_BOTH: Final = {**_COMPACT, **_DELETE, "cleanup.policy": "compact,delete"}
_NEVER_BY_RATIO: Final = {**_COMPACT, "min.cleanable.dirty.ratio": "1.0"}
_SHORT: Final = {**_COMPACT, "delete.retention.ms": "1000"}

STATIC_PROPERTIES: Final[Mapping[str, str]] = {
    "log.retention.hours": "240",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
DYNAMIC_DEFAULTS: Final[Mapping[str, str]] = {
    "log.retention.ms": str(DAY_MS),
    "log.cleaner.min.cleanable.ratio": "0.03",
    "log.cleaner.delete.retention.ms": "1000",
}
DYNAMIC_BROKER: Final[Mapping[str, str]] = {"log.retention.bytes": "50000"}


def _without(config: Mapping[str, str], *keys: str) -> dict[str, str]:
    return {key: value for key, value in config.items() if key not in keys}


TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    # The dirty ratio, strictly above its threshold; the thresholds are set after the writing.
    "ratio-above": _COMPACT,
    "ratio-equal": _COMPACT,
    "ratio-below": _COMPACT,
    "ratio-one": _NEVER_BY_RATIO,
    "ratio-zero": {**_COMPACT, "min.cleanable.dirty.ratio": "0.0"},
    # Lags.
    "max-lag-due": {**_NEVER_BY_RATIO, "max.compaction.lag.ms": "3600000"},
    "max-lag-not-due": {**_NEVER_BY_RATIO, "max.compaction.lag.ms": str(7 * DAY_MS)},
    "max-lag-one-old": {**_NEVER_BY_RATIO, "max.compaction.lag.ms": str(2 * DAY_MS)},
    "min-lag-half": {**_COMPACT, "min.compaction.lag.ms": str(DAY_MS)},
    "min-lag-hump": {**_COMPACT, "min.compaction.lag.ms": str(DAY_MS)},
    "both-lags": {
        **_NEVER_BY_RATIO,
        "min.compaction.lag.ms": str(DAY_MS),
        "max.compaction.lag.ms": str(2 * DAY_MS),
    },
    # Changes of policy between writing and cleaning, or between two cleanings.
    "delete-to-compact": {**_DELETE, **_without(_COMPACT, "cleanup.policy")},
    "delete-to-both": {**_DELETE, **_without(_COMPACT, "cleanup.policy")},
    # Never compacted before, so the dirtiest by far in the second round: what Kafka compacts
    # before its first pass of retention is then a topic to which that order is all one.
    "late-to-compact": {**_DELETE, **_without(_COMPACT, "cleanup.policy")},
    "compact-to-delete": _COMPACT,
    "compact-to-both": _COMPACT,
    "both-to-compact": {**_BOTH, "retention.ms": str(2 * DAY_MS)},
    # Where settings come from.
    "dynamic-retention": _without(_DELETE, "retention.ms"),
    "dynamic-bytes": _without(_DELETE, "retention.bytes"),
    "dynamic-ratio": _without(_COMPACT, "min.cleanable.dirty.ratio"),
    "dynamic-tombstones": _without(_COMPACT, "delete.retention.ms"),
    # Delete horizons kept and passed.
    "tombstones-kept": _COMPACT,
    "tombstones-pass": _SHORT,
    "transactions-kept": _COMPACT,
    "transactions-pass": _SHORT,
    "only-aborted": _SHORT,
    "open-then-ended": _SHORT,
    # Grouping.
    "grouping-larger": _COMPACT,
    "grouping-smaller": {**_COMPACT, "internal.segment.bytes": "32768"},
    "grouping-index": {**_COMPACT, "segment.index.bytes": "240", "index.interval.bytes": "64"},
    # Records.
    "large-values": {**_COMPACT, "internal.segment.bytes": "2000000"},
    "edge-keys": _COMPACT,
    "tiny-batches": _COMPACT,
    "idempotent": _COMPACT,
    "append-time": {**_SHORT, "message.timestamp.type": "LogAppendTime"},
    "recompressed": {**_COMPACT, "compression.type": "zstd"},
    "many-keys": {**_COMPACT, "internal.segment.bytes": "262144"},
    # Retention, and log start offsets.
    "retention-bytes-exact": _DELETE,
    "retention-bytes-more": _DELETE,
    "retention-no-bytes": {**_DELETE, "retention.bytes": "0"},
    "retention-no-time": {**_DELETE, "retention.ms": "0"},
    "start-at-base": _DELETE,
    "start-at-end": _DELETE,
    "start-inside": _BOTH,
    "start-past-aborted": {**_BOTH, "internal.segment.bytes": "60000"},
    "policy-empty": {**_DELETE, "cleanup.policy": "", "retention.bytes": "0"},
    "both-old": {**_BOTH, "retention.ms": str(DAY_MS)},
}
PARTITIONED: Final = {"spread-compact": _SHORT, "spread-delete": {**_DELETE, "retention.ms": "0"}}
PARTITIONS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Copies of a stopped broker's log directories before and after its own cleaning.

    `now_ms` is when the cleaning began: any moment up to a minute later gives the same result.
    `cleaned_first` is the one partition that Kafka may have compacted before its first pass of
    retention; for all others retention came first. It matters under `compact,delete` only.
    """

    before: list[Path]
    after: list[Path]
    now_ms: int
    server_properties: Path
    cleaned_first: str | None

    @classmethod
    def record(cls, kafka: RealKafka, target: Path) -> Self:
        """Copies the stopped broker's directories, lets it clean, and copies them again."""
        before = kafka.copy_data(target / "before")
        now_ms = time.time_ns() // 1_000_000
        kafka.run_cleaner_until()
        after = kafka.copy_data(target / "after")
        properties = Path(shutil.copy(kafka.config_file, target / "server.properties"))
        pair = cls(
            before=before,
            after=after,
            now_ms=now_ms,
            server_properties=properties,
            cleaned_first=cleaned_first(kafka),
        )
        (target / "pair.json").write_text(json.dumps(asdict(pair), indent=1, default=str))
        return pair


def cleaned_first(kafka: RealKafka) -> str | None:
    """The partition that Kafka compacted first since its last start."""
    first = re.search(r"Beginning cleaning of log (\S+)", kafka.log_since_start)
    return first[1] if first else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A broker, its workload, and the moment the present round of writing began."""

    kafka: RealKafka
    work: Workload
    now_ms: int

    def ago(self, days: float) -> Timestamps:
        """Timestamps that begin `days` ago, a millisecond apart."""
        return lambda number: self.now_ms - int(days * DAY_MS) + number

    def log_dir_of(self, partition: str) -> Path:
        """The broker's log directory that holds this partition."""
        return next(d for d in self.kafka.log_dirs if (d / partition).is_dir())

    def segments(self, topic: str) -> list[tuple[int, int]]:
        """Base offset and size of each segment of the topic's partition 0, the active one last."""
        name = f"{topic}-0"
        logs = sorted((self.log_dir_of(name) / name).glob("*.log"))
        return [(int(log.stem), log.stat().st_size) for log in logs]

    def dirty_ratio(self, topic: str) -> float:
        """The share of dirty bytes that Kafka's cleaner will see in partition 0."""
        name = f"{topic}-0"
        checkpoints = read_checkpoint(self.log_dir_of(name) / "cleaner-offset-checkpoint")
        first_dirty = checkpoints[name]
        sizes = self.segments(topic)[:-1]
        dirty = sum(size for base, size in sizes if base >= first_dirty)
        return dirty / sum(size for _, size in sizes)


def _write_lags(live: Live) -> None:
    work, now, old = live.work, live.ago(0), live.ago(3)
    work.fill("max-lag-due", 900, timestamp=live.ago(0.1))
    work.fill("max-lag-not-due", 900, timestamp=now)
    work.fill("max-lag-one-old", 400, timestamp=now)
    work.fill("max-lag-one-old", 300, timestamp=old)
    work.fill("max-lag-one-old", 400, timestamp=now)
    for topic in ("min-lag-half", "both-lags"):
        work.fill(topic, 700, timestamp=old)
        work.fill(topic, 400, timestamp=now)
    work.fill("min-lag-hump", 400, timestamp=old)
    work.fill("min-lag-hump", 300, timestamp=now)
    work.fill("min-lag-hump", 400, timestamp=old)


def _write_records(live: Live) -> None:
    work = live.work
    for codec in ("none", "lz4"):
        settings = {
            "compression.type": codec,
            "batch.size": 900_000,
            "message.max.bytes": 1_000_000,
        }
        work.fill(
            "large-values", 10, keys=4, settings=settings, length_min=100_000, length_max=500_000
        )
    _write_edge_keys(live)
    work.fill("tiny-batches", 400, keys=60, settings={"linger.ms": 0, "batch.num.messages": 1})
    for _ in range(8):
        work.fill("idempotent", 90, keys=80, settings={"enable.idempotence": True})
    for codec in ("none", "lz4", "gzip"):
        work.fill("append-time", 300, tombstones=0.2, settings={"compression.type": codec})
        work.fill("recompressed", 300, settings={"compression.type": codec})
    work.fill("many-keys", 12_000, keys=9_000, length_max=40, settings={"batch.size": 30_000})


def _write_edge_keys(live: Live) -> None:
    work = live.work
    keys = [b"", b"\x00", b"\n", b"\xff" * 3, b"k" * 3000, "schlüssel".encode(), b"a", b"a\x00"]
    values = [b"", b"\x00", None, b"v" * 2000, b"line\nline"]
    headers: list[list[tuple[str, bytes | None]]] = [[], [("", b"")], [("h", None), ("h", b"2")]]
    producer = work.producer()
    for _ in range(500):
        value = work.random.choice(values)
        fields = {"key": work.random.choice(keys), "headers": work.random.choice(headers)}
        work.send(producer, "edge-keys", value, **fields)
    work.flush(producer)


def _write_common(live: Live) -> None:
    """Writes the records of both rounds."""
    work = live.work
    for topic in ("ratio-above", "ratio-equal", "ratio-below", "ratio-one", "dynamic-ratio"):
        work.fill(topic, 600, keys=300, settings={"batch.num.messages": 20})
    _write_lags(live)
    for topic in ("tombstones-kept", "tombstones-pass", "dynamic-tombstones"):
        work.fill(topic, 900, keys=250, tombstones=0.4)
    for topic in ("transactions-kept", "transactions-pass"):
        work.transactions(topic, 40)
        work.fill(topic, 150)
    work.transactions("only-aborted", 25, aborted=1)
    for topic in ("grouping-larger", "grouping-smaller", "grouping-index"):
        work.fill(topic, 1200, keys=700)
    _write_records(live)
    for topic in ("both-old", "compact-to-both", "both-to-compact", "start-inside"):
        work.fill(topic, 500, timestamp=live.ago(3))
        work.fill(topic, 500, timestamp=live.ago(0.1))
    for topic in ("dynamic-retention", "delete-to-both"):
        work.fill(topic, 500, timestamp=live.ago(3))
        work.fill(topic, 500, timestamp=live.ago(0.1))
    for topic in ("dynamic-bytes", "retention-no-bytes", "retention-no-time", "policy-empty"):
        work.fill(topic, 600)
    for topic in ("retention-bytes-exact", "retention-bytes-more", "start-at-base", "start-at-end"):
        work.fill(topic, 800)
    for topic in PARTITIONED:
        for partition in range(PARTITIONS):
            work.fill(topic, 150 * partition, partition=partition, tombstones=0.2)
    sizes = live.segments("retention-bytes-exact")
    keep = sum(size for _, size in sizes) - sizes[0][1] - sizes[1][1]
    work.alter("retention-bytes-exact", {"retention.bytes": str(keep)})
    sizes = live.segments("retention-bytes-more")
    keep = sum(size for _, size in sizes) - sizes[0][1] - sizes[1][1]
    work.alter("retention-bytes-more", {"retention.bytes": str(keep + 1)})
    work.delete_records("start-at-base", live.segments("start-at-base")[2][0])
    work.delete_records("start-at-end", -1)
    work.transactions("start-past-aborted", 30, aborted=0.7)
    work.fill("start-past-aborted", 500)
    (first, _), (second, _), *_ = live.segments("start-past-aborted")
    work.delete_records("start-past-aborted", (first + second) // 2)
    work.delete_records("start-inside", live.segments("start-inside")[1][0] + 33)
    work.commit_offsets(["ratio-one", "edge-keys"], groups=5, commits=60)


def write_first_round(live: Live) -> None:
    """Makes the topics and writes to them, then changes some of their settings."""
    work = live.work
    work.create(TOPICS)
    work.create(PARTITIONED, partitions=PARTITIONS)
    internal = {**_without(_COMPACT, "delete.retention.ms"), "compression.type": "producer"}
    work.create({"__consumer_offsets": internal, "__transaction_state": internal}, partitions=2)
    work.alter_brokers(DYNAMIC_DEFAULTS)
    work.alter_brokers(DYNAMIC_BROKER, broker=1)
    _write_common(live)
    work.fill("ratio-zero", 500)
    work.fill("compact-to-delete", 900, timestamp=live.ago(3))
    for topic in ("delete-to-compact", "delete-to-both", "late-to-compact"):
        work.fill(topic, 900, unkeyed=0.3)
        work.fill(topic, 200, unkeyed=1)
        work.fill(topic, 300)
    producer = work.transactional("left-open", transaction_timeout_ms=900_000)
    work.fill("open-then-ended", 500)
    producer.begin_transaction()
    work.fill("open-then-ended", 50, producer=producer)
    work.fill("open-then-ended", 500)
    work.alter("delete-to-compact", {"cleanup.policy": "compact"})
    work.alter("delete-to-both", {"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)})
    work.alter("grouping-larger", {"internal.segment.bytes": "100000"})
    work.alter("grouping-smaller", {"internal.segment.bytes": "9000"})


def write_second_round(live: Live) -> None:
    """Writes as much again after a cleaning, and sets thresholds by what it made."""
    work = live.work
    producer = work.transactional("left-open")
    work.fill("open-then-ended", 50, producer=producer)
    producer.abort_transaction()
    work.fill("open-then-ended", 500)
    _write_common(live)
    work.fill("compact-to-delete", 300, timestamp=live.ago(0.1))
    work.fill("delete-to-compact", 600)
    work.alter("compact-to-delete", {"cleanup.policy": "delete", "retention.ms": str(DAY_MS)})
    work.alter("compact-to-both", {"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)})
    work.alter("both-to-compact", {"cleanup.policy": "compact"})
    work.alter("late-to-compact", {"cleanup.policy": "compact"})
    key = "min.cleanable.dirty.ratio"
    work.alter("ratio-above", {key: repr(math.nextafter(live.dirty_ratio("ratio-above"), 0))})
    work.alter("ratio-equal", {key: repr(live.dirty_ratio("ratio-equal"))})
    work.alter("ratio-below", {key: repr(math.nextafter(live.dirty_ratio("ratio-below"), 1))})


def record_rounds(root: Path, *, seed: int) -> list[Pair]:
    """Two rounds of writing and cleaning on a broker with two log directories."""
    log_dirs = [root / "kafka" / "logs-a", root / "kafka" / "logs-b"]
    with RealKafka(root / "kafka", log_dirs=log_dirs, properties=STATIC_PROPERTIES) as kafka:
        work = Workload(kafka, seed)
        pairs = []
        for number, write in enumerate((write_first_round, write_second_round), start=1):
            kafka.start_without_cleaning()
            write(Live(kafka=kafka, work=work, now_ms=time.time_ns() // 1_000_000))
            kafka.stop()
            pairs.append(Pair.record(kafka, root / f"round-{number}"))
        return pairs


KILL_TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    name: {**config, "segment.index.bytes": "4096"}
    for name, config in {
        "kill-compact": _COMPACT,
        "kill-tombstones": {**_COMPACT, "internal.segment.bytes": "9000"},
        "kill-transactions": _COMPACT,
        "kill-retention": _without(_DELETE, "retention.ms"),
        "kill-both": {**_BOTH, "retention.ms": str(DAY_MS)},
    }.items()
}
KILL_PROPERTIES: Final = {"log.retention.minutes": "1440", "log.retention.hours": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A broker's directory when it was last stopped cleanly, and when it was later killed.

    The killed one's recovery points are still those of the clean stop. Kafka cleaned a copy of
    each: `stopped` and, after its recovery, `killed`.
    """

    stopped: Pair
    killed: Pair


def _write_to_be_killed(live: Live) -> None:
    work = live.work
    for topic in ("kill-compact", "kill-tombstones"):
        work.fill(topic, 900, tombstones=0.1)
    work.transactions("kill-transactions", 40)
    work.fill("kill-transactions", 200)


def record_kill(root: Path, *, seed: int) -> Kill:
    """Writes, stops cleanly, writes more and kills; Kafka then cleans a copy of either state."""
    with RealKafka(root / "kafka", properties=KILL_PROPERTIES) as kafka:
        work = Workload(kafka, seed)
        live = Live(kafka=kafka, work=work, now_ms=time.time_ns() // 1_000_000)
        kafka.start_without_cleaning()
        work.create(KILL_TOPICS)
        _write_to_be_killed(live)
        for topic in ("kill-retention", "kill-both"):
            work.fill(topic, 500, timestamp=live.ago(3))
            work.fill(topic, 400, timestamp=live.ago(0.1))
        kafka.stop()
        (stopped,) = kafka.copy_data(root / "stopped-data")
        kafka.start_without_cleaning({"log.flush.offset.checkpoint.interval.ms": str(DAY_MS)})
        _write_to_be_killed(live)
        for topic in ("kill-retention", "kill-both"):
            work.fill(topic, 400, timestamp=live.ago(0.1))
        kafka.kill()
        (killed,) = kafka.copy_data(root / "killed-data")
    return Kill(
        stopped=clean_copy(stopped, root / "stopped"), killed=clean_copy(killed, root / "killed")
    )


def clean_copy(before: Path, target: Path) -> Pair:
    """Lets a new broker clean a copy of a stopped broker's only log directory."""
    data = copy_log_dir(before, target / "kafka" / "data")
    with RealKafka(target / "kafka", log_dirs=[data], properties=KILL_PROPERTIES) as kafka:
        return Pair.record(kafka, target)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: records pairs below a directory, and says when each was cleaned."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    kill = record_kill(options.out / "kill", seed=options.seed)
    rounds = record_rounds(options.out, seed=options.seed)
    for pair in (*rounds, kill.stopped, kill.killed):
        print(pair.server_properties.parent, pair.now_ms)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
