"""Events in a cluster, as the actors report them and the checkers see them.

Offsets are inclusive where they are called `offset`, exclusive where they are called `end`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.model.topic_partition import TopicPartition


class StoredBatch(NamedTuple):
    """A batch in a log: first and last offset, checksum and leader epoch."""

    offset: int
    last_offset: int
    crc: int
    epoch: int


class ReplicaState(NamedTuple):
    """Knowledge of a log about its batches: the first offset; (leader epoch, first offset) of each
    epoch that has batches; producers by id, as a snapshot has them; the last stable offset; and
    (producer id, first offset, last offset) of each aborted transaction.
    """

    start: int
    epochs: tuple[tuple[int, int], ...]
    producers: tuple[ProducerEntry, ...]
    last_stable: int
    aborted: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Note:
    """Something that no checker looks at: a failure, a restart, the course of a client."""

    text: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A producer is about to send values, for the first time; `transaction` is empty without one.

    They are in one batch.
    """

    partition: TopicPartition
    values: tuple[bytes, ...]
    transaction: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A producer has the answer that its values are committed, the first of them at an offset."""

    partition: TopicPartition
    values: tuple[bytes, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Unacceptable:
    """A client was given an answer that no correct cluster gives."""

    text: str


@dataclass(frozen=True, slots=True)
class Elected:
    """A broker leads a partition in an epoch that is new to it; its log ends at `end`."""

    broker: int
    partition: TopicPartition
    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A leader's high watermark has moved to `end`; the batches are those below that are new."""

    broker: int
    partition: TopicPartition
    epoch: int
    end: int
    batches: Sequence[StoredBatch]


@dataclass(frozen=True, slots=True)
class Replica:
    """The batches of a broker's log from some offset on, up to `end`.

    `high_watermark` is what the broker holds for committed. With `is_in_sync` the controller has it
    in the ISR, and it is the incarnation that the controller knows. `state` is there after all
    failures, when nothing more happens.
    """

    broker: int
    partition: TopicPartition
    high_watermark: int
    end: int
    batches: Sequence[StoredBatch]
    is_in_sync: bool
    state: ReplicaState | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A reader was given a value; `is_committed` with read_committed."""

    reader: str
    partition: TopicPartition
    offset: int
    value: bytes
    is_committed: bool


@dataclass(frozen=True, slots=True)
class ReadOn:
    """A reader continues at an offset: there is nothing else for it below."""

    reader: str
    partition: TopicPartition
    end: int
    is_committed: bool


@dataclass(frozen=True, slots=True)
class Watermark:
    """A reader has received the high watermark of a leader's fetch, in the leader's epoch."""

    reader: str
    partition: TopicPartition
    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Latest:
    """A reader has received the latest offset (ListOffsets)."""

    reader: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The outcome of a transaction is known to its producer; None if it will never be."""

    transaction: str
    is_committed: bool | None


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """A producer is about to ask for the commit of a transaction."""

    transaction: str


@dataclass(frozen=True, slots=True)
class Owned:
    """A member of a group uses these partitions from now on, and no others."""

    member: str
    group: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Heard:
    """A coordinator has answered the heartbeat of a member."""

    member: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """A member has the answer that its group has an offset."""

    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetSent:
    """A transaction is about to commit an offset of a group."""

    transaction: str
    group: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetFetchAsked:
    """A member is about to ask for the offset of its group, by a request of this number."""

    group: str
    partition: TopicPartition
    number: int


@dataclass(frozen=True, slots=True)
class OffsetFetched:
    """A member has received the offset of its group, -1 for none, in answer to a request."""

    group: str
    partition: TopicPartition
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Occupied:
    """A group has a member for certain from now on, or need not have one."""

    group: str
    is_certain: bool


@dataclass(frozen=True, slots=True)
class Earliest:
    """A reader has received the first offset of a partition."""

    reader: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Starts:
    """A broker's process is about to register, with the broker epoch that a clean stop has left."""

    broker: int
    incarnation: UUID
    previous_epoch: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller has a broker's registration; `still_in` are the partitions that count on it.

    These are those whose ISR or eligible replicas have it.
    """

    broker: int
    epoch: int
    incarnation: UUID
    still_in: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """The controller has made a partition what it is; `fenced` are the brokers that are."""

    partition: TopicPartition
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    fenced: frozenset[int]


@dataclass(frozen=True, slots=True)
class Healed:
    """All failures are over: from now on everything must end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing happens any more."""


Event = (
    Note
    | Sent
    | Acknowledged
    | Unacceptable
    | Elected
    | Committed
    | Replica
    | Read
    | ReadOn
    | Watermark
    | Latest
    | TransactionEnded
    | CommitAsked
    | Owned
    | Heard
    | OffsetCommitted
    | OffsetSent
    | OffsetFetchAsked
    | OffsetFetched
    | Occupied
    | Earliest
    | Starts
    | Registered
    | Decided
    | Healed
    | Ended
)
