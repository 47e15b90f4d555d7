"""A producer with a transactional id, request by request, as clients of version 0 or 2 do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from support.kafka import poll_until
from support.wire import Plain
from support.wire_client import WireClient

_TIMESTAMP_MS = 1_700_000_000_000
_FETCH_BYTES = 1 << 24
_READ_COMMITTED = 1
#: Errors of a coordinator that is being made or loaded, or is still in a transition.
_TRIED_AGAIN = {
    "concurrent_transactions",
    "coordinator_load_in_progress",
    "coordinator_not_available",
    "not_coordinator",
    "unknown_topic_or_partition",
}
WAIT_S = 60.0
"""How long a coordinator may take."""

Version = Literal[0, 2]
Partition = tuple[str, int]


class TransactionRefusedError(AssertionError):
    """A request of the transaction has an error."""


@dataclass(slots=True)
class WireProducer:
    """Transactions of one transactional id over a connection; `version` is the client's."""

    wire: WireClient
    transactional_id: str
    version: Version = 2
    timeout_ms: int = 60_000
    timestamp_ms: int = _TIMESTAMP_MS
    producer_id: int = -1
    producer_epoch: int = -1
    _sequences: dict[Partition, int] = field(default_factory=dict)

    def init(self) -> None:
        """Gets the id and the epoch; a transaction that is open is aborted."""
        asked = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        self._find_coordinator(1, self.transactional_id)
        answer = self._tried(lambda: self.wire.ask("init_producer_id", 5, asked), _code)
        self._take(answer)

    def _find_coordinator(self, key_type: int, key: str) -> None:
        """Has the coordinator's topic made if it is not there."""
        asked = {"key_type": key_type, "coordinator_keys": [key]}
        self._tried(
            lambda: self.wire.ask("find_coordinator", 4, asked),
            lambda answer: str(answer["coordinators"][0]["error_code"]),
        )

    def _take(self, answer: Plain) -> None:
        taken = answer["producer_id"], answer["producer_epoch"]
        if taken != (self.producer_id, self.producer_epoch):
            self._sequences = {}
        self.producer_id, self.producer_epoch = taken

    def produce(self, topic: str, partition: int, *values: bytes, key: bytes = b"k") -> None:
        """Writes a batch; with version 0 the partition is added to the transaction first."""
        if self.version == 0:
            self._add(topic, partition)
        place = topic, partition
        sequence = self._sequences.get(place, 0)
        batch = build_batch(
            [Record(n, self.timestamp_ms, key, value) for n, value in enumerate(values)],
            base_offset=0,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        asked = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
            ],
        }
        version = 12 if self.version == 2 else 11

        def code(answer: Plain) -> str:
            return str(answer["responses"][0]["partition_responses"][0]["error_code"])

        self._tried(lambda: self.wire.ask("produce", version, asked), code)
        self._sequences[place] = sequence + len(values)

    def _add(self, topic: str, partition: int) -> None:
        asked = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.producer_epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": [partition]}],
        }

        def code(answer: Plain) -> str:
            (added,) = answer["results_by_topic_v3_and_below"][0]["results_by_partition"]
            return str(added["partition_error_code"])

        self._tried(lambda: self.wire.ask("add_partitions_to_txn", 3, asked), code)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Sends an offset of a group to the transaction."""
        self._find_coordinator(0, group)
        producer = {
            "transactional_id": self.transactional_id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }
        if self.version == 0:
            self._tried(lambda: self.wire.ask("add_offsets_to_txn", 3, producer), _code)
        position = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        asked = {
            **producer,
            "generation_id": -1,
            "member_id": "",
            "topics": [{"name": topic, "partitions": [position]}],
        }
        version = 5 if self.version == 2 else 4

        def code(answer: Plain) -> str:
            return str(answer["topics"][0]["partitions"][0]["error_code"])

        self._tried(lambda: self.wire.ask("txn_offset_commit", version, asked), code)

    def end(self, *, commit: bool) -> None:
        """Commits or aborts; the outcome is decided when it returns."""
        asked = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "committed": commit,
        }
        version = 5 if self.version == 2 else 3
        answer = self._tried(lambda: self.wire.ask("end_txn", version, asked), _code)
        if self.version == 2:
            self._take(answer)

    def _tried(self, ask: Callable[[], Plain], code_of: Callable[[Plain], str]) -> Plain:
        """The answer without an error.

        Raises:
            TransactionRefusedError: an error that is an outcome.
        """

        def answered() -> Plain | None:
            answer = ask()
            return None if code_of(answer) in _TRIED_AGAIN else answer

        answer = poll_until(answered, timeout_s=WAIT_S, what="the coordinator answers")
        if code_of(answer) != "none":
            raise TransactionRefusedError(f"{self.transactional_id}: {answer}")
        return answer


def _code(answer: Plain) -> str:
    return str(answer["error_code"])


def transaction_state(wire: WireClient, transactional_id: str) -> str:
    """The state in ListTransactions, or the error's name while there is no answer."""
    listed = wire.ask("list_transactions", 0)
    if listed["error_code"] != "none":
        return str(listed["error_code"])
    for told in listed["transaction_states"]:
        if told["transactional_id"] == transactional_id:
            return str(told["transaction_state"])
    return "transactional_id_not_found"


def wait_until_ended(wire: WireClient, transactional_id: str, *states: str) -> str:
    """The state when it is one of these, by default a completed one."""
    wanted = states or ("CompleteCommit", "CompleteAbort", "Empty")

    def ended() -> str | None:
        state = transaction_state(wire, transactional_id)
        return state if state in wanted else None

    return poll_until(ended, timeout_s=WAIT_S, what=f"{transactional_id} is one of {wanted}")


def read_committed(wire: WireClient, topic: str, partition: int) -> list[Record]:
    """The records that a read_committed consumer hands out, up to the last stable offset."""
    found: list[Record] = []
    offset = 0
    while True:
        told = fetch_committed(wire, topic, partition, offset)
        if not told["records"]:
            return found
        seen, offset = visible(told["records"], told["aborted_transactions"] or [], offset)
        found += seen


def fetch_committed(wire: WireClient, topic: str, partition: int, offset: int) -> Plain:
    """The answer to a Fetch with read_committed; raises AssertionError if it has an error."""
    wanted = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": _FETCH_BYTES,
    }
    asked = {
        "replica_id": -1,
        "max_bytes": _FETCH_BYTES,
        "isolation_level": _READ_COMMITTED,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
    }
    told: Plain = wire.ask("fetch", 11, asked)["responses"][0]["partitions"][0]
    assert told["error_code"] == "none", told
    return told


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


def is_stable(wire: WireClient, topic: str, partition: int) -> bool:
    """Whether no transaction is open in a partition."""
    told = wire.fetch(topic, partition)
    return bool(told["last_stable_offset"] == told["high_watermark"])
