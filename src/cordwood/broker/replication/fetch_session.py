"""The requests of a follower to one leader broker: a fetch session, of which only changes are sent.

Source: org.apache.kafka.clients.FetchSessionHandler, kafka.server.RemoteLeaderEndPoint (4.3.0);
KIP-227, KIP-516, KIP-903.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from cordwood.broker.replication.following import FetchedPartition, FetchPosition
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicIdPartition
from cordwood.protocol.data import (
    FetchRequest,
    FetchResponse,
)
from cordwood.protocol.messages import records_of
from cordwood.storage.log.leader_epochs import EpochEndOffset

_NO_SESSION = 0
_FULL_EPOCH = 0
_LAST_EPOCH = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """`replica.fetch.*`: times in ms, sizes in bytes."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 << 20
    partition_max_bytes: int = 1 << 20


Answered = Mapping[TopicIdPartition, tuple[FetchPosition, FetchedPartition]]
"""The partitions of an answer, each with the position that was asked for."""


class ReplicaFetchSession:
    """The fetch session with one leader: the partitions that it knows, and has to know.

    Invariant: `_known` is what the leader has of the session, once the request is answered, and
    `_wanted` differs from it only in `_changed`.
    """

    def __init__(self, broker_id: int, limits: FetchLimits | None = None) -> None:
        """No session yet.

        Args:
            broker_id: of this broker, the follower.
            limits: of each request.
        """
        self._broker_id = broker_id
        self._limits = limits or FetchLimits()
        self._session_id = _NO_SESSION
        self._epoch = _FULL_EPOCH
        self._wanted: dict[TopicIdPartition, FetchPosition] = {}
        self._known: dict[TopicIdPartition, FetchPosition] = {}
        #: A dict for its order.
        self._changed: dict[TopicIdPartition, None] = {}

    @property
    def is_incremental(self) -> bool:
        """Whether the next request has only what has changed."""
        return self._epoch != _FULL_EPOCH

    def __len__(self) -> int:
        """The number of partitions that are fetched."""
        return len(self._wanted)

    def fetch_from(self, key: TopicIdPartition, position: FetchPosition) -> None:
        """The next requests fetch a partition from there."""
        self._wanted[key] = position
        self._changed[key] = None

    def omit(self, key: TopicIdPartition) -> None:
        """The next requests do not fetch a partition."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def request(self, broker_epoch: int) -> FetchRequest:
        """The next Fetch."""
        changed: dict[TopicIdPartition, FetchPosition] = {}
        forgotten: list[TopicIdPartition] = []
        if self.is_incremental:
            for key in self._changed:
                wanted, known = self._wanted.get(key), self._known.get(key)
                if wanted is None:
                    if known is not None:
                        forgotten.append(key)
                        del self._known[key]
                elif wanted != known:
                    changed[key] = self._known[key] = wanted
        else:
            changed = self._known = dict(self._wanted)
        self._changed.clear()
        limits = self._limits
        return FetchRequest(
            replica_id=self._broker_id,
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._broker_id, replica_epoch=broker_epoch
            ),
            max_wait_ms=limits.wait_max_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[
                FetchRequest.FetchTopic(
                    topic_id=topic_id,
                    partitions=[self._partition(key, changed[key]) for key in keys],
                )
                for topic_id, keys in _by_topic(changed).items()
            ],
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(
                    topic_id=topic_id, partitions=[key.partition for key in keys]
                )
                for topic_id, keys in _by_topic(forgotten).items()
            ],
        )

    def _partition(
        self, key: TopicIdPartition, position: FetchPosition
    ) -> FetchRequest.FetchPartition:
        return FetchRequest.FetchPartition(
            partition=key.partition,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            last_fetched_epoch=position.last_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self._limits.partition_max_bytes,
        )

    def answered(self, response: FetchResponse) -> Answered:
        """The partitions of the answer, each with the position that was asked for.

        With an error, or with other partitions than were asked for, there are none, and the next
        request begins a session.
        """
        error = ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            self.begin_again(keeps_id=error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return {}
        found = {
            TopicIdPartition(topic.topic_id, each.partition_index): each
            for topic in response.responses
            for each in topic.partitions
        }
        is_whole = found.keys() <= self._known.keys()
        if not self.is_incremental:
            is_whole = found.keys() == self._known.keys()
        if not is_whole:
            self.begin_again(keeps_id=False)
            return {}
        if response.session_id == _NO_SESSION:
            self._session_id, self._epoch = _NO_SESSION, _FULL_EPOCH
        else:
            self._session_id = response.session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return {key: (self._known[key], _read(each)) for key, each in found.items()}

    def begin_again(self, *, keeps_id: bool = True) -> None:
        """The next request is whole; with its id it ends the session that there is.

        To be called when a request had no answer.
        """
        if not keeps_id:
            self._session_id = _NO_SESSION
        self._epoch = _FULL_EPOCH


def _by_topic(keys: Iterable[TopicIdPartition]) -> dict[UUID, list[TopicIdPartition]]:
    found: dict[UUID, list[TopicIdPartition]] = {}
    for key in keys:
        found.setdefault(key.topic_id, []).append(key)
    return found


def _read(partition: FetchResponse.PartitionData) -> FetchedPartition:
    diverging = partition.diverging_epoch
    has_diverged = diverging.epoch >= 0 and diverging.end_offset >= 0
    return FetchedPartition(
        error=ErrorCode.of(partition.error_code),
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        diverging=EpochEndOffset(diverging.epoch, diverging.end_offset) if has_diverged else None,
        records=records_of(partition.records),
    )
