"""Reads partitions that this broker leads or follows: for consumers, for followers, for any reader.

The caller has parsed its request and knows its session; what is read is not tied to a request's
version. A result has the error of a partition instead of its records, so that every partition asked
for is answered, in order.

Source: kafka.server.ReplicaManager.readFromLog, kafka.cluster.Partition.fetchRecords.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cordwood.broker.fetch_sessions import FetchPartition, FetchSession, Follower, PartitionKey
from cordwood.broker.metrics import BrokerMetrics
from cordwood.broker.partition import NO_EPOCH, Partition
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageError,
    TopicAuthorizationError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.pauses import in_steps
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.reading.batch_heads import FileRange

_log = logging.getLogger(__name__)

# A client's or the cluster's doing: Kafka counts as failed what a broker should have been able to.
_NOT_FAILED = (
    UnknownTopicOrPartitionError,
    UnknownTopicIdError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
    FencedLeaderEpochError,
    StorageError,
    OffsetOutOfRangeError,
    InconsistentTopicIdError,
    TopicAuthorizationError,
)


class Reader(NamedTuple):
    """The reader of a read of partitions: a consumer or a follower.

    `may_read` says whether it may read a topic. `follower` is None for a consumer. `neighbours` are
    the brokers in a consumer's rack that it may be sent to, none if this broker is in it.
    `reads_followed` is whether it may read partitions that this broker follows (KIP-392).
    """

    may_read: Callable[[str], bool]
    follower: Follower | None = None
    neighbours: frozenset[int] = frozenset()
    reads_followed: bool = False


class PartitionRead:
    """Records and offsets of one partition; -1 for offsets that are not known, as with every error.

    `diverging` is the epoch, and its end offset, where the reader's log parts from this one.
    `aborted` is None where the records are not filtered by the reader.
    """

    __slots__ = (
        "aborted",
        "diverging",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_replica",
        "records",
        "size_bytes",
        "wanted",
    )

    def __init__(
        self,
        wanted: FetchPartition,
        *,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        records: FileRange | None = None,
        aborted: Sequence[AbortedTransaction] | None = None,
        diverging: tuple[int, int] | None = None,
        preferred_replica: int = -1,
    ) -> None:
        self.wanted = wanted
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.size_bytes = 0 if records is None else records.size_bytes
        self.aborted = aborted
        self.diverging = diverging
        self.preferred_replica = preferred_replica

    @property
    def is_final(self) -> bool:
        """Whether waiting gives no more: an error, or the reader has to read elsewhere."""
        return bool(self.error_code or self.diverging is not None or self.preferred_replica >= 0)

    @property
    def is_news(self) -> bool:
        """Whether a session's client does not know it yet.

        Source: FetchSession.CachedPartition.maybeUpdateResponseData.
        """
        return bool(
            self.size_bytes
            or self.is_final
            or self.wanted.high_watermark != self.high_watermark
            or self.wanted.log_start_offset != self.log_start_offset
        )

    def note_in_session(self) -> None:
        """Keeps what the session's client knows when it has the response.

        A follower whose log has parted cuts it off, and takes no high watermark from the response.
        Differs: in Kafka it stays behind until the leader's high watermark moves again.
        """
        self.wanted.high_watermark = self.high_watermark if self.diverging is None else -1
        self.wanted.log_start_offset = self.log_start_offset


class ReadResult(NamedTuple):
    """The results of all partitions, in the order asked; `is_final` if that of any is."""

    partitions: list[PartitionRead]
    size_bytes: int
    is_final: bool


class PartitionReading:
    """Reads partitions for one reader, once or again after a wait."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metrics: BrokerMetrics,
        *,
        isolation: Isolation,
        max_bytes: int,
        reader: Reader,
    ) -> None:
        """Reads nothing yet.

        Args:
            replicas: the partitions of this broker.
            metrics: counts reads that fail.
            isolation: up to where a log is read.
            max_bytes: of all partitions; a first batch that is larger is read whole.
            reader: who reads.
        """
        self.replicas = replicas
        self.max_bytes = max_bytes
        self.reader = reader
        self._metrics = metrics
        self._isolation = isolation

    def read(self, partitions: Iterable[FetchPartition], *, is_first: bool) -> ReadResult:
        """Reads every partition, in order, until there are `max_bytes`.

        Only the first time, what a follower reports of its log is noted.
        """
        left = self.max_bytes
        total = 0
        is_final = False
        found = []
        for wanted in in_steps(partitions, every=8):
            one = self._read_one(wanted, left, min_one=total == 0, is_first=is_first)
            found.append(one)
            if one.is_final:
                is_final = True
            elif one.size_bytes:
                total += one.size_bytes
                left = max(0, left - one.size_bytes)
        return ReadResult(found, total, is_final)

    def partition(self, key: PartitionKey) -> Partition:
        """The partition that is read.

        Raises:
            KafkaError: the reader may not read it, or it is not here.
        """
        if key.topic_id is not None and not key.topic:
            raise UnknownTopicIdError("This server does not host this topic ID.")
        if not self.reader.may_read(key.topic):
            raise TopicAuthorizationError
        if self.reader.reads_followed:
            partition = self.replicas.readable(key.topic, key.partition)
        else:
            partition = self.replicas.partition(key.topic, key.partition)
        if key.topic_id is not None and partition.topic_id != key.topic_id:
            raise InconsistentTopicIdError("The topic has another ID than the one in the request.")
        return partition

    def is_throttled(self, partition: Partition) -> bool:
        """Whether a follower gets no records now: it is not in sync, and the quota is used up.

        Source: ReplicaManager.shouldLeaderThrottle.
        """
        follower = self.reader.follower
        return (
            follower is not None
            and self.replicas.throttles.leader.holds_back(partition.topic, partition.index)
            and not partition.is_in_sync(follower.broker_id)
        )

    # ---- sessions of followers

    def end_omission(self, session: FetchSession, forgotten: Sequence[PartitionKey]) -> None:
        """The fetches of a session no longer count for the partitions that it has forgotten."""
        assert self.reader.follower is not None, "a follower's session"
        for key in in_steps(forgotten, every=64):
            partition = self.replicas.led(key.topic, key.partition)
            if partition is not None:
                partition.end_omission(self.reader.follower.broker_id, session.fetches)

    def omit(self, session: FetchSession, read: Sequence[PartitionRead]) -> None:
        """The session's next fetches read only what has changed since it was read now."""
        follower = self.reader.follower
        assert follower is not None, "a follower's session"
        if not self.replicas.fetch_sessions.has(session):
            return  # it has ended meanwhile, and a later one may have taken its place
        for one in in_steps(read, every=16):
            wanted = one.wanted
            if one.size_bytes or one.error_code or one.diverging is not None:
                continue
            partition = self.replicas.led(wanted.key.topic, wanted.key.partition)
            if (
                partition is not None
                and partition.topic_id == wanted.key.topic_id
                and wanted.current_leader_epoch == partition.leader_epoch
                and partition.omit(
                    follower.broker_id,
                    session.fetches,
                    high_watermark=one.high_watermark,
                    log_start_offset=one.log_start_offset,
                )
            ):
                session.omit(wanted.key.identity)

    # ---- one partition

    def _read_one(
        self, wanted: FetchPartition, left: int, *, min_one: bool, is_first: bool
    ) -> PartitionRead:
        key, follower = wanted.key, self.reader.follower
        try:
            partition = self.partition(key)
            partition.check_epoch(wanted.current_leader_epoch)
            if follower is not None:
                partition.require_follower(follower.broker_id, wanted.current_leader_epoch)
            return self._read_log(wanted, partition, left, min_one=min_one, is_first=is_first)
        except KafkaError as error:
            if not isinstance(error, _NOT_FAILED):
                self._metrics.fetch_failed(key.topic)
            return PartitionRead(wanted, error_code=error.code)
        except Exception:
            self._metrics.fetch_failed(key.topic)
            _log.exception(
                "Error processing fetch with max size %s of %s-%s", left, key.topic, key.partition
            )
            return PartitionRead(wanted, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    def _read_log(
        self,
        wanted: FetchPartition,
        partition: Partition,
        left: int,
        *,
        min_one: bool,
        is_first: bool,
    ) -> PartitionRead:
        """The records of a partition, or where else to read them, or where the logs have parted."""
        reader, log = self.reader, partition.log
        preferred = None
        if reader.neighbours:
            preferred = partition.nearest_reader(reader.neighbours, wanted.fetch_offset)
        diverging = None if preferred is not None else _diverging_epoch(log, wanted)
        if preferred is not None or diverging is not None:
            return PartitionRead(
                wanted,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                diverging=diverging,
                preferred_replica=-1 if preferred is None else preferred,
            )
        high_watermark = log.high_watermark
        fetched = log.reader.read(
            wanted.fetch_offset,
            min(wanted.max_bytes, left),
            isolation=self._isolation,
            min_one=min_one,
        )
        if reader.follower is not None and is_first:
            partition.fetched_by(
                reader.follower.broker_id,
                wanted.fetch_offset,
                start=wanted.own_start_offset,
                broker_epoch=reader.follower.broker_epoch,
            )
        # Clients of version 3 and later are never given a part of a batch alone.
        is_left_out = fetched.first_entry_incomplete or self.is_throttled(partition)
        return PartitionRead(
            wanted,
            high_watermark=high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            records=None if is_left_out else fetched.range,
            aborted=None if is_left_out else fetched.aborted,
        )


def _diverging_epoch(log: PartitionLog, wanted: FetchPartition) -> tuple[int, int] | None:
    """The newest epoch that both may have, and its end here, if the client's log is another one.

    Raises:
        OffsetOutOfRangeError: the epoch is not known, or the offset lies before the log.

    Source: Partition.readRecords; KIP-595.
    """
    if wanted.last_fetched_epoch == NO_EPOCH:
        return None
    epoch, end = log.reader.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == NO_EPOCH or end < 0:
        raise OffsetOutOfRangeError(
            "Could not determine the end offset of the last fetched epoch "
            f"{wanted.last_fetched_epoch} from the request"
        )
    if wanted.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRangeError(
            f"Received request for offset {wanted.fetch_offset} for partition "
            f"{log.topic_partition}, but we only have log segments in the range "
            f"{log.log_start_offset} to {log.log_end_offset}."
        )
    if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
        return epoch, end
    return None
