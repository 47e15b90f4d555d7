"""One stopped directory, given to a real Kafka and to `cordwood clean`: the same is left.

Some sixty topics share a broker, each about one rule of Kafka's; see `support.live`. A few topics
with random settings are the small form of it. In nightly runs the same is done with further seeds.

Random settings and contents have cases that no list has: lags with retention, log starts inside
open transactions, policies changed back and forth. Timestamps and lags are drawn far enough apart
that the minute between two cleanings of one directory decides nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from support.clean import digest_tree, run_clean
from support.compare import CHECKPOINTS, Difference, compare_log_dirs, dump_files
from support.damage import damage_in
from support.kafka import RealKafka, copy_log_dir, read_checkpoint
from support.live import (
    KILL_TOPICS,
    PARTITIONED,
    TOPICS,
    Kill,
    Live,
    Pair,
    Timestamps,
    clean_copy,
    record_kill,
    record_rounds,
)
from support.workload import CODECS, DAY_MS, Workload

_FOREVER: Final = str(2**63 - 1)
_POLICIES: Final = ("compact", "compact", "compact", "compact,delete", "delete")
_CHOICES: Final = {
    "internal.segment.bytes": ("8192", "8192", "16384", "40000"),
    "min.cleanable.dirty.ratio": ("0", "0.01", "0.01", "0.3", "0.6"),
    "delete.retention.ms": ("0", "1000", str(DAY_MS)),
    "min.compaction.lag.ms": ("0", "0", "0", str(DAY_MS)),
    "max.compaction.lag.ms": (_FOREVER, _FOREVER, str(2 * DAY_MS)),
    "retention.ms": ("-1", str(DAY_MS), str(5 * DAY_MS)),
    "retention.bytes": ("-1", "-1", "30000", "120000"),
    "compression.type": ("producer", "producer", "uncompressed", *CODECS[1:]),
    "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
    "index.interval.bytes": ("64", "1024", "4096"),
    "segment.index.bytes": ("300", "100000", "100000"),
}
_CHANGED_LATER: Final = (
    "internal.segment.bytes",
    "min.cleanable.dirty.ratio",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "retention.ms",
    "retention.bytes",
)
_BATCH_BYTES: Final = 3000  # A batch must fit the smallest segment.


class _Topic:
    """One topic's present settings, and what is done to it next."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.config = {key: rng.choice(choices) for key, choices in _CHOICES.items()}
        self.config["cleanup.policy"] = rng.choice(_POLICIES)
        self.config["message.timestamp.after.max.ms"] = _FOREVER
        self.keys = rng.choice((1, 20, 150, 600))
        self.open: str | None = None

    def write(self, live: Live, number: int) -> None:
        """Some writes, of records or transactions, in this round."""
        for _ in range(self.rng.randint(1, 4)):
            kind = self.rng.random()
            if kind < 0.6:
                self._fill(live)
            elif kind < 0.85:
                self._transactions(live)
            else:
                self._toggle_transaction(live, number)
        if self.rng.random() < 0.2 and "delete" in self.config["cleanup.policy"]:
            bases = [base for base, _ in live.segments(self.name)]
            live.work.delete_records(self.name, max(bases[-1] // 2, 1) if bases[-1] else 0)

    def reconfigure(self, work: Workload) -> None:
        """Changes a setting or two, the policy now and then."""
        changed = {}
        for key in self.rng.sample(_CHANGED_LATER, self.rng.randint(0, 2)):
            changed[key] = self.rng.choice(_CHOICES[key])
        if self.rng.random() < 0.25:
            changed["cleanup.policy"] = self.rng.choice(_POLICIES)
        if changed:
            self.config |= changed
            work.alter(self.name, changed)

    def _fill(self, live: Live) -> None:
        live.work.fill(
            self.name,
            self.rng.randint(20, 500),
            keys=self.keys,
            unkeyed=0.2 if self.config["cleanup.policy"] == "delete" else 0,
            tombstones=self.rng.choice((0, 0.05, 0.5)),
            timestamp=self._timestamps(live),
            headers=self.rng.random() < 0.2,
            length_max=self.rng.choice((10, 200, 700)),
            settings={
                "compression.type": self.rng.choice(CODECS),
                "enable.idempotence": self.rng.random() < 0.4,
                "batch.size": _BATCH_BYTES,
            },
        )

    def _timestamps(self, live: Live) -> Timestamps:
        kind = self.rng.random()
        if kind < 0.5:
            return live.ago(0.01)
        if kind < 0.85:
            return live.ago(self.rng.choice((0.5, 1.5, 3, 7)))
        days = (-2.0, 0.5, 1.5, 3.0, 7.0)
        return lambda _: live.now_ms - int(self.rng.choice(days) * DAY_MS)

    def _transactions(self, live: Live) -> None:
        aborted = self.rng.choice((0.2, 0.5, 1))
        live.work.transactions(
            self.name, self.rng.randint(3, 20), ids=2, aborted=aborted, keys=self.keys
        )

    def _toggle_transaction(self, live: Live, number: int) -> None:
        if self.open is None:
            self.open = f"{self.name}-open-{number}"
            producer = live.work.transactional(self.open, transaction_timeout_ms=900_000)
            producer.begin_transaction()
            live.work.fill(self.name, 20, keys=self.keys, producer=producer)
        else:
            producer = live.work.transactional(self.open)
            live.work.fill(self.name, 20, keys=self.keys, producer=producer)
            producer.abort_transaction() if self.rng.random() < 0.5 else (
                producer.commit_transaction()
            )
            self.open = None


def record_fuzz(root: Path, *, seed: int, topics: int = 30, rounds: int = 3) -> list[Pair]:
    """Rounds of random writing and Kafka's cleaning on one broker."""
    rng = random.Random(seed)  # nothing here is secret
    made = [_Topic(f"fuzz-{number}", random.Random(f"{seed}-{number}")) for number in range(topics)]
    pairs = []
    with RealKafka(root / "kafka") as kafka:
        work = Workload(kafka, seed)
        for number in range(1, rounds + 1):
            kafka.start_without_cleaning()
            if number == 1:
                work.create({topic.name: topic.config for topic in made})
            live = Live(kafka=kafka, work=work, now_ms=time.time_ns() // 1_000_000)
            for topic in rng.sample(made, len(made) if number == 1 else topics * 2 // 3):
                topic.write(live, number)
                topic.reconfigure(work)
            kafka.stop()
            pairs.append(Pair.record(kafka, root / f"round-{number}"))
    return pairs


pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("kafka_jars")]

SEED = 1
NIGHTLY_SEEDS = (2, 3, 5, 8, 13, 21)
INTERNAL = ("__consumer_offsets", "__transaction_state")
ORDER_MATTERS = {
    f"{topic}-0"
    for topic in (
        "both-old",
        "compact-to-both",
        "both-to-compact",
        "delete-to-both",
        "start-inside",
    )
}
EVERY_TOPIC = (*TOPICS, *PARTITIONED, *INTERNAL)


def clean_pair(pair: Pair, target: Path) -> list[Path]:
    """Runs `cordwood clean` on a copy of what Kafka was given, with the same settings."""
    copies = [copy_log_dir(before, target / before.name) for before in pair.before]
    run_clean(copies, now_ms=pair.now_ms, server_properties=pair.server_properties)
    return copies


def differences_of(pair: Pair, cleaned: list[Path]) -> list[Difference]:
    return [
        difference
        for ours, kafkas in zip(cleaned, pair.after, strict=True)
        for difference in compare_log_dirs(ours, kafkas, include_internal=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Kafka's two cleanings."""

    pairs: list[Pair]

    def checkpoint(self, number: int, partition: str) -> int | None:
        """The offset up to which Kafka has cleaned the partition after a round."""
        found = [
            read_checkpoint(after / "cleaner-offset-checkpoint").get(partition)
            for after in self.pairs[number - 1].after
        ]
        return next((offset for offset in found if offset is not None), None)

    def segments(self, number: int, partition: str, side: str) -> list[int]:
        """Base offsets of a partition's segments, `before` or `after` Kafka's cleaning."""
        pair = self.pairs[number - 1]
        dirs = pair.before if side == "before" else pair.after
        return sorted(int(log.stem) for d in dirs for log in (d / partition).glob("*.log"))


@pytest.fixture(scope="module")
def rounds(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    return Rounds(pairs=record_rounds(tmp_path_factory.mktemp("live"), seed=SEED))


@pytest.fixture(scope="module")
def cleaned(rounds: Rounds, tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """Ours of the same input: the log directories of each round."""
    target = tmp_path_factory.mktemp("cleaned")
    return [clean_pair(pair, target / str(n)) for n, pair in enumerate(rounds.pairs)]


@pytest.fixture(scope="module")
def differences(rounds: Rounds, cleaned: list[list[Path]]) -> list[list[Difference]]:
    """Differences between the two sides, round by round."""
    return list(map(differences_of, rounds.pairs, cleaned))


@pytest.mark.parametrize("topic", EVERY_TOPIC)
@pytest.mark.parametrize("number", [1, 2])
def test_topic_is_left_as_kafka_leaves_it(
    differences: list[list[Difference]], number: int, topic: str
) -> None:
    ours = [d for d in differences[number - 1] if d.partition.rpartition("-")[0] == topic]
    assert not ours, "\n".join(map(str, ours))


def test_no_difference_outside_the_named_topics(differences: list[list[Difference]]) -> None:
    unexpected = [
        str(difference)
        for found in differences
        for difference in found
        if difference.partition.rpartition("-")[0] not in EVERY_TOPIC
    ]
    assert not unexpected


# What follows holds Kafka itself to the rule each topic is about: without it, a topic that never
# came near its threshold would agree, and prove nothing.


def test_kafka_cleans_above_the_dirty_ratio_and_not_at_it(rounds: Rounds) -> None:
    first = {t: rounds.checkpoint(1, f"{t}-0") for t in ("ratio-above", "ratio-equal")}
    assert rounds.checkpoint(2, "ratio-above-0") != first["ratio-above"]
    assert rounds.checkpoint(2, "ratio-equal-0") == first["ratio-equal"]
    assert rounds.checkpoint(2, "ratio-below-0") == rounds.checkpoint(1, "ratio-below-0")
    assert rounds.checkpoint(1, "ratio-one-0") is None


def test_kafka_cleans_what_the_dynamic_default_of_the_dirty_ratio_allows(rounds: Rounds) -> None:
    assert rounds.checkpoint(2, "dynamic-ratio-0") != rounds.checkpoint(1, "dynamic-ratio-0")


def test_kafka_obeys_the_lags(rounds: Rounds) -> None:
    for topic in ("max-lag-due", "max-lag-one-old", "min-lag-half", "min-lag-hump", "both-lags"):
        assert rounds.checkpoint(1, f"{topic}-0"), topic
    assert rounds.checkpoint(1, "max-lag-not-due-0") is None
    last = rounds.segments(1, "min-lag-hump-0", "after")[-1]
    assert (rounds.checkpoint(1, "min-lag-hump-0") or 0) < last


def test_kafka_deletes_by_size_to_the_byte(rounds: Rounds) -> None:
    gone = {
        topic: len(rounds.segments(1, f"{topic}-0", "before"))
        - len(rounds.segments(1, f"{topic}-0", "after"))
        for topic in ("retention-bytes-exact", "retention-bytes-more")
    }
    assert gone == {"retention-bytes-exact": 2, "retention-bytes-more": 1}


def test_kafka_deletes_by_broker_wide_settings(rounds: Rounds) -> None:
    for topic in ("dynamic-retention-0", "dynamic-bytes-0"):
        before, after = (rounds.segments(1, topic, side) for side in ("before", "after"))
        assert 0 < len(after) < len(before), topic


def test_kafka_deleted_before_it_compacted_wherever_that_matters(rounds: Rounds) -> None:
    assert not {pair.cleaned_first for pair in rounds.pairs} & ORDER_MATTERS


def test_kafka_keeps_several_segments_of_its_internal_topics(rounds: Rounds) -> None:
    for topic in INTERNAL:
        for partition in (f"{topic}-0", f"{topic}-1"):
            assert len(rounds.segments(2, partition, "before")) >= 2, partition
            assert rounds.checkpoint(1, partition), partition


def test_a_second_run_changes_nothing(rounds: Rounds, cleaned: list[list[Path]]) -> None:
    pair, ours = rounds.pairs[1], cleaned[1]
    once = [digest_tree(log_dir) for log_dir in ours]
    run_clean(ours, now_ms=pair.now_ms, server_properties=pair.server_properties)
    assert [digest_tree(log_dir) for log_dir in ours] == once


@pytest.fixture(scope="module")
def kill(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Kill:
    return record_kill(tmp_path_factory.mktemp("kill"), seed=SEED)


def test_what_a_kafka_has_cleaned_after_a_stop_or_a_kill_is_sound(kill: Kill) -> None:
    for pair in (kill.stopped, kill.killed):
        assert damage_in(pair.before) == []
        assert damage_in(pair.after) == []


@pytest.fixture(scope="module")
def cleaned_after_kill(kill: Kill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_pair(kill.killed, tmp_path_factory.mktemp("killed"))[0]


def records(partition: Path) -> list[str]:
    """The records of a partition in order, control records too, without their batches."""
    logs = sorted(partition.glob("*.log"))
    dump = dump_files(logs)
    return [line for log in logs for line in dump.comparable(log) if line.startswith("| offset: ")]


def unflushed(killed: Path, partition: str) -> Iterator[Path]:
    """The files of segments that hold the recovery point, or lie above it."""
    recovery_point = read_checkpoint(killed / "recovery-point-offset-checkpoint")[partition]
    bases = sorted(int(log.stem) for log in (killed / partition).glob("*.log"))
    boundary = max(base for base in bases if base <= recovery_point)
    for path in sorted((killed / partition).iterdir()):
        of_segment = path.suffix in {".log", ".index", ".timeindex", ".txnindex"}
        if of_segment and int(path.stem) >= boundary:
            yield path


@pytest.mark.parametrize("topic", KILL_TOPICS)
def test_after_a_kill_nothing_above_the_recovery_point_is_touched(
    kill: Kill, cleaned_after_kill: Path, topic: str
) -> None:
    (killed,) = kill.killed.before
    files = list(unflushed(killed, f"{topic}-0"))
    assert len(files) > 3
    for path in files:
        ours = cleaned_after_kill / path.relative_to(killed)
        assert ours.read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("topic", KILL_TOPICS)
def test_after_a_kill_what_lies_below_the_recovery_point_is_cleaned(
    kill: Kill, cleaned_after_kill: Path, topic: str
) -> None:
    (stopped,) = kill.stopped.after
    partition = f"{topic}-0"
    *flushed, _ = sorted((stopped / partition).glob("*.log"))
    ours = [cleaned_after_kill / partition / log.name for log in flushed]
    dump = dump_files([*flushed, *ours])
    for theirs, mine in zip(flushed, ours, strict=True):
        here = [line for line in dump.comparable(mine) if line.startswith("| offset: ")]
        kafka = [line for line in dump.comparable(theirs) if line.startswith("| offset: ")]
        assert here == kafka, mine.name
    bases = {int(log.stem) for log in (cleaned_after_kill / partition).glob("*.log")}
    recovery_point = read_checkpoint(stopped / "recovery-point-offset-checkpoint")[partition]
    assert {base for base in bases if base < recovery_point} == {
        int(log.stem) for log in (stopped / partition).glob("*.log")
    }
    for name in CHECKPOINTS:
        reached = read_checkpoint(cleaned_after_kill / name).get(partition)
        assert reached == read_checkpoint(stopped / name).get(partition), name


def test_after_a_kill_no_clean_shutdown_is_pretended(cleaned_after_kill: Path) -> None:
    assert not (cleaned_after_kill / ".kafka_cleanshutdown").exists()


def test_after_a_kill_kafka_ends_where_it_would_have_ended_alone(
    kill: Kill, cleaned_after_kill: Path, tmp_path: Path
) -> None:
    (alone,) = kill.killed.after
    (finished,) = clean_copy(cleaned_after_kill, tmp_path / "finished").after
    for topic in KILL_TOPICS:
        partition = f"{topic}-0"
        assert records(finished / partition) == records(alone / partition), topic


@pytest.mark.nightly
@pytest.mark.rotated
@pytest.mark.parametrize("seed", NIGHTLY_SEEDS)
def test_further_seeds_agree_with_kafka(tmp_path: Path, seed: int) -> None:
    pairs = record_rounds(tmp_path / "recorded", seed=seed)
    for number, pair in enumerate(pairs, start=1):
        differences = differences_of(pair, clean_pair(pair, tmp_path / f"cleaned-{number}"))
        assert not differences, "\n".join(map(str, differences))


def require_random_topics_agree(
    root: Path, *, seed: int, topics: int = 30, rounds: int = 3
) -> list[Pair]:
    """Cleans what Kafka was given in each round; fails where anything else is left."""
    pairs = record_fuzz(root / "recorded", seed=seed, topics=topics, rounds=rounds)
    for number, pair in enumerate(pairs, start=1):
        differences = [
            difference
            for difference in differences_of(pair, clean_pair(pair, root / f"cleaned-{number}"))
            if difference.partition != pair.cleaned_first
        ]
        assert not differences, f"round {number}\n" + "\n".join(map(str, differences))
    return pairs


def test_a_few_random_topics_agree_with_kafka(tmp_path: Path) -> None:
    (pair,) = require_random_topics_agree(tmp_path, seed=SEED, topics=12, rounds=1)
    (after,) = pair.after
    compacted = read_checkpoint(after / "cleaner-offset-checkpoint")
    assert sum(name.startswith("fuzz-") for name in compacted) >= 2


@pytest.mark.nightly
@pytest.mark.rotated
@pytest.mark.parametrize("seed", NIGHTLY_SEEDS)
def test_random_topics_agree_with_kafka(tmp_path: Path, seed: int) -> None:
    require_random_topics_agree(tmp_path, seed=seed)
