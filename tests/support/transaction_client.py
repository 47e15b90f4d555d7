"""Requests of transactions in any version, errors are names; and a producer that repeats them.

A `TransactionClient` is a connection. A `WireProducer` runs transactions over it as a client with
transaction.version 0 or 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from support.kafka import poll_until
from support.wire import NO_UUID, Plain
from support.wire_client import WireClient

_TIMESTAMP_MS = 1_700_000_000_000
_TRANSACTION = 1
_GROUP = 0
_BATCHED_SINCE = 4
_READ_COMMITTED = 1
_TOPIC_IDS_SINCE = 6
_AGAIN = frozenset({"concurrent_transactions", "coordinator_load_in_progress"})
#: Errors of a coordinator that is being made or loaded, or is still in a transition.
_NOT_YET = _AGAIN | {
    "coordinator_not_available",
    "not_coordinator",
    "unknown_topic_or_partition",
}
_ENDED = ("CompleteCommit", "CompleteAbort", "Empty")
WAIT_S = 60.0
"""How long a coordinator may take."""

T = TypeVar("T")
Version = Literal[0, 2]
Partition = tuple[str, int]


class TransactionRefusedError(AssertionError):
    """A request of the transaction has an error."""


class Producer(NamedTuple):
    """A producer as its coordinator has made it."""

    transactional_id: str
    id: int
    epoch: int

    def named(self) -> Plain:
        """The fields that most requests have."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }

    def batch(
        self,
        *values: bytes,
        sequence: int = 0,
        key: bytes = b"k",
        timestamp_ms: int = _TIMESTAMP_MS,
    ) -> bytes:
        """A batch of its transaction."""
        records = [Record(n, timestamp_ms, key, value) for n, value in enumerate(values)]
        return build_batch(
            records,
            base_offset=0,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )


class TransactionClient(WireClient):
    """A connection with the requests of transactions."""

    def find(self, key: str, kind: int = _TRANSACTION) -> None:
        """Waits until there is a coordinator."""
        asked = {"key_type": kind, "coordinator_keys": [key]}

        def error() -> str:
            answer = self.ask("find_coordinator", 4, asked)
            return str(answer["coordinators"][0]["error_code"])

        poll_until(lambda: error() == "none", timeout_s=WAIT_S, what="a coordinator")

    def find_group(self, group: str) -> None:
        """Waits until a group has a coordinator."""
        self.find(group, _GROUP)

    def init(self, transactional_id: str, version: int = 5, **fields: Any) -> Plain:
        """The answer to InitProducerId, when nothing is in progress any more."""
        values = {
            "transactional_id": transactional_id,
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
            **fields,
        }
        answers: list[Plain] = []

        def is_answered() -> bool:
            answers.append(self.ask("init_producer_id", version, values))
            return answers[-1]["error_code"] not in _AGAIN

        poll_until(is_answered, timeout_s=WAIT_S, what="the end of what is in progress")
        return answers[-1]

    def producer(self, transactional_id: str, **fields: Any) -> Producer:
        """A new producer, which fences the one before it."""
        self.find(transactional_id)
        answer = self.init(transactional_id, **fields)
        assert answer["error_code"] == "none", answer
        return Producer(transactional_id, answer["producer_id"], answer["producer_epoch"])

    def add(
        self,
        producer: Producer,
        partitions: Mapping[str, Sequence[int]],
        version: int = 3,
        *,
        verify_only: bool = False,
    ) -> dict[tuple[str, int], str]:
        """The error of each partition; from version 4 on as brokers ask."""
        topics = [{"name": name, "partitions": list(each)} for name, each in partitions.items()]
        if version < _BATCHED_SINCE:
            fields = {f"v3_and_below_{name}": value for name, value in producer.named().items()}
            answer = self.ask(
                "add_partitions_to_txn", version, {**fields, "v3_and_below_topics": topics}
            )
            found = answer["results_by_topic_v3_and_below"]
        else:
            transaction = {**producer.named(), "verify_only": verify_only, "topics": topics}
            answer = self.ask("add_partitions_to_txn", version, {"transactions": [transaction]})
            (of_transaction,) = answer["results_by_transaction"]
            found = of_transaction["topic_results"]
        return {
            (topic["name"], each["partition_index"]): each["partition_error_code"]
            for topic in found
            for each in topic["results_by_partition"]
        }

    def write(
        self,
        producer: Producer,
        batches: Mapping[str, bytes],
        version: int = 11,
        *,
        acks: int = -1,
        partition: int = 0,
    ) -> dict[str, Plain]:
        """Writes a batch to a partition of each topic; the answers by topic, up to version 12."""
        values = {
            "acks": acks,
            "timeout_ms": 5000,
            "transactional_id": producer.transactional_id,
            "topic_data": [
                {"name": name, "partition_data": [{"index": partition, "records": records}]}
                for name, records in batches.items()
            ],
        }
        answer = self.ask("produce", version, values)
        return {each["name"]: each["partition_responses"][0] for each in answer["responses"]}

    def write_one(
        self, producer: Producer, topic: str, version: int = 11, *, sequence: int = 0
    ) -> str:
        """Writes a record to partition 0; the error."""
        batch = producer.batch(b"v", sequence=sequence)
        return str(self.write(producer, {topic: batch}, version)[topic]["error_code"])

    def end(self, producer: Producer, *, commit: bool, version: int = 4) -> Plain:
        """The answer to EndTxn."""
        return self.ask("end_txn", version, {**producer.named(), "committed": commit})

    def settle(self, transactional_id: str) -> str:
        """The state of a transactional id when no transition is in progress any more."""
        states: list[str] = []

        def is_settled() -> bool:
            states.append(self.state(transactional_id))
            return not states[-1].startswith("Prepare")

        poll_until(is_settled, timeout_s=WAIT_S, what="the markers")
        return states[-1]

    def wait_until_ended(self, transactional_id: str, *states: str) -> str:
        """The state when it is one of these, by default a completed one."""
        wanted = states or _ENDED

        def ended() -> str | None:
            state = self.state(transactional_id)
            return state if state in wanted else None

        what = f"{transactional_id} is one of {wanted}"
        return poll_until(ended, timeout_s=WAIT_S, what=what)

    def described(self, transactional_id: str) -> Plain:
        """DescribeTransactions' answer on a transaction that has begun, or has an error."""
        asked = {"transactional_ids": [transactional_id]}
        (found,) = self.ask("describe_transactions", 0, asked)["transaction_states"]
        return dict(found)

    def state(self, transactional_id: str) -> str:
        """The state of a transactional id, "" if there is none, or the error's name."""
        answer = self.ask("list_transactions", 0, {})
        if answer["error_code"] != "none":
            return str(answer["error_code"])
        states = {
            each["transactional_id"]: each["transaction_state"]
            for each in answer["transaction_states"]
        }
        return str(states.get(transactional_id, ""))

    def add_offsets(self, producer: Producer, group: str, version: int = 3) -> str:
        """The error of AddOffsetsToTxn."""
        asked = {**producer.named(), "group_id": group}
        return str(self.ask("add_offsets_to_txn", version, asked)["error_code"])

    def commit_offsets(
        self,
        producer: Producer,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        version: int = 4,
        **fields: Any,
    ) -> dict[tuple[str, int], str]:
        """The error of each partition of TxnOffsetCommit; version 6 names topics by their ids."""
        metadata = fields.pop("metadata", None)
        topics: dict[str, list[Plain]] = {}
        for (name, index), offset in offsets.items():
            topics.setdefault(name, []).append(
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": metadata,
                }
            )
        ids = {
            name: self.topic_id(name) if version >= _TOPIC_IDS_SINCE else NO_UUID for name in topics
        }
        asked = {
            **producer.named(),
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {"name": name, "topic_id": ids[name], "partitions": each}
                for name, each in topics.items()
            ],
            **fields,
        }
        answer = self.ask("txn_offset_commit", version, asked)
        names = {topic_id: name for name, topic_id in ids.items()}
        return {
            (
                topic["name"] if "name" in topic else names[topic["topic_id"]],
                each["partition_index"],
            ): each["error_code"]
            for topic in answer["topics"]
            for each in topic["partitions"]
        }

    def stable_offset(self, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
        """A group's offset and the error, as who requires that it is stable is answered."""
        topics = [{"name": topic, "partition_indexes": [partition]}]
        answer = self.ask(
            "offset_fetch", 7, {"group_id": group, "topics": topics, "require_stable": True}
        )
        (found,) = answer["topics"][0]["partitions"]
        return found["committed_offset"], found["error_code"]

    def marks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The last stable offset and the high watermark of a partition."""
        found = self.fetch(topic, partition)
        return found["last_stable_offset"], found["high_watermark"]

    def is_stable(self, topic: str, partition: int) -> bool:
        """Whether no transaction is open in a partition."""
        last_stable_offset, high_watermark = self.marks(topic, partition)
        return last_stable_offset == high_watermark

    def read_committed(
        self, topic: str, partition: int, offset: int = 0
    ) -> tuple[list[Record], int]:
        """The records of a read_committed consumer from an offset on, and where it continues."""
        found: list[Record] = []
        while True:
            told = self.fetch(topic, partition, offset, isolation_level=_READ_COMMITTED)
            assert told["error_code"] == "none", told
            if not told["records"]:
                return found, offset
            seen, offset = visible(told["records"], told["aborted_transactions"] or [], offset)
            found += seen

    def outcomes(self, topic: str) -> list[str]:
        """The content of partition 0: the values of records, "commit" and "abort" for markers."""
        outcomes: list[str] = []
        offset = 0
        while data := self.fetch(topic, offset=offset)["records"]:
            for _, batch in iter_batches(data):
                assert isinstance(batch, RecordBatch)
                offset = batch.next_offset
                for record in batch.records():
                    if batch.header.is_control:
                        outcomes.append("commit" if (record.key or b"")[3] else "abort")
                    else:
                        outcomes.append((record.value or b"").decode())
        return outcomes


def visible(
    records: bytes, aborted: Sequence[dict[str, Any]], offset: int
) -> tuple[list[Record], int]:
    """The records that a consumer returns from an answer, and the offset at which it continues.

    Source: org.apache.kafka.clients.consumer.internals.CompletedFetch.
    """
    waiting = sorted(aborted, key=lambda each: each["first_offset"])
    dropped: set[int] = set()
    found: list[Record] = []
    for _, batch in iter_batches(records):
        assert isinstance(batch, RecordBatch), batch
        header = batch.header
        while waiting and waiting[0]["first_offset"] <= header.last_offset:
            dropped.add(waiting.pop(0)["producer_id"])
        if header.is_control:
            dropped.discard(
                header.producer_id
            )  # an abort's marker; a commit's is of no dropped one
        elif not (header.is_transactional and header.producer_id in dropped):
            found += [each for each in batch.records() if each.offset >= offset]
        offset = header.last_offset + 1
    return found, offset


@dataclass(slots=True)
class WireProducer:
    """Transactions of one transactional id over a connection; `version` is the client's.

    Requests are repeated while the coordinator is not ready for them.
    """

    wire: TransactionClient
    transactional_id: str
    version: Version = 2
    timeout_ms: int = 60_000
    timestamp_ms: int = _TIMESTAMP_MS
    producer_id: int = -1
    producer_epoch: int = -1
    _sequences: dict[Partition, int] = field(default_factory=dict)

    @property
    def _producer(self) -> Producer:
        return Producer(self.transactional_id, self.producer_id, self.producer_epoch)

    def init(self) -> None:
        """Gets the id and the epoch; a transaction that is open is aborted."""
        self.wire.find(self.transactional_id)
        timeout = {"transaction_timeout_ms": self.timeout_ms}
        self._take(self._tried(lambda: self.wire.init(self.transactional_id, **timeout), _error))

    def _take(self, answer: Plain) -> None:
        taken = answer["producer_id"], answer["producer_epoch"]
        if taken != (self.producer_id, self.producer_epoch):
            self._sequences = {}
        self.producer_id, self.producer_epoch = taken

    def produce(self, topic: str, partition: int, *values: bytes, key: bytes = b"k") -> None:
        """Writes a batch; with version 0 the partition is added to the transaction first."""
        place = topic, partition
        if self.version == 0:
            added = {topic: [partition]}
            self._tried(lambda: self.wire.add(self._producer, added), lambda all_: all_[place])
        sequence = self._sequences.get(place, 0)
        batch = self._producer.batch(
            *values, sequence=sequence, key=key, timestamp_ms=self.timestamp_ms
        )
        version = 12 if self.version == 2 else 11
        self._tried(
            lambda: self.wire.write(self._producer, {topic: batch}, version, partition=partition),
            lambda topics: _error(topics[topic]),
        )
        self._sequences[place] = sequence + len(values)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Sends an offset of a group to the transaction."""
        self.wire.find_group(group)
        if self.version == 0:
            self._tried(lambda: self.wire.add_offsets(self._producer, group), str)
        place, version = (topic, partition), 5 if self.version == 2 else 4
        self._tried(
            lambda: self.wire.commit_offsets(
                self._producer, group, {place: offset}, version, metadata=""
            ),
            lambda errors: errors[place],
        )

    def end(self, *, commit: bool) -> None:
        """Commits or aborts; the outcome is decided when it returns."""
        version = 5 if self.version == 2 else 3
        answer = self._tried(
            lambda: self.wire.end(self._producer, commit=commit, version=version), _error
        )
        if self.version == 2:
            self._take(answer)

    def _tried(self, ask: Callable[[], T], error_of: Callable[[T], str]) -> T:
        """The answer without an error.

        Raises:
            TransactionRefusedError: an error that is an outcome.
        """
        answers: list[T] = []

        def is_answered() -> bool:
            answers.append(ask())
            return error_of(answers[-1]) not in _NOT_YET

        poll_until(is_answered, timeout_s=WAIT_S, what="the coordinator answers")
        if error_of(answers[-1]) != "none":
            raise TransactionRefusedError(f"{self.transactional_id}: {answers[-1]}")
        return answers[-1]


def _error(answer: Plain) -> str:
    return str(answer["error_code"])
