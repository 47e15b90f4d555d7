"""Knowledge of a script for `support.differential`, by the first broker's answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from support.differential import Step
from support.differential_batches import Batches
from support.differential_values import BAD_TOPICS, TOPICS
from support.wire import API_KEYS, known_versions


@dataclass(slots=True)
class Log:
    """Known state of a partition: its start, its end (exclusive), times in it."""

    start: int = 0
    end: int = 0


@dataclass(slots=True)
class Topic:
    """Known state of a topic."""

    partitions: int
    logs: dict[int, Log] = field(default_factory=dict)


class World:
    """Knowledge of a script: topics, logs, producers, sessions, by the first broker's answers."""

    def __init__(
        self, rng: random.Random, now_ms: int, versions: Mapping[int, range] | None
    ) -> None:
        self.rng = rng
        self.now_ms = now_ms
        self.batches = Batches(rng, now_ms)
        self.topics: dict[str, Topic] = {}
        self.sequences: dict[tuple[str, str, int], list[int]] = {}
        self.producers: list[str] = []
        self.transactions: dict[str, list[tuple[str, int]]] = {}
        self.sessions: dict[int, int] = {}
        self._versions = versions

    def serves(self, api: str) -> bool:
        """True if both brokers have the API."""
        return self._versions is None or len(self._versions.get(API_KEYS[api], ())) > 0

    def version(self, api: str, *, first: int = 0, last: int = 99) -> int:
        """A version of the API within bounds (inclusive); often the highest."""
        key = API_KEYS[api]
        served = self._versions[key] if self._versions is not None else known_versions(key)
        usable = [version for version in served if first <= version <= last] or list(served)
        return usable[-1] if self.rng.random() < 0.4 else self.rng.choice(usable)

    def step(self, api: str, values: Mapping[str, Any], **options: Any) -> Step:
        """A request in some version."""
        version = options.pop("version", None)
        return Step(api, self.version(api) if version is None else version, values, **options)

    def name(self, *, good: float = 0.9) -> str:
        """A topic's name: of one that is there, or else any."""
        if self.topics and self.rng.random() < good:
            return self.rng.choice(sorted(self.topics))
        return self.rng.choice((*TOPICS, *BAD_TOPICS))

    def partition(self, name: str, *, good: float = 0.93) -> int:
        """A partition of the topic, or one that it lacks."""
        count = self.topics[name].partitions if name in self.topics else 2
        if self.rng.random() < good:
            return self.rng.randrange(count)
        return self.rng.choice((count, -1, 100, count + 1))

    def log(self, name: str, partition: int) -> Log:
        """The known state of a partition; an empty log if it does not exist."""
        if name not in self.topics:
            return Log()
        return self.topics[name].logs.setdefault(partition, Log())

    def offset(self, name: str, partition: int) -> int:
        """An offset in, at the ends of, or outside the partition's log."""
        log = self.log(name, partition)
        edges = (log.start, log.start - 1, log.end, log.end + 1, log.end - 1, -1, -2, 1 << 40)
        if self.rng.random() < 0.6:
            return self.rng.randint(log.start, max(log.start, log.end))
        return self.rng.choice(edges)

    def time(self) -> int:
        """A timestamp that may be that of a record."""
        if self.batches.times and self.rng.random() < 0.7:
            return self.rng.choice(self.batches.times) + self.rng.choice((0, 0, 1, -1))
        return self.rng.choice((0, 1, self.now_ms - 86_400_000 * 41, self.now_ms + 86_400_000))

    def maybe(self, probability: float) -> bool:
        """True that often."""
        return self.rng.random() < probability

    def some(self, draw: Callable[[], Any], *, most: int = 3) -> list[Any]:
        """One or a few draws."""
        return [draw() for _ in range(1 if self.maybe(0.7) else self.rng.randint(0, most))]

    def learn(self, step: Step, answer: Any) -> None:
        """Takes notice of an answer."""
        note = _LEARNED.get(step.api)
        if note is not None and "connection" not in answer:
            note(self, step, answer)


def _learn_created(world: World, step: Step, answer: Any) -> None:
    if step.values.get("validate_only"):
        return
    asked = {topic["name"]: topic for topic in step.values["topics"]}
    for topic in answer["topics"]:
        if topic["error_code"] == "none":
            of_request = asked[topic["name"]]
            count = len(of_request["assignments"]) or of_request["num_partitions"]
            world.topics[topic["name"]] = Topic(count if count > 0 else 1)


def _learn_deleted(world: World, step: Step, answer: Any) -> None:
    for topic in answer["responses"]:
        if topic["error_code"] == "none":
            world.topics.pop(topic["name"], None)
            for key in [key for key in world.sequences if key[1] == topic["name"]]:
                del world.sequences[key]


def _learn_partitions(world: World, step: Step, answer: Any) -> None:
    if step.values["validate_only"]:
        return
    asked = {topic["name"]: topic["count"] for topic in step.values["topics"]}
    for topic in answer["results"]:
        if topic["error_code"] == "none" and topic["name"] in world.topics:
            world.topics[topic["name"]].partitions = asked[topic["name"]]


def _learn_produced(world: World, step: Step, answer: Any) -> None:
    if not answer:
        return
    for topic in answer["responses"]:
        for asked in step.values["topic_data"]:
            if step.version >= 13 or asked["name"] == topic["name"]:
                _learn_appended(world, asked["name"], topic["partition_responses"])


def _learn_appended(world: World, name: str, partitions: list[Any]) -> None:
    for partition in partitions:
        if partition["error_code"] == "none":
            log = world.log(name, partition["index"])
            log.end = max(log.end, partition["base_offset"] + 1)


def _learn_listed(world: World, step: Step, answer: Any) -> None:
    for topic in answer["topics"]:
        asked = [t for t in step.values["topics"] if t["name"] == topic["name"]]
        latest = {p["partition_index"] for t in asked for p in t["partitions"]}
        for partition in topic["partitions"]:
            index = partition["partition_index"]
            if partition["error_code"] == "none" and index in latest:
                log = world.log(topic["name"], index)
                log.end = max(log.end, partition.get("offset", -1))


def _learn_records_deleted(world: World, step: Step, answer: Any) -> None:
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            if partition["error_code"] == "none":
                log = world.log(topic["name"], partition["partition_index"])
                log.start = partition["low_watermark"]
                log.end = max(log.end, log.start)


def _learn_session(world: World, step: Step, answer: Any) -> None:
    if step.remember is not None and answer.get("session_id"):
        world.sessions[step.remember[1]] = 1


_LEARNED: Final[Mapping[str, Callable[[World, Step, Any], None]]] = {
    "create_topics": _learn_created,
    "delete_topics": _learn_deleted,
    "create_partitions": _learn_partitions,
    "produce": _learn_produced,
    "list_offsets": _learn_listed,
    "delete_records": _learn_records_deleted,
    "fetch": _learn_session,
}

Draw = Callable[[World], Step]
