"""Topics that are created, changed and deleted all the time, and what must be there at the end."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from support.soaks.ledger import Place

_PREFIX: Final = "churn-"
_TOPICS_MAX: Final = 12
_PARTITIONS_MAX: Final = 6
_ANSWER_S: Final = 20.0
_SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "segment.bytes": ("1048576", "1500000", "2097152"),
    "min.cleanable.dirty.ratio": ("0.05", "0.1", "0.3"),
    "compression.type": ("producer", "lz4", "zstd", "gzip", "snappy"),
    "max.message.bytes": ("1048588", "2097152"),
}
_POLICIES: Final = ("delete", "compact", "compact,delete")


@dataclass
class _Topic:
    """Known state of a topic; None where an operation ended without an answer."""

    partitions: int | None
    settings: dict[str, str | None] = field(default_factory=dict)


class Churn:
    """Changes topics of its own and settings of others, in a thread."""

    def __init__(
        self, bootstrap_servers: str, *, steady_topics: list[str], trimmed: Place, seed: int
    ) -> None:
        """Starts.

        Args:
            bootstrap_servers: of the broker.
            steady_topics: topics of others, of which settings are changed.
            trimmed: a partition from which records are deleted.
            seed: of the choices.
        """
        self.operations = 0
        self._servers = bootstrap_servers
        self._rng = random.Random(seed)  # noqa: S311  # repeats itself
        self._topics: dict[str, _Topic | None] = {name: _Topic(None) for name in steady_topics}
        self._steady = steady_topics
        self._trimmed = trimmed
        self._created = 0
        self._stop = threading.Event()
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Waits for the operation under way, and deletes topics of which too little is known."""
        self._stop.set()
        self._thread.join(_ANSWER_S * 3)
        for name in [name for name, known in self._topics.items() if known is None]:
            self._delete(name)
        unknown = [name for name, known in self._topics.items() if known is None]
        assert not unknown, f"the broker does not say whether it has {unknown}"

    def complaints(self, admin: AdminClient) -> list[str]:
        """Differences between a broker's topics and those that were acknowledged."""
        metadata = admin.list_topics(timeout=_ANSWER_S)
        there = {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if not name.startswith("__")
        }
        back = [name for name in there if name.startswith(_PREFIX) and name not in self._topics]
        found = [f"topic {name} is there again" for name in sorted(back)]
        for name, known in self._topics.items():
            assert known is not None, "stop comes first"
            if name not in there:
                found.append(f"topic {name} is gone")
                continue
            if known.partitions is not None and there[name] != known.partitions:
                found.append(f"topic {name} has {there[name]} partitions, not {known.partitions}")
            settings = _settings_of(admin, name)
            found += [
                f"topic {name} has {key}={settings.get(key)}, not {value}"
                for key, value in known.settings.items()
                if value is not None and settings.get(key) != value
            ]
        return found

    def _run(self) -> None:
        steps = [self._create, self._delete_some, self._alter, self._alter, self._grow, self._trim]
        while not self._stop.wait(self._rng.uniform(0.05, 0.6)):
            self._rng.choice(steps)()
            self.operations += 1

    def _own(self) -> list[str]:
        return [name for name, known in self._topics.items() if known and known.partitions]

    def _create(self) -> None:
        if len(self._topics) >= _TOPICS_MAX:
            return
        self._created += 1
        name = f"{_PREFIX}{self._created}"
        partitions = self._rng.randint(1, _PARTITIONS_MAX)
        settings = {"cleanup.policy": self._rng.choice(_POLICIES)}
        self._topics[name] = None
        new = NewTopic(name, partitions, 1, config=settings)
        (done,) = self._admin.create_topics([new], request_timeout=_ANSWER_S).values()
        if _error_of(done) in {None, KafkaError.TOPIC_ALREADY_EXISTS}:
            self._topics[name] = _Topic(partitions, dict(settings))
            self._write(name)

    def _write(self, topic: str) -> None:
        """Some records, of which nothing is asked later."""
        producer = Producer(
            {"bootstrap.servers": self._servers, "message.timeout.ms": 5_000, "log_level": 0}
        )
        for number in range(50):
            producer.produce(topic, key=b"%d" % (number % 7), value=b"x" * number)
        producer.flush(6)

    def _delete_some(self) -> None:
        own = self._own()
        if len(own) > _TOPICS_MAX // 3:
            self._delete(self._rng.choice(own))

    def _delete(self, name: str) -> None:
        self._topics[name] = None
        (done,) = self._admin.delete_topics([name], request_timeout=_ANSWER_S).values()
        if _error_of(done) in {None, KafkaError.UNKNOWN_TOPIC_OR_PART}:
            del self._topics[name]

    def _alter(self) -> None:
        name = self._rng.choice([*self._own(), *self._steady])
        key = self._rng.choice(list(_SETTINGS))
        value = self._rng.choice(_SETTINGS[key])
        known = self._topics[name]
        assert known is not None
        known.settings[key] = None
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        (done,) = self._admin.incremental_alter_configs(
            [resource], request_timeout=_ANSWER_S
        ).values()
        if _error_of(done) is None:
            known.settings[key] = value

    def _grow(self) -> None:
        own = self._own()
        if not own:
            return
        name = self._rng.choice(own)
        known = self._topics[name]
        assert known is not None
        assert known.partitions is not None
        wanted, known.partitions = known.partitions + 1, None
        (done,) = self._admin.create_partitions(
            [NewPartitions(name, wanted)], request_timeout=_ANSWER_S
        ).values()
        if _error_of(done) is None:
            known.partitions = wanted
        else:
            self._delete(name)

    def _trim(self) -> None:
        """Deletes records of the one partition up to its middle."""
        at = TopicPartition(*self._trimmed)
        answers = self._admin.delete_records(
            [TopicPartition(at.topic, at.partition, self._rng.randint(1, 200))],
            request_timeout=_ANSWER_S,
        )
        for done in answers.values():
            _error_of(done)


def _settings_of(admin: AdminClient, topic: str) -> dict[str, str | None]:
    (done,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in done.result(_ANSWER_S).items()}


def _error_of(done: Future[Any]) -> int | None:
    """The code of an operation's error; None where it succeeded."""
    try:
        done.result(_ANSWER_S + 10)
    except KafkaException as error:
        return int(error.args[0].code())
    except TimeoutError:
        return int(KafkaError._TIMED_OUT)  # public, whatever its name
    return None
