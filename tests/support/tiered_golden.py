"""Golden data of tiered storage: a broker's log directory, the remote one, what a consumer reads.

A real Kafka makes them: `remote` is a directory of `LocalTieredStorage`, and `consumed.json` what a
stock consumer got, from remote storage where the local segments are gone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from support.kafka import KafkaRunError, copy_log_dir, poll_until
from support.tiered_kafka import TIERED, TieredKafka, remote_segments
from support.workload import Workload

ARCHIVE: Final = Path(__file__).resolve().parents[1] / "golden" / "tiered.tar.xz"

_NO_RETENTION: Final = {"local.retention.ms": "-2"}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": TIERED,
    "transactions": TIERED,
    "expired": TIERED,
    "records-deleted": TIERED,
    "also-local": {**TIERED, **_NO_RETENTION},
    "gone": TIERED,
    "untiered": {"internal.segment.bytes": TIERED["internal.segment.bytes"]},
}
#: Those whose local segments are in remote storage only, except for the last.
_MOVED: Final = ("plain", "transactions", "records-deleted")
_SECONDS_MAX: Final = 120
_DELETED_BEFORE: Final = 250


@dataclass(frozen=True, slots=True)
class Consumed:
    """A record that a consumer got; `digest` is of its key and value."""

    offset: int
    timestamp_ms: int
    digest: str

    @classmethod
    def of(cls, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> Self:
        """The record with this content."""
        content = repr((key, value)).encode()
        return cls(offset, timestamp_ms, hashlib.sha256(content).hexdigest()[:16])


@dataclass(frozen=True, slots=True)
class TieredGolden:
    """The directories below `root`, not to be changed, and what a consumer got of each topic.

    Keys of `consumed` are `read_uncommitted/<topic>` and `read_committed/<topic>`.
    """

    root: Path
    consumed: Mapping[str, list[Consumed]]

    @property
    def log_dir(self) -> Path:
        """The broker's."""
        return self.root / "log-dir"

    @property
    def remote_dir(self) -> Path:
        """Of `LocalTieredStorage`."""
        return self.root / "remote"

    @classmethod
    def read(cls, root: Path) -> Self:
        """Reads what lies below `root`."""
        found = json.loads((root / "consumed.json").read_text())
        return cls(root, {name: [Consumed(*each) for each in rows] for name, rows in found.items()})

    @classmethod
    def unpack(cls, root: Path) -> Self:
        """Unpacks what the repository has."""
        with tarfile.open(ARCHIVE) as packed:
            packed.extractall(root, filter="data")
        return cls.read(root / "tiered")

    @classmethod
    def make(cls, root: Path, scratch: Path) -> Self:
        """Has a real Kafka make them in `root`, which must not exist.

        Raises:
            KafkaRunError: its segments were not moved in time.
        """
        with TieredKafka(scratch / "kafka") as kafka:
            _write_and_consume(kafka, root)
            copy_log_dir(kafka.log_dirs[0], root / "log-dir")
            shutil.copytree(kafka.remote_dir, root / "remote")
        return cls.read(root)


def _write_and_consume(kafka: TieredKafka, root: Path) -> None:
    work = Workload(kafka, seed=1)
    kafka.start()
    work.create(TOPICS)
    _write(work)
    work.transactions("transactions", 40)
    kafka.stop()
    # The next leader epoch.
    kafka.start()
    _write(work)
    work.transactions("transactions", 30)
    _wait("copied", lambda: all(_copied(kafka, each) for each in _tiered()))
    _wait("moved", lambda: all(_local(kafka, each) == 1 for each in _MOVED))
    work.delete_records("records-deleted", _DELETED_BEFORE)
    before = len(remote_segments(kafka.remote_dir, "expired-0"))
    work.alter("expired", {"retention.bytes": "40000"})
    admin = kafka.admin()
    for done in admin.delete_topics(["gone"]).values():
        done.result()
    _wait("deleted", lambda: len(remote_segments(kafka.remote_dir, "expired-0")) < before - 2)
    _wait("deleted", lambda: not remote_segments(kafka.remote_dir, "gone-0"))
    # What is not remote yet.
    for topic in ("plain", "also-local"):
        work.fill(topic, 20)
    consumed = {
        f"{isolation}/{topic}": [[*each] for each in _consume(kafka, topic, isolation)]
        for topic in TOPICS
        if topic != "gone"
        for isolation in ("read_uncommitted", "read_committed")
    }
    kafka.stop()
    root.mkdir(parents=True)
    (root / "consumed.json").write_text(json.dumps(consumed))


def _write(work: Workload) -> None:
    for topic in TOPICS:
        if topic != "transactions":
            work.fill(topic, 400, settings={"enable.idempotence": True})


def _tiered() -> list[str]:
    return [topic for topic, config in TOPICS.items() if "remote.storage.enable" in config]


def _wait(what: str, condition: Callable[[], bool]) -> None:
    poll_until(condition, timeout_s=_SECONDS_MAX, what=f"segments are {what}")


def _local(kafka: TieredKafka, topic: str) -> int:
    return len(list((kafka.log_dirs[0] / f"{topic}-0").glob("*.log")))


def _copied(kafka: TieredKafka, topic: str) -> bool:
    """Whether the segment below the active one is remote."""
    active = max(file.stem for file in (kafka.log_dirs[0] / f"{topic}-0").glob("*.log"))
    remote = remote_segments(kafka.remote_dir, f"{topic}-0")
    local = {file.stem for file in (kafka.log_dirs[0] / f"{topic}-0").glob("*.log")} - {active}
    return bool(remote) and local <= {file.name[:20] for file in remote}


def _consume(kafka: TieredKafka, topic: str, isolation: str) -> Iterator[tuple[int, int, str]]:
    settings = {
        "group.id": "golden",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(kafka.client(settings))
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message: Message | None = consumer.poll(_SECONDS_MAX)
            if message is None:
                raise KafkaRunError(f"{topic} is not read to its end")
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaRunError(f"{topic}: {error}")
            each = Consumed.of(
                message.offset() or 0, message.timestamp()[1], message.key(), message.value()
            )
            yield each.offset, each.timestamp_ms, each.digest
    finally:
        consumer.close()
