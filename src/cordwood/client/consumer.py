"""Reads records of partitions that were assigned, from positions of its own.

Source: org.apache.kafka.clients.consumer.internals.FetchCollector, CompletedFetch,
OffsetFetcher; KIP-98 (aborted transactions).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import ClientError, DisconnectedError, RefusedError, TimedOutError
from cordwood.client.offsets import LATEST, Offsets
from cordwood.client.retry import Action, action
from cordwood.format.control_record import ControlType, parse_control_key
from cordwood.format.record_batch import Record, RecordBatch, iter_batches
from cordwood.model.clock import Clock, SystemClock, pause
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.data import (
    FetchRequest,
    FetchResponse,
)
from cordwood.protocol.messages import records_of

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

_FETCH_BYTES_MAX = 52_428_800
_PARTITION_BYTES_MAX = 1_048_576
_WAIT_MAX_MS = 500
_RETRY_S = 0.1


class NoOffsetError(ClientError):
    """A position outside a partition's offsets, without a policy to reset it."""

    java_class = "org.apache.kafka.clients.consumer.OffsetOutOfRangeException"


class ConsumedRecord(NamedTuple):
    """A record as it was read; `timestamp_type` is Kafka's word for it."""

    partition: TopicPartition
    record: Record
    timestamp_type: str


@dataclass(slots=True)
class _Place:
    """A partition's leader, id and next offset."""

    leader: int
    topic_id: UUID | None
    position: int


@dataclass(slots=True, kw_only=True)
class Consumer:
    """Reads assigned partitions; `reset` is `EARLIEST`, `LATEST` or None for an error."""

    cluster: ClusterClient
    isolation: int = READ_UNCOMMITTED
    reset: int | None = LATEST
    check_crcs: bool = True
    clock: Clock = field(default_factory=SystemClock)
    _places: dict[TopicPartition, _Place] = field(default_factory=dict)
    _looked_up_s: float = -math.inf

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Reads these partitions from now on: from an offset, `EARLIEST` or `LATEST`.

        Raises:
            RefusedError: a topic or partition is not there.
        """
        self._places = {}
        moments = {tp: at for tp, at in positions.items() if at < 0}
        found = self._offsets_at(moments)
        leaders = Offsets(self.cluster).leaders(positions) if positions else {}
        ids = self._topic_ids(positions)
        for leader, partitions in leaders.items():
            for tp in partitions:
                position = found.get(tp, positions[tp])
                self._places[tp] = _Place(leader, ids[tp.topic], position)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset after the last record given, of each partition."""
        return {tp: place.position for tp, place in self._places.items()}

    def poll(self, timeout_ms: int) -> list[ConsumedRecord]:
        """The next records, waiting for one as long as `timeout_ms` and no longer."""
        end = self.clock.monotonic_s() + timeout_ms / 1000
        while True:
            left_ms = max(0, int((end - self.clock.monotonic_s()) * 1000))
            records = self._fetch(min(left_ms, _WAIT_MAX_MS))
            if records or self.clock.monotonic_s() >= end:
                return records
            if not self._places:
                pause(min(_RETRY_S, left_ms / 1000))

    def _fetch(self, wait_ms: int) -> list[ConsumedRecord]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp, place in self._places.items():
            by_leader.setdefault(place.leader, []).append(tp)
        found: list[ConsumedRecord] = []
        stale: list[TopicPartition] = []
        for leader, partitions in by_leader.items():
            found += self._fetch_from(leader, partitions, wait_ms, stale)
        # Records of other partitions do not keep those of a stale one from being read.
        if stale and self._may_look_up(can_wait=not found):
            self._find_leaders(stale)
        # Each partition has its turn to come first.
        for leader in by_leader:
            self._rotate(leader)
        return found

    def _fetch_from(
        self,
        leader: int,
        partitions: Sequence[TopicPartition],
        wait_ms: int,
        stale: list[TopicPartition],
    ) -> list[ConsumedRecord]:
        """Records of partitions from their leader; adds to `stale` those it does not serve now."""
        try:
            answer = self.cluster.call(
                self._request(partitions, wait_ms),
                node_id=leader,
                is_single=True,
                timeout_ms=self.cluster.settings.request_timeout_ms + wait_ms,
            )
        except (DisconnectedError, TimedOutError):
            stale += partitions
            return []
        found: list[ConsumedRecord] = []
        if self._must_wait(answer.error_code):
            stale += partitions
        for topic, data in self._answered(answer):
            tp = TopicPartition(topic, data.partition_index)
            place = self._places.get(tp)
            if place is None:
                continue
            if self._must_wait(data.error_code):
                stale.append(tp)
            elif data.error_code:
                self._start_anew(tp, place)
            elif data.records:
                found += self._records(tp, place, records_of(data.records), data)
        return found

    @staticmethod
    def _must_wait(code: int) -> bool:
        """Whether to fetch again after a while; False for no error, and for a wrong position.

        Raises:
            RefusedError: the error is one of the call.
        """
        if not code:
            return False
        follows = action("fetch", code)
        if follows is None:
            raise RefusedError(code)
        return follows is not Action.RESET

    def _request(self, partitions: Iterable[TopicPartition], wait_ms: int) -> FetchRequest:
        topics: dict[str, list[FetchRequest.FetchPartition]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(
                FetchRequest.FetchPartition(
                    partition=tp.partition,
                    fetch_offset=self._places[tp].position,
                    partition_max_bytes=_PARTITION_BYTES_MAX,
                )
            )
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES_MAX,
            isolation_level=self.isolation,
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic,
                    topic_id=next(
                        place.topic_id for tp, place in self._places.items() if tp.topic == topic
                    )
                    or ZERO_UUID,
                    partitions=data,
                )
                for topic, data in topics.items()
            ],
        )

    def _answered(self, answer: FetchResponse) -> Iterator[tuple[str, FetchResponse.PartitionData]]:
        names = {place.topic_id: tp.topic for tp, place in self._places.items()}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id)
            if name is not None:
                for data in topic.partitions:
                    yield name, data

    def _records(
        self, tp: TopicPartition, place: _Place, raw: bytes, data: FetchResponse.PartitionData
    ) -> Iterator[ConsumedRecord]:
        waiting = sorted(
            ((t.first_offset, t.producer_id) for t in data.aborted_transactions or ()),
            reverse=True,
        )
        aborted: set[int] = set()
        for _, batch in iter_batches(raw):
            if batch.next_offset <= place.position:
                continue
            if self.check_crcs and isinstance(batch, RecordBatch):
                batch.require_valid()
            if isinstance(batch, RecordBatch) and self._is_hidden(batch, waiting, aborted):
                place.position = batch.next_offset
                continue
            for record in batch.records():
                if record.offset >= place.position:
                    place.position = record.offset + 1
                    yield ConsumedRecord(tp, record, batch.timestamp_type)
            place.position = max(place.position, batch.next_offset)

    def _is_hidden(
        self, batch: RecordBatch, waiting: list[tuple[int, int]], aborted: set[int]
    ) -> bool:
        header = batch.header
        if self.isolation == READ_COMMITTED and header.has_producer_id:
            while waiting and waiting[-1][0] <= header.last_offset:
                aborted.add(waiting.pop()[1])
            if header.is_control:
                if _is_abort(batch):
                    aborted.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborted:
                return True
        return header.is_control

    def _start_anew(self, tp: TopicPartition, place: _Place) -> None:
        if self.reset is None:
            raise NoOffsetError(
                "Fetch position FetchPosition is out of range, and no reset policy is configured: "
                f"{{{tp}={place.position}}}"
            )
        place.position = self._offsets_at({tp: self.reset})[tp]

    def _may_look_up(self, *, can_wait: bool) -> bool:
        """Whether the last look-up is `retry.backoff.ms` ago, or is so after a pause."""
        backoff_s = self.cluster.settings.retry_backoff_ms / 1000
        left_s = self._looked_up_s + backoff_s - self.clock.monotonic_s()
        if left_s > 0 and can_wait:
            pause(left_s)
        return left_s <= 0 or can_wait

    def _find_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Asks who leads the partitions; what is not known stays as it was."""
        self._looked_up_s = self.clock.monotonic_s()
        wanted = {tp: self._places[tp] for tp in partitions if tp in self._places}
        try:
            topics = Admin(self.cluster).find_topics((tp.topic for tp in wanted), is_single=True)
        except (RefusedError, DisconnectedError, TimedOutError):
            return
        for tp, place in wanted.items():
            topic = topics[tp.topic]
            leader = None if isinstance(topic, RefusedError) else topic.leader_of(tp.partition)
            if not isinstance(topic, RefusedError) and leader is not None:
                place.leader, place.topic_id = leader, topic.topic_id

    def _offsets_at(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        offsets = Offsets(self.cluster).list_offsets(moments, isolation=self.isolation)
        for tp, offset in offsets.items():
            if isinstance(offset, RefusedError):
                raise offset
            found[tp] = offset
        return found

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID | None]:
        names = sorted({tp.topic for tp in partitions})
        if not names:
            return {}
        return {topic.name: topic.topic_id for topic in Admin(self.cluster).topics(names)}

    def _rotate(self, leader: int) -> None:
        first = next((tp for tp, place in self._places.items() if place.leader == leader), None)
        if first is not None and len(self._places) > 1:
            self._places[first] = self._places.pop(first)


def _is_abort(batch: RecordBatch) -> bool:
    records = batch.records()
    return bool(records) and parse_control_key(records[0].key or b"") is ControlType.ABORT
