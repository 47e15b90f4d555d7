"""Requests of a transactional producer, one by one, in any version; errors are names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from support.kafka import poll_until
from support.wire import Plain
from support.wire_client import WireClient

_TIMESTAMP_MS = 1_700_000_000_000
_TRANSACTION = 1
_GROUP = 0
_BATCHED_SINCE = 4
_AGAIN = frozenset({"concurrent_transactions", "coordinator_load_in_progress"})


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

    def batch(self, *values: bytes, sequence: int = 0) -> bytes:
        """A batch of its transaction."""
        records = [Record(n, _TIMESTAMP_MS, b"k", value) for n, value in enumerate(values)]
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

        poll_until(lambda: error() == "none", timeout_s=60, what="a coordinator")

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

        poll_until(is_answered, timeout_s=60, what="the end of what is in progress")
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
    ) -> dict[str, Plain]:
        """Writes a batch to partition 0 of each topic; the answers by topic, up to version 12."""
        values = {
            "acks": acks,
            "timeout_ms": 5000,
            "transactional_id": producer.transactional_id,
            "topic_data": [
                {"name": name, "partition_data": [{"index": 0, "records": records}]}
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

        poll_until(is_settled, timeout_s=60, what="the markers")
        return states[-1]

    def described(self, transactional_id: str) -> Plain:
        """DescribeTransactions' answer on a transaction that has begun, or has an error."""
        asked = {"transactional_ids": [transactional_id]}
        (found,) = self.ask("describe_transactions", 0, asked)["transaction_states"]
        return dict(found)

    def state(self, transactional_id: str) -> str:
        """The state of a transactional id; "" if there is none."""
        answer = self.ask("list_transactions", 0, {})
        assert answer["error_code"] == "none", answer
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
        """The error of each partition of TxnOffsetCommit."""
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
        asked = {
            **producer.named(),
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": each} for name, each in topics.items()],
            **fields,
        }
        answer = self.ask("txn_offset_commit", version, asked)
        return {
            (topic["name"], each["partition_index"]): each["error_code"]
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

    def marks(self, topic: str) -> tuple[int, int]:
        """The last stable offset and the high watermark of partition 0."""
        found = self.fetch(topic)
        return found["last_stable_offset"], found["high_watermark"]

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
