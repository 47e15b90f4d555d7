"""Random requests of transactional producers, drawn by what the first of two brokers answered.

Role: the script of the comparison with a real Kafka (`support.transaction_comparison`). Most
requests are those of a correct client; the others have old epochs, wrong sequences, other
producers' ids, partitions that do not exist, or come at the wrong time.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from cordwood.format.record_batch import Record, build_batch
from support.wire import NO_UUID, Plain

TOPICS: Final[Mapping[str, int]] = {"red": 2, "blue": 3, "big": 1}
IDS: Final = ("t0", "t1", "t2", "pay-1", "pay-2")
WORN: Final = ("worn-1", "worn-2")
"""Transactional ids whose epochs are nearly used up when the script begins."""
SIMPLE, CLASSIC, CONSUMER = "simple", "classic", "consumer"
GROUPS: Final = (SIMPLE, CLASSIC, CONSUMER)
OFFSETS_TOPIC: Final = "__consumer_offsets"
CLASSIC_MEMBER: Final = "<classic member>"
"""Stands for the member's id, which each broker makes itself."""
CONSUMER_MEMBER: Final = "c0ffee00-0000-4000-8000-000000000001"
GENERATION: Final = {CLASSIC: 1, CONSUMER: 2}
"""The generation, or the member epoch, after the member has joined."""
BASE_MS: Final = 1_700_000_000_000
"""The time of the first record; markers are later than any record."""

_NO_ID: Final = (-1, -1)
_NO_TOPIC: Final = uuid.UUID(int=0xABCDEF << 64)
_STRANGER: Final = 888_000
_WRONG_TIMEOUTS: Final = (0, -1, 900_001, 2**31 - 1)
_STATES: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("Dead", "PrepareEpochFence", "ongoing", "Nothing"),
)
_PATTERNS: Final = (
    "",
    ".*",
    "t[01]",
    "pay-.",
    "pay",
    "^t0$",
    "worn.*|t2",
    "(",
    "[[:digit:]]+",
    "T0",
)
_BIG_BYTES: Final = 60_000
_FETCH_HAS_IDS_SINCE: Final = 13

_Producer = tuple[int, int]
_Partition = tuple[str, int]


class Request(NamedTuple):
    """A request; `settles` are the transactional ids whose markers it may have sent."""

    api: str
    version: int
    values: dict[str, Any]
    settles: tuple[str, ...] = ()
    learn: Callable[[Plain], None] | None = None


@dataclass(slots=True)
class Client:
    """A producer with its transactional id; None is an idempotent one.

    `ended` is the producer and the outcome of the last EndTxn; `before` are ids and epochs that it
    had; `groups` are those whose offsets are in the transaction.
    """

    transactional_id: str | None
    producer: _Producer = _NO_ID
    sequences: dict[_Partition, int] = field(default_factory=dict)
    added: set[_Partition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    before: list[_Producer] = field(default_factory=list)
    ended: tuple[_Producer, bool] | None = None
    last: dict[_Partition, int] = field(default_factory=dict)
    is_fenced: bool = False
    is_stuck: bool = False

    def become(self, producer: _Producer) -> None:
        """Takes an id and epoch."""
        if producer != self.producer:
            if self.producer != _NO_ID:
                self.before.append(self.producer)
            self.producer, self.sequences, self.last = producer, {}, {}
        self.added, self.groups = set(), set()


class _Batch(NamedTuple):
    partition: _Partition
    data: bytes
    sequence: int
    record_count: int
    client: Client


class TransactionScript:
    """The requests; each one is drawn when the one before was answered."""

    def __init__(
        self, seed: int, topic_ids: Mapping[str, uuid.UUID], *, version: int, own_ids: Sequence[str]
    ) -> None:
        """Begins with producers without ids.

        Args:
            seed: of the random numbers.
            topic_ids: of the topics.
            version: the finalized transaction.version. In version 0 clients do not send what only
                version 2 has, see docs/design/transactions.md, "Differences from Kafka".
            own_ids: the transactional ids.
        """
        self._random = random.Random(seed)  # noqa: S311  # a script, to be repeated
        self._topic_ids = topic_ids
        self._version = version
        self._clients = [Client(name) for name in own_ids]
        self._plain = [Client(None) for _ in range(2)]
        self._ends: dict[_Partition, int] = {}
        self._now_ms = BASE_MS
        self._draws: Sequence[tuple[float, Callable[[], Request]]] = (
            (9, self._init),
            (11, self._add),
            (5, self._add_as_broker),
            (4, self._add_offsets),
            (28, self._produce),
            (9, self._commit_offsets),
            (15, self._end),
            (3, self._markers),
            (1, self._find),
            (4, self._describe),
            (4, self._list),
            (4, self._describe_producers),
            (6, self._list_offsets),
            (8, self._fetch),
            (4, self._fetch_offsets),
        )

    def draw(self) -> Request:
        """The next request."""
        fenced = [each for each in self._clients if each.is_fenced]
        if fenced and self._maybe(0.5):
            return self._init(self._random.choice(fenced))
        weights = [weight for weight, _ in self._draws]
        (draw,) = self._random.choices([each for _, each in self._draws], weights)
        return draw()

    # ---- what requests are about

    def _maybe(self, probability: float) -> bool:
        return self._random.random() < probability

    def _client(self) -> Client:
        """A client, mostly one that has a producer id."""
        ready = [each for each in self._clients if each.producer != _NO_ID and not each.is_stuck]
        if ready and self._maybe(0.97):
            return self._random.choice(ready)
        return self._random.choice(self._clients)

    def _producer(self, client: Client, *, good: float = 0.86) -> _Producer:
        """The client's producer, or one that is fenced, of another client, or of nobody."""
        producer_id, epoch = client.producer
        if self._maybe(good):
            return client.producer
        other = self._random.choice(self._clients).producer
        return self._random.choice(
            (
                (producer_id, max(epoch - 1, -1)),
                (producer_id, min(epoch + 1, 32_767)),
                (producer_id + 1, epoch),
                (_STRANGER, 0),
                other,
                *(client.before[-2:] or [_NO_ID]),
            )
        )

    def _partition(self, *, good: float = 0.96) -> _Partition:
        if self._maybe(good):
            topic = self._random.choice(("red", "red", "blue", "blue", "big"))
            return topic, self._random.randrange(TOPICS[topic])
        return self._random.choice((("missing", 0), ("red", 7), ("blue", -1)))

    def _partitions(self, most: int = 4) -> list[_Partition]:
        count = self._random.choice((1, 1, 2, self._random.randint(1, most)))
        return list(dict.fromkeys(self._partition() for _ in range(count)))

    def _served(self, first: int, last: int) -> int:
        """A version, often the last one."""
        return last if self._maybe(0.5) else self._random.randint(first, last)

    # ---- InitProducerId

    def _init(self, client: Client | None = None) -> Request:
        if client is None and self._maybe(0.1):
            return self._init_plain()
        if client is None:
            client = self._random.choice(self._clients)
        timeout = self._random.choice((900_000, 900_000, 600_000))
        if self._maybe(0.15):
            timeout = self._random.choice(_WRONG_TIMEOUTS)
        expected = _NO_ID
        if client.producer != _NO_ID and self._maybe(0.1 if client.is_fenced else 0.55):
            expected = self._producer(client, good=0.6)
        if self._maybe(0.04):
            expected = self._random.choice(((-1, 3), (5, -1), (client.producer[0], -1)))
        version = self._served(0, 5) if expected == _NO_ID else self._served(3, 5)
        values = {
            "transactional_id": "" if self._maybe(0.02) else client.transactional_id,
            "transaction_timeout_ms": timeout,
            "producer_id": expected[0],
            "producer_epoch": expected[1],
        }

        def learn(answer: Plain) -> None:
            if answer["error_code"] == "none":
                client.become((answer["producer_id"], answer["producer_epoch"]))
                client.ended = None
                client.is_fenced = False
            elif answer["error_code"] in {"concurrent_transactions", "producer_fenced"}:
                client.is_fenced = True
            # The last epoch is in use, before transaction.version 2: no request helps any more.
            client.is_stuck = answer["error_code"] == "unknown_server_error"

        return Request("init_producer_id", version, values, (str(client.transactional_id),), learn)

    def _init_plain(self) -> Request:
        client = self._random.choice(self._plain)
        values = {
            "transactional_id": None,
            "transaction_timeout_ms": 0,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        def learn(answer: Plain) -> None:
            client.become((answer["producer_id"], answer["producer_epoch"]))

        return Request("init_producer_id", self._served(0, 5), values, (), learn)

    # ---- partitions and groups are added

    def _add(self, client: Client | None = None) -> Request:
        client, partitions = client or self._client(), self._partitions()
        producer = self._producer(client)

        def learn(answer: Plain) -> None:
            codes = {
                each["partition_error_code"]
                for topic in answer["results_by_topic_v3_and_below"]
                for each in topic["results_by_partition"]
            }
            if codes == {"none"}:
                client.added |= set(partitions)

        values = {
            "v3_and_below_transactional_id": client.transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": _by_topic(partitions),
        }
        if self._maybe(0.02):
            values["v3_and_below_transactional_id"] = ""
        return Request("add_partitions_to_txn", self._served(0, 3), values, (), learn)

    def _add_as_broker(self) -> Request:
        """Verifies or adds partitions as brokers do."""
        asked: dict[str, dict[str, Any]] = {}
        for _ in range(self._random.choice((1, 1, 2, 3))):
            client = self._client()
            producer = self._producer(client)
            partitions = sorted(client.added) if self._maybe(0.4) else []
            name = str(client.transactional_id)
            asked[name] = {
                "transactional_id": name,
                "producer_id": producer[0],
                "producer_epoch": producer[1],
                "verify_only": self._version == 0 or self._maybe(0.6),
                "topics": _by_topic(partitions or self._partitions()),
            }
        values = {"transactions": list(asked.values())}
        return Request("add_partitions_to_txn", self._random.choice((4, 5)), values)

    def _add_offsets(self, client: Client | None = None) -> Request:
        client = client or self._client()
        producer = self._producer(client)
        group = self._random.choice((*GROUPS, *GROUPS, ""))
        values = {
            "transactional_id": client.transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "group_id": group,
        }

        def learn(answer: Plain) -> None:
            if answer["error_code"] == "none":
                client.groups.add(group)

        return Request("add_offsets_to_txn", self._served(0, 4), values, (), learn)

    # ---- Produce

    def _produce_version(self) -> int:
        if self._version == 0:
            return self._served(3, 11)
        return self._served(12, 13) if self._maybe(0.6) else self._random.randint(3, 11)

    def _produce(self) -> Request:
        client, version = self._client(), self._produce_version()
        if version < 12 and not client.added and self._maybe(0.7):
            return self._add(client)
        acks = self._random.choice((-1, -1, -1, -1, 1, 1, 0, 7 if self._maybe(0.2) else 0))
        partitions = self._partitions(3)
        if version < 12 and client.added and self._maybe(0.7):
            added = sorted(client.added)
            partitions = self._random.sample(added, min(len(added), self._random.randint(1, 3)))
        others = [each for each in self._clients if each.producer != _NO_ID]
        batches = []
        for partition in partitions:
            owner = client
            if others and self._maybe(0.03):
                owner = self._random.choice(others)
            elif self._maybe(0.03):
                owner = self._random.choice(self._plain)
            batches.append(self._batch(owner, partition))
        name = client.transactional_id
        if self._maybe(0.03):
            name = self._random.choice((None, "", *IDS))
        values = {
            "transactional_id": name,
            "acks": acks,
            "timeout_ms": 10_000,
            "topic_data": self._topic_data(batches, version),
        }
        return Request(
            "produce", version, values, (), lambda answer: self._learn_produced(batches, answer)
        )

    def _topic_data(self, batches: Sequence[_Batch], version: int) -> list[dict[str, Any]]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for each in batches:
            topic, index = each.partition
            topics.setdefault(topic, []).append({"index": index, "records": each.data})
        return [
            {
                **({"topic_id": self._topic_ids.get(topic, NO_UUID)} if version >= 13 else {}),
                "name": topic,
                "partition_data": partitions,
            }
            for topic, partitions in topics.items()
        ]

    def _batch(self, client: Client, partition: _Partition) -> _Batch:
        chance = self._random
        sequence = client.sequences.get(partition, 0)
        if self._maybe(0.14):
            sequence = chance.choice((client.last.get(partition, 0), sequence + 1, 0, sequence + 9))
        records = []
        count = chance.choice((1, 1, 2, 3))
        repeated = sequence == client.last.get(partition, -1)
        if repeated and self._maybe(0.8):
            count = client.sequences[partition] - sequence
        for number in range(count):
            self._now_ms += 1
            big = partition[0] == "big" and self._maybe(0.5)
            value = bytes(_BIG_BYTES) if big else b"v%d" % self._now_ms
            records.append(Record(number, self._now_ms, b"k%d" % chance.randrange(5), value))
        in_transaction = (client.transactional_id is not None) is not self._maybe(0.03)
        producer_id, epoch = self._producer(client, good=0.9)
        if not in_transaction:
            # Nobody verifies this batch: with a later epoch than the coordinator knows it would
            # keep the transaction open for ever.
            producer_id, epoch = chance.choice((client.producer, client.producer, (_STRANGER, 0)))
        data = build_batch(
            records,
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=in_transaction,
        )
        return _Batch(partition, data, sequence, count, client)

    def _learn_produced(self, batches: Sequence[_Batch], answer: Plain) -> None:
        errors = {}
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        for topic in answer.get("responses", ()):
            name = topic["name"] if "name" in topic else names.get(topic["topic_id"], "missing")
            for each in topic["partition_responses"]:
                errors[name, each["index"]] = each["error_code"]
                end = each["base_offset"] + 1
                self._ends[name, each["index"]] = max(self._ends.get((name, each["index"]), 0), end)
        for batch in batches:
            if errors.get(batch.partition, "none") == "none":
                batch.client.sequences[batch.partition] = batch.sequence + batch.record_count
                batch.client.last[batch.partition] = batch.sequence
                batch.client.added.add(batch.partition)

    # ---- offsets of groups

    def _commit_offsets(self) -> Request:
        client, chance = self._client(), self._random
        producer = self._producer(client)
        group = chance.choice((*GROUPS, *GROUPS, "" if self._maybe(0.2) else CONSUMER))
        version = self._served(0, 4 if self._version == 0 else 6)
        if version < 5 and not client.groups and self._maybe(0.6):
            return self._add_offsets(client)
        if version < 5 and client.groups and self._maybe(0.8):
            group = chance.choice(sorted(client.groups))
        member, generation, instance = self._member(group)
        if version < 3:
            member, generation, instance = "", -1, None
        partitions = [
            {
                "partition_index": index,
                "committed_offset": chance.choice((chance.randrange(100), 0)),
                "committed_leader_epoch": chance.choice((-1, 0, 3)),
                "committed_metadata": chance.choice(("", "", None, "note", "note", "x" * 5000)),
            }
            for index in chance.sample((0, 0, 0, 1, 1, 2), chance.randint(1, 2))
        ]
        topics = chance.sample(("red", "blue", "big", "missing"), chance.randint(1, 2))
        ids = self._topic_ids
        values = {
            "transactional_id": client.transactional_id,
            "group_id": group,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "generation_id_or_member_epoch": generation,
            "member_id": member,
            "group_instance_id": instance,
            "topics": [
                {"name": name, "topic_id": ids.get(name, _NO_TOPIC), "partitions": partitions}
                for name in topics
            ],
        }
        return Request("txn_offset_commit", version, values)

    def _member(self, group: str) -> tuple[str, int, str | None]:
        """A member's id, generation or epoch, and instance id, which may be wrong."""
        chance = self._random
        if self._maybe(0.2):
            return "", -1, None
        member, generation = {
            CLASSIC: (CLASSIC_MEMBER, GENERATION[CLASSIC]),
            CONSUMER: (CONSUMER_MEMBER, GENERATION[CONSUMER]),
        }.get(group, ("", -1))
        if self._maybe(0.12):
            member = chance.choice(("nobody", ""))
        if self._maybe(0.12):
            generation += chance.choice((-1, 1))
        return member, generation, chance.choice((None, None, None, None, "an-instance"))

    def _fetch_offsets(self) -> Request:
        chance = self._random
        topics = [
            {"name": "red", "partition_indexes": [0, 1]},
            {"name": "blue", "partition_indexes": [2]},
        ]
        asked = None if self._maybe(0.5) else topics
        stable = self._maybe(0.7)
        version = chance.choice((5, 7, 8, 9))
        group = chance.choice(GROUPS)
        if version < 8:
            values = {"group_id": group, "topics": asked, "require_stable": stable}
            return Request("offset_fetch", version, values)
        groups = [
            {"group_id": name, "member_id": None, "member_epoch": -1, "topics": asked}
            for name in dict.fromkeys((group, chance.choice(GROUPS)))
        ]
        return Request("offset_fetch", version, {"groups": groups, "require_stable": stable})

    # ---- the end

    def _end(self) -> Request:
        client = self._client()
        producer, commit = self._producer(client), self._maybe(0.6)
        if client.ended is not None and self._maybe(0.2):
            producer, commit = client.ended
            commit = commit is not self._maybe(0.2)
        version = self._served(0, 4)
        if self._version > 0 and self._maybe(0.6):
            version = 5
        values = {
            "transactional_id": "" if self._maybe(0.02) else client.transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": commit,
        }

        def learn(answer: Plain) -> None:
            if answer["error_code"] == "none":
                client.ended = producer, commit
                client.added, client.groups = set(), set()
                if version >= 5:
                    client.become((answer["producer_id"], answer["producer_epoch"]))

        return Request("end_txn", version, values, (str(client.transactional_id),), learn)

    def _markers(self) -> Request:
        """Writes markers as tools do that end a transaction which hangs, or an old coordinator."""
        chance = self._random
        markers = []
        for _ in range(chance.choice((1, 1, 2))):
            client = self._client()
            producer_id, epoch = client.producer
            coordinator_epoch = chance.choice((0, 0, -1))
            if self._maybe(0.3):
                # No coordinator writes markers of this producer: an epoch that is too large
                # fences nobody.
                producer_id, epoch = _STRANGER, chance.choice((0, 1, 2))
                coordinator_epoch = chance.choice((0, 5, 6))
            elif self._maybe(0.3):
                epoch = max(epoch - 1, 0)
            # A real Kafka never answers if the last marker has only partitions that do not exist.
            partitions = list(dict.fromkeys((*self._partitions(), ("blue", 0))))
            if self._maybe(0.15):
                partitions.append((OFFSETS_TOPIC, chance.randrange(2)))
            markers.append(
                {
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "transaction_result": self._maybe(0.5),
                    "coordinator_epoch": coordinator_epoch,
                    "transaction_version": chance.choice((0, 1, 2)),
                    "topics": [
                        {"name": each["name"], "partition_indexes": each["partitions"]}
                        for each in _by_topic(partitions)
                    ],
                }
            )
        return Request("write_txn_markers", chance.choice((1, 2)), {"markers": markers})

    # ---- what only reads

    def _find(self) -> Request:
        version, kind = self._served(1, 6), self._random.choice((0, 1, 1, 9))
        if version < 4:
            values: dict[str, Any] = {"key": self._random.choice(IDS), "key_type": kind}
        else:
            values = {"coordinator_keys": list(IDS[:3]), "key_type": kind}
        return Request("find_coordinator", version, values)

    def _describe(self) -> Request:
        names = [each.transactional_id for each in self._clients]
        asked = self._random.sample([*names, "none"], self._random.randint(1, 3))
        return Request("describe_transactions", 0, {"transactional_ids": asked})

    def _list(self) -> Request:
        chance, version = self._random, self._served(0, 2)
        values: dict[str, Any] = {
            "state_filters": chance.sample(_STATES, chance.choice((0, 0, 1, 2, 3))),
            "producer_id_filters": [self._client().producer[0]] if self._maybe(0.2) else [],
        }
        if version >= 1:
            values["duration_filter"] = chance.choice((-1, -1, -1, 10**10))
        if version >= 2:
            values["transactional_id_pattern"] = chance.choice((None, *_PATTERNS))
        return Request("list_transactions", version, values)

    def _describe_producers(self) -> Request:
        partitions = self._partitions()
        topics = [
            {"name": each["name"], "partition_indexes": each["partitions"]}
            for each in _by_topic(partitions)
        ]
        return Request("describe_producers", 0, {"topics": topics})

    def _list_offsets(self) -> Request:
        version = self._served(2, 11)
        times = (-1, -1, -2, *((-4,) if version >= 8 else ()))
        topics = [
            {
                "name": each["name"],
                "partitions": [
                    {
                        "partition_index": index,
                        "current_leader_epoch": -1,
                        "timestamp": self._random.choice(times),
                    }
                    for index in each["partitions"]
                ],
            }
            for each in _by_topic(self._partitions())
        ]
        isolation = int(self._maybe(0.7))
        values = {"replica_id": -1, "isolation_level": isolation, "timeout_ms": 1000}
        return Request("list_offsets", version, {**values, "topics": topics})

    def _fetch(self) -> Request:
        version = self._served(4, 18)
        asked = self._partitions()
        if version >= _FETCH_HAS_IDS_SINCE and len(asked) > 1:
            # Kafka may refuse the whole request for a topic without an id among others.
            asked = [each for each in asked if each[0] != "missing"] or asked[:1]
        topics = []
        for each in _by_topic(asked):
            name = each["name"]
            partitions = [
                {
                    "partition": index,
                    "current_leader_epoch": -1,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "fetch_offset": self._random.choice((0, self._offset((name, index)))),
                    "partition_max_bytes": self._random.choice((1 << 20, 1 << 20, 200)),
                }
                for index in each["partitions"]
            ]
            topic_id = self._topic_ids.get(name, NO_UUID)
            topics.append({"topic": name, "topic_id": topic_id, "partitions": partitions})
        values = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 21,
            "isolation_level": int(self._maybe(0.7)),
            "session_id": 0,
            "session_epoch": -1,
            "topics": topics,
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return Request("fetch", version, values)

    def _offset(self, partition: _Partition) -> int:
        end = self._ends.get(partition, 0)
        return self._random.choice((self._random.randint(0, end), end, max(end - 3, 0), end + 100))


def _by_topic(partitions: Sequence[_Partition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
