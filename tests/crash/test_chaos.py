"""Chaos: a broker is killed, its disk fills, its topics change, under load; Kafka reads the end.

The broker is on a small disk; a seed decides what happens to it.
Three idempotent producers write to a topic that keeps everything, one that is compacted by Spark
and one with retention; two groups read; topics and settings change. Meanwhile the broker is killed
or stopped, its disk is filled, its Spark process is killed, members of the groups are killed. At
the end a real Kafka is started on the directory, everything is read from it, and judged.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from cordwood.queries.http_client import EndpointError, ask
from support.failing_disks import fill, may_mount, small_disk
from support.kafka import KafkaRunError, RealKafka, poll_until, read_checkpoint
from support.served import ServedBroker
from support.soaks.churn import Churn
from support.soaks.groups import Group
from support.soaks.ledger import Cleanup, Ledger, Place, judge
from support.soaks.reading import committed_offsets, ends_of, read_records
from support.soaks.writers import Writer

_KEPT: Final = "kept"
_LATEST: Final = "latest"
_WINDOW: Final = "window"
_PARTITIONS: Final = 3
_WRITERS: Final = 3
_SETTLE_S: Final = 600.0
_CLEANUPS: Final = {
    _KEPT: Cleanup.NONE,
    _LATEST: Cleanup.COMPACT,
    _WINDOW: Cleanup.RETENTION,
}
_TOPIC_SETTINGS: Final[dict[str, dict[str, str]]] = {
    _KEPT: {"retention.ms": "-1"},
    _LATEST: {
        "cleanup.policy": "compact",
        "segment.ms": "10000",
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": "20000",
    },
    _WINDOW: {"retention.bytes": "2500000", "segment.ms": "15000", "retention.ms": "-1"},
}
_PROPERTIES: Final[dict[str, str]] = {
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "2000",
    "log.segment.delete.delay.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.index.size.max.bytes": "65536",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.segment.bytes": "1048576",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


@dataclass
class Outcome:
    """Events, and `complaints`: empty if the broker kept its promises."""

    events: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    failed: int = 0
    fatal_errors: list[str] = field(default_factory=list)
    compactions: int = 0
    committed: int = 0
    topic_changes: int = 0
    records_read: int = 0
    complaints: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """All of it but the complaints, in a line."""
        events = ", ".join(f"{count} {name}" for name, count in sorted(self.events.items()))
        return (
            f"{self.acknowledged} records acknowledged, {self.failed} failed, "
            f"{len(self.fatal_errors)} producers fenced or lost, {self.compactions} compactions, "
            f"{self.topic_changes} changes of topics; {events}; "
            f"{self.records_read} records read by Kafka, {len(self.complaints)} complaints"
        )


class Chaos:
    """One run; `disk` is a file system of its own, small enough to be filled."""

    def __init__(
        self,
        disk: Path,
        *,
        seed: int,
        calm_s: Sequence[float] = (2, 5, 10, 30),
        report: Callable[[str], None] = print,
    ) -> None:
        """Starts nothing.

        Args:
            disk: a small file system, mounted and empty.
            seed: of the choices.
            calm_s: seconds from one event to the next, chosen from these.
            report: takes a line a minute.
        """
        self.outcome = Outcome()
        self._disk = disk
        self._report = report
        self._calm_s = calm_s
        self._rng = random.Random(seed)  # repeats itself
        self._ledger = Ledger()
        self._logs = disk / "logs"
        self._kafka = RealKafka(disk.with_name("kafka"), log_dirs=[self._logs])
        self._broker = ServedBroker(self._logs, _PROPERTIES, flags=())
        self._broker.log_file = disk.with_name("serve.log")
        self._ballast: Path | None = None
        self._cleaned: set[tuple[str, int]] = set()

    def run(self, seconds: float) -> Outcome:
        """Lets it happen for so many seconds of real time, and judges what is left."""
        self._kafka.start()  # formats the directory
        self._kafka.stop()
        self._broker.start()
        try:
            self._under_load(seconds)
        finally:
            self._broker.stop()
        return self.outcome

    # ---- load

    def _under_load(self, seconds: float) -> None:
        servers = self._broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        topics = [
            NewTopic(name, _PARTITIONS, 1, config=settings)
            for name, settings in _TOPIC_SETTINGS.items()
        ]
        for done in admin.create_topics(topics).values():
            done.result(30)
        load = {name: name == _LATEST for name in _TOPIC_SETTINGS}
        writers = [
            Writer(number, servers, self._ledger, topics=load, records_per_second=30)
            for number in range(_WRITERS)
        ]
        groups = [
            Group("all", servers, [_KEPT], members=2, contiguous=True),
            Group("both", servers, [_KEPT, _LATEST], members=2, contiguous=False),
        ]
        churn = Churn(
            servers,
            steady_topics=[_LATEST, _WINDOW],
            trimmed=Place(_WINDOW, 0),
            seed=self._rng.randrange(1 << 30),
        )
        try:
            self._disturb(seconds, groups)
            self._clear_disk()
            churn.stop()
            self._wait_for_leaders(admin)
            self._wait_for_a_compaction()
            for writer in writers:
                writer.stop()
            ends = ends_of(servers, _KEPT, _PARTITIONS)
            self._wait_for_readers(groups, ends)
        finally:
            for group in groups:
                group.stop()
        self._look_at_the_cleaner()
        self._broker.stop()
        self._judge(groups, churn, ends)

    def _wait_for_a_compaction(self) -> None:
        """Spark must still work after all that happened."""
        known = len(self._cleaned)

        def has_compacted() -> bool:
            self._look_at_the_cleaner()
            return len(self._cleaned) > known

        try:
            poll_until(has_compacted, timeout_s=_SETTLE_S, what="a compaction")
        except KafkaRunError:
            status = ask(self._broker.url, "/cleaner")
            self.outcome.complaints.append(f"nothing is compacted any more: {status}")

    def _wait_for_leaders(self, admin: AdminClient) -> None:
        """Every partition is served again, those that were created on a full disk too."""

        def unserved() -> list[str]:
            topics = admin.list_topics(timeout=30).topics
            partitions = [
                TopicPartition(name, n) for name, t in topics.items() for n in t.partitions
            ]
            answers = admin.list_offsets(
                {each: OffsetSpec.earliest() for each in partitions}, request_timeout=10
            )
            return [
                f"{each.topic}-{each.partition}: {done.exception()}"
                for each, done in answers.items()
                if done.exception(30) is not None
            ]

        try:
            poll_until(lambda: not unserved(), timeout_s=_SETTLE_S, what="leaders", interval_s=1)
        except KafkaRunError:
            self.outcome.complaints += [f"not served: {each}" for each in unserved()]

    def _wait_for_readers(self, groups: list[Group], ends: dict[Place, int]) -> None:
        """Groups that do not get there complain later of what they have not read."""
        with suppress(KafkaRunError):
            poll_until(
                lambda: all(group.has_read(ends) for group in groups),
                timeout_s=_SETTLE_S,
                what="groups read to the end",
            )

    # ---- what happens to it

    def _disturb(self, seconds: float, groups: list[Group]) -> None:
        def kill_a_member() -> None:
            self._rng.choice(groups).kill_one(self._rng)

        def stop_a_member() -> None:
            self._rng.choice(groups).stop_one(self._rng)

        events: dict[str, tuple[int, Callable[[], Any]]] = {
            "kills": (4, self._kill),
            "stops": (1, self._stop),
            "full disks": (3, self._fill),
            "kills on a full disk": (2, self._kill_on_a_full_disk),
            "kills of Spark": (2, self._kill_spark),
            "kills of members": (3, kill_a_member),
            "stops of members": (1, stop_a_member),
        }
        bag: list[str] = []
        start = time.monotonic()
        deadline, said = start + seconds, start
        while time.monotonic() < deadline:
            if not bag:  # each as often as its weight says, in a new order each time
                bag = [name for name, (weight, _) in events.items() for _ in range(weight)]
                self._rng.shuffle(bag)
            name = bag.pop()
            events[name][1]()
            self.outcome.events[name] += 1
            # Most of the time is calm enough for Spark to start and to compact something.
            self._calm(min(self._rng.choice(self._calm_s), max(0, deadline - time.monotonic())))
            if time.monotonic() > said + 60:
                said = time.monotonic()
                self._report(
                    f"{said - start:.0f} s: {self._ledger.count} acknowledged, "
                    f"{len(self._cleaned)} compactions, {dict(self.outcome.events)}"
                )

    def _calm(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look_at_the_cleaner()
            time.sleep(0.25)  # the load, not a wait

    def _look_at_the_cleaner(self) -> None:
        checkpoint = read_checkpoint(self._logs / "cleaner-offset-checkpoint")
        self._cleaned |= set(checkpoint.items())

    def _kill(self) -> None:
        self._broker.kill()
        self._broker.start()

    def _stop(self) -> None:
        self._broker.stop()
        self._broker.start()

    def _fill(self) -> None:
        self._ballast = fill(self._disk, leave_bytes=self._rng.choice([0, 20_000, 300_000]))
        self._calm(self._rng.uniform(1, 6))
        self._clear_disk()

    def _kill_on_a_full_disk(self) -> None:
        self._ballast = fill(self._disk, leave_bytes=self._rng.choice([0, 20_000]))
        self._calm(1)
        self._broker.kill()
        self._broker.start()
        self._calm(1)
        self._clear_disk()

    def _clear_disk(self) -> None:
        if self._ballast is not None:
            self._ballast.unlink()
            self._ballast = None

    def _kill_spark(self) -> None:
        try:
            pid = ask(self._broker.url, "/cleaner")["engine"]["pid"]
        except (EndpointError, KeyError):
            return
        if pid is not None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(pid, signal.SIGKILL)

    # ---- the end

    def _judge(self, groups: list[Group], churn: Churn, ends: dict[Place, int]) -> None:
        outcome = self.outcome
        outcome.acknowledged = self._ledger.count
        outcome.failed = len(self._ledger.failed)
        outcome.fatal_errors = self._ledger.fatal_errors
        outcome.compactions = len(self._cleaned)
        outcome.topic_changes = churn.operations
        if "Traceback" in self._broker.log:
            outcome.complaints.append(f"the broker logged a traceback: {self._broker.log_file}")
        with self._kafka as kafka:
            admin = kafka.start()
            outcome.complaints += churn.complaints(admin)
            for group in groups:
                committed = poll_until(
                    lambda group=group: committed_offsets(admin, group.name),  # type: ignore[misc]
                    timeout_s=_SETTLE_S,
                    what="Kafka loads the groups",
                )
                outcome.complaints += group.complaints(ends, committed)
            for topic, cleanup in _CLEANUPS.items():
                for number in range(_PARTITIONS):
                    self._judge_partition(Place(topic, number), cleanup)
            corrupt = [each for each in kafka.log_since_start.splitlines() if "orrupt" in each]
            outcome.complaints += [
                f"Kafka: {line}" for line in dict.fromkeys([*kafka.errors_since_start, *corrupt])
            ]
            kafka.stop()

    def _judge_partition(self, place: Place, cleanup: Cleanup) -> None:
        records, start = read_records(self._kafka.bootstrap_servers, place)
        self.outcome.records_read += len(records)
        self.outcome.complaints += judge(
            place,
            self._ledger.of(place),
            records,
            cleanup=cleanup,
            log_start_offset=start,
            failed=self._ledger.failed_of(place.topic),
        )


REASON = may_mount()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.skipif(bool(REASON), reason=REASON),
]


@pytest.mark.parametrize(
    ("seconds", "megabytes", "calm_s"),
    [
        pytest.param(20, 200, [0.5, 1, 2], id="short"),
        pytest.param(3600, 1200, [2, 5, 10, 30], marks=pytest.mark.nightly, id="hour"),
    ],
)
def test_nothing_is_lost_altered_or_duplicated(
    tmp_path: Path, kafka_jars: Path, seconds: int, megabytes: int, calm_s: list[float]
) -> None:
    del kafka_jars
    with small_disk(tmp_path / "disk", megabytes=megabytes) as disk:
        outcome = Chaos(disk, seed=seconds, calm_s=calm_s).run(seconds)
    print(outcome.summary())
    assert outcome.complaints == []
    assert outcome.acknowledged > 50 * seconds
    assert outcome.compactions > seconds // 60
