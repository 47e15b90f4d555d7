"""Random requests that write and read records, for scripts of requests.

No request holds null in place of records: Kafka leaves it without an answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cordwood.format.compression import Codec
from support import differential_admin as admin
from support.differential import ProducerId, Session, Step, TopicId
from support.differential_batches import Batch
from support.differential_script import Draw, World
from support.differential_values import TOPICS
from support.wire import API_KEYS, request_body

FETCH_LIMITS: Final = (1 << 20, 1 << 20, 1 << 20, 0, 1, 100, 500, -1)


def opening(world: World) -> Iterator[Step]:
    """A few topics to begin with, and the coordinators' own."""
    settings: Sequence[dict[str, str]] = (
        {},
        {"cleanup.policy": "compact"},
        {"message.timestamp.type": "LogAppendTime"},
        {"internal.segment.bytes": "1500", "index.interval.bytes": "100"},
    )
    for name, configs in zip(TOPICS, settings, strict=False):
        given = [{"name": key, "value": value} for key, value in configs.items()]
        topic = admin.new_topic(name, 2, 1, given)
        values = {"topics": [topic], "timeout_ms": 30000}
        yield world.step("create_topics", values, version=world.version("create_topics", first=7))
    for key_type, key in admin.coordinators(world):
        version = world.version("find_coordinator", first=4)
        values = {"key_type": key_type, "coordinator_keys": [key]}
        yield world.step("find_coordinator", values, version=version)
    for slot in ("p0", "p1"):
        yield _new_producer(world, slot)


def draws_of(world: World) -> tuple[list[Draw], list[float]]:
    """The draws, and their weights."""
    all_draws = {**DRAWS, **admin.DRAWS}
    usable = {draw: weight for draw, (api, weight) in all_draws.items() if world.serves(api)}
    return list(usable), list(usable.values())


# --- Writing -------------------------------------------------------------------------------------


def _produce(world: World, parts: list[tuple[str, int, Any]], **options: Any) -> Step:
    rng = world.rng
    # One batch a partition: of two, Kafka's answer depends on the order of a hash map.
    topics: dict[str, list[Any]] = {}
    for (name, partition), batch in {(part[0], part[1]): part[2] for part in parts}.items():
        topics.setdefault(name, []).append({"index": partition, "records": batch})
    acks = rng.choices((-1, 1, 0, 7, 2), (6, 5, 1, 0.3, 0.1))[0]
    values = {
        "acks": acks,
        "timeout_ms": 10_000,
        "transactional_id": options.pop("transactional_id", None),
        "topic_data": [
            {"name": name, "topic_id": TopicId(name), "partition_data": data}
            for name, data in topics.items()
        ],
    }
    return world.step("produce", values, **options)


def _produce_good(world: World) -> Step:
    def part() -> tuple[str, int, Batch]:
        name = world.name(good=0.97)
        return name, world.partition(name), world.batches.good()

    return _produce(world, world.some(part))


def _produce_bad(world: World) -> Step:
    name = world.name(good=0.97)
    return _produce(world, [(name, world.partition(name), world.batches.bad())])


def _produce_keyless(world: World) -> Step:
    return _produce(world, [(world.name(), 0, world.batches.good(keyed=0, codec=Codec.NONE))])


def _produce_sequence(world: World) -> Step:
    rng = world.rng
    slot = rng.choice(world.producers or ["p0"])
    name = world.name(good=1)
    partition = world.partition(name, good=1)
    used = world.sequences.setdefault((slot, name, partition), [0])
    kind = rng.choices(("next", "same", "gap", "first", "old"), (7, 2, 1, 1, 1))[0]
    sequence = {
        "next": used[-1],
        "same": used[-2] if len(used) > 1 else 0,
        "gap": used[-1] + rng.randint(1, 5),
        "first": 0,
        "old": max(0, used[-1] - rng.randint(1, 40)),
    }[kind]
    shift = rng.choices((0, 1, -1), (20, 1, 1))[0]
    batch, count = world.batches.sequenced(slot, sequence, epoch_shift=shift)
    if kind == "next" and shift == 0:
        used.append(sequence + count)
    return _produce(world, [(name, partition, batch)])


def _new_producer(world: World, slot: str) -> Step:
    if slot not in world.producers:
        world.producers.append(slot)
    for key in [key for key in world.sequences if key[0] == slot]:
        del world.sequences[key]
    values = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    values |= {"producer_id": -1, "producer_epoch": -1}
    return world.step("init_producer_id", values, remember=("producer", slot))


def _init_producer(world: World) -> Step:
    rng = world.rng
    kind = rng.random()
    if kind < 0.5:
        return _new_producer(world, rng.choice(("p0", "p1", "p2", "p3")))
    values: dict[str, Any] = {
        "transactional_id": rng.choice((None, "", *("x-bad",) * world.serves("end_txn"))),
        "transaction_timeout_ms": rng.choice((0, -1, 60_000, 900_001)),
        "producer_id": rng.choice((-1, 5, ProducerId("p0"))),
        "producer_epoch": rng.choice((-1, 0, 3)),
    }
    if values["transactional_id"] == "x-bad":
        values["transaction_timeout_ms"] = rng.choice((0, -1, 900_001))
    return world.step("init_producer_id", values)


# --- Reading -------------------------------------------------------------------------------------


def _fetched(world: World, *, limits: Sequence[int] = FETCH_LIMITS) -> dict[str, Any]:
    name = admin.own(world.name(good=0.95))
    partition = world.partition(name)
    return {
        "topic": name,
        "topic_id": TopicId(name),
        "partitions": [
            {
                "partition": partition,
                "current_leader_epoch": world.rng.choices((-1, 0, 1), (9, 2, 1))[0],
                "fetch_offset": world.offset(name, partition),
                "last_fetched_epoch": world.rng.choices((-1, 0, 3), (12, 1, 1))[0],
                "log_start_offset": world.rng.choices((-1, 0), (9, 1))[0],
                "partition_max_bytes": world.rng.choice(limits),
            }
        ],
    }


def _fetch_values(world: World, topics: list[Any], **more: Any) -> dict[str, Any]:
    rng = world.rng
    merged: dict[str, dict[str, Any]] = {}
    for topic in topics:
        of_topic = merged.setdefault(topic["topic"], {**topic, "partitions": []})
        known = {partition["partition"] for partition in of_topic["partitions"]}
        of_topic["partitions"] += [p for p in topic["partitions"] if p["partition"] not in known]
    return {
        "replica_id": -1,
        "max_wait_ms": rng.choice((0, 0, 5)),
        "min_bytes": rng.choice((0, 1, 1, 100_000)),
        "max_bytes": rng.choice((1 << 22, 1 << 22, 1 << 22, 0, 1, 700)),
        "isolation_level": rng.choice((0, 0, 1)),
        "session_id": 0,
        "session_epoch": -1,
        "topics": list(merged.values()),
        "forgotten_topics_data": [],
        "rack_id": "",
        **more,
    }


def _fetch(world: World) -> Step:
    topics = world.some(lambda: _fetched(world))
    return world.step("fetch", _fetch_values(world, topics))


def _fetch_session(world: World) -> Step:
    rng = world.rng
    version = world.version("fetch", first=7)
    slot = rng.randrange(3)
    epoch = world.sessions.get(slot)
    topics = world.some(lambda: _fetched(world, limits=(1 << 20,)))
    large = {"max_bytes": 1 << 22}
    if epoch is None or world.maybe(0.15):
        values = _fetch_values(world, topics, session_epoch=0, **large)
        return world.step("fetch", values, version=version, remember=("session", slot))
    forgotten = []
    if world.maybe(0.3):
        name = world.name()
        forgotten = [{"topic": name, "topic_id": TopicId(name), "partitions": [0]}]
    kind = rng.choices(("next", "empty", "close", "wrong epoch", "unknown"), (8, 8, 1, 1, 1))[0]
    if kind == "empty":
        topics = []
    sent = {"next": epoch, "empty": epoch, "close": -1, "wrong epoch": epoch + 3}.get(kind, epoch)
    values = _fetch_values(
        world,
        topics,
        session_epoch=sent,
        session_id=99 if kind == "unknown" else Session(slot),
        forgotten_topics_data=forgotten,
        **large,
    )
    if kind == "close":
        del world.sessions[slot]
    elif sent == epoch and kind != "unknown":
        world.sessions[slot] = epoch + 1
    return world.step("fetch", values, version=version)


def _list_offsets(world: World) -> Step:
    rng = world.rng

    def partition_of(name: str) -> dict[str, Any]:
        special = rng.choice((-1, -1, -2, -2, -3, -3, -4, -5, -6, -7))
        return {
            "partition_index": world.partition(name),
            "current_leader_epoch": rng.choices((-1, 0, 1), (9, 2, 1))[0],
            "timestamp": special if world.maybe(0.6) else world.time(),
        }

    def topic() -> dict[str, Any]:
        name = world.name(good=0.95)
        return {"name": name, "partitions": world.some(lambda: partition_of(name))}

    values = {
        "replica_id": rng.choices((-1, -2), (20, 1))[0],
        "isolation_level": rng.choice((0, 1)),
        "topics": world.some(topic, most=2),
        "timeout_ms": 5000,
    }
    return world.step("list_offsets", values)


def _leader_epoch(world: World) -> Step:
    def topic() -> dict[str, Any]:
        name = world.name(good=0.95)
        asked = {
            "partition": world.partition(name),
            "current_leader_epoch": world.rng.choices((-1, 0, 1), (9, 3, 1))[0],
            "leader_epoch": world.rng.choice((0, 0, 1, -1, 5)),
        }
        return {"topic": name, "partitions": [asked]}

    values = {"replica_id": -1, "topics": world.some(topic)}
    return world.step("offset_for_leader_epoch", values)


def _delete_records(world: World) -> Step:
    def topic() -> dict[str, Any]:
        name = world.name(good=0.95)
        partition = world.partition(name)
        offset = world.offset(name, partition)
        log = world.log(name, partition)
        if world.maybe(0.5):
            offset = min(offset, log.start + 3)
        return {"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}

    values = {"topics": world.some(topic, most=2), "timeout_ms": 10_000}
    return world.step("delete_records", values)


def _describe_producers(world: World) -> Step:
    def topic() -> dict[str, Any]:
        name = world.name()
        return {"name": name, "partition_indexes": [world.partition(name)]}

    return world.step("describe_producers", {"topics": world.some(topic)})


def _malformed(world: World) -> Step:
    """A body that is cut off, or a version that is not served: Kafka closes the connection."""
    api = world.rng.choice(("metadata", "list_offsets", "fetch", "create_topics", "produce"))
    step = world.step(api, {})
    if world.maybe(0.3):
        return Step(api, 77, {}, raw=b"")
    body = request_body(API_KEYS[api], step.version, {})
    return Step(api, step.version, {}, raw=body[: world.rng.randrange(len(body))])


DRAWS: Final[dict[Draw, tuple[str, float]]] = {
    _produce_good: ("produce", 16),
    _produce_bad: ("produce", 6),
    _produce_keyless: ("produce", 1),
    _produce_sequence: ("produce", 7),
    _init_producer: ("init_producer_id", 1.5),
    _fetch: ("fetch", 14),
    _fetch_session: ("fetch", 8),
    _list_offsets: ("list_offsets", 10),
    _leader_epoch: ("offset_for_leader_epoch", 3),
    _delete_records: ("delete_records", 2.5),
    _describe_producers: ("describe_producers", 1),
    _malformed: ("metadata", 0.7),
}


class RandomScript:
    """`count` requests drawn from `seed`, after those that make a first few topics.

    `versions` are those that both brokers serve; None stands for all that are known.
    """

    def __init__(
        self, seed: int, count: int, now_ms: int, versions: Mapping[int, range] | None = None
    ) -> None:
        self._count = count
        self._world = World(random.Random(seed), now_ms, versions)  # noqa: S311

    @property
    def times(self) -> frozenset[int]:
        """The timestamps of the script's records, as far as drawn, in ms."""
        return frozenset(self._world.batches.times)

    def learn(self, step: Step, answer: Any) -> None:
        """Takes notice of an answer."""
        self._world.learn(step, answer)

    def __iter__(self) -> Iterator[Step]:
        """The requests."""
        world = self._world
        yield from opening(world)
        draws, weights = draws_of(world)
        for _ in range(self._count):
            (draw,) = world.rng.choices(draws, weights)
            yield draw(world)
