"""The log directory that the pages of docs/tasks begin with: /var/lib/kafka/data of a small shop.

A stopped broker has left it. All ages count back from the moment at which it is made, so that the
commands of a page print the same on any day; records and batches are the same each time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import TopicPartition as Committed
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.format.record_batch import Record, build_batch
from cordwood.testing.broker import RunningBroker
from support.commits import commit

MakeLog = Callable[[Path, int], None]
"""Makes the log directory at a path, with the days that `clicks` is kept."""

DAY_MS = 86_400_000
_SEGMENT = {"internal.segment.bytes": "65536"}
#: Topic: partitions, settings, days of records, batches a day.
TOPICS: dict[str, tuple[int, dict[str, str], int, int]] = {
    "clicks": (2, {**_SEGMENT, "retention.ms": str(14 * DAY_MS)}, 10, 6),
    "orders": (2, {**_SEGMENT, "retention.ms": str(30 * DAY_MS)}, 10, 3),
    "users": (1, {**_SEGMENT, "cleanup.policy": "compact"}, 10, 6),
}
_RECORDS_A_BATCH = 20
_VALUE_BYTES = 500


#: What the broker's server.properties says of how long records are kept.
PROPERTIES = "log.retention.hours=720\n"


def write_properties(directory: Path) -> None:
    """Writes the shop's /etc/kafka/server.properties below a directory."""
    path = directory / "etc" / "kafka" / "server.properties"
    path.parent.mkdir(parents=True)
    path.write_text(PROPERTIES, encoding="utf-8")


def make_log(directory: Path, *, clicks_kept_days: int = 14) -> None:
    """Writes the log directory of the shop, as a broker leaves it that has been stopped.

    Args:
        directory: created; the broker's `log.dirs`.
        clicks_kept_days: `retention.ms` of `clicks`, set when all records are written.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    settings = {
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": 1 << 20,
        "log.cleaner.enable": False,
        "num.partitions": 1,
        "log.retention.check.interval.ms": 2**62,
    }
    with RunningBroker(settings, log_dir=directory) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        topics = []
        for name, (partitions, config, _, _) in TOPICS.items():
            kept = {"retention.ms": str(clicks_kept_days * DAY_MS)} if name == "clicks" else {}
            topics.append(NewTopic(name, partitions, 1, config={**config, **kept}))
        for made in admin.create_topics(topics).values():
            made.result()
        _produce(broker, int(time.time() * 1000))
        _commit(servers)


def _produce(broker: RunningBroker, now_ms: int) -> None:
    """Appends batches as they would be produced: a client decides by itself what a batch is."""
    values = random.Random(7)  # noqa: S311  # data, no secrets
    for name, (partitions, _, days, batches_a_day) in TOPICS.items():
        for moment_ms in _moments(now_ms, days, batches_a_day):
            for partition in range(partitions):
                records = [
                    Record(
                        number,
                        moment_ms + number,
                        f"user-{values.randrange(200)}".encode(),
                        values.randbytes(_VALUE_BYTES),
                    )
                    for number in range(_RECORDS_A_BATCH)
                ]
                _append(broker, name, partition, build_batch(records, base_offset=0))


def _append(broker: RunningBroker, topic: str, partition: int, batch: bytes) -> None:
    broker.call(lambda running: running.replicas.partition(topic, partition).append(batch))


def _moments(now_ms: int, days: int, batches_a_day: int) -> Iterator[int]:
    count = days * batches_a_day
    for number in range(count):
        yield now_ms - (count - number) * DAY_MS // batches_a_day + DAY_MS // 24


def _commit(servers: dict[str, str]) -> None:
    """Commits as a group that has read a part, again and again."""
    positions = [Committed("clicks", 0, offset, "host-" * 800) for offset in range(1, 301)]
    commit(servers["bootstrap.servers"], "billing", positions)
