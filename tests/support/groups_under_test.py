"""A group coordinator for a test: real logs, a clock and timers in the test's hand.

Source of the scenarios: org.apache.kafka.coordinator.group.GroupMetadataManagerTest,
OffsetMetadataManagerTest (Kafka 4.3).
"""

from __future__ import annotations

import heapq
import itertools
import queue
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cordwood.broker.coordinators.coordinator_metadata import CoordinatorMetadataImage
from cordwood.broker.coordinators.group_log import group_log_format
from cordwood.broker.coordinators.topic_log import TopicLog
from cordwood.configs.resource import ConfigResource
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import (
    Client,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveReply,
    LeavingMember,
    Protocol,
    Protocols,
    SyncAnswer,
    SyncRequest,
)
from cordwood.coordinator.group.consumer.member import HeartbeatAnswer, HeartbeatRequest
from cordwood.coordinator.group.events import DeletedOffsets
from cordwood.coordinator.group.offset_requests import (
    CommitPartition,
    CommitRequest,
    CommitTopic,
    FetchedOffset,
    FetchedTopic,
    FetchTopic,
)
from cordwood.coordinator.group.service import GroupCoordinator
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.coordinator.timers import at_once
from cordwood.format.record import Record
from cordwood.metadata.image import MetadataImage, PartitionImage, TopicImage
from cordwood.metadata.persistent_map import PersistentMap
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.audit import Requester
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError, UnknownTopicOrPartitionError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.uuids import ZERO_UUID
from cordwood.storage.filesystem import OS
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock
from support.log_under_test import FixedRng, batches_read, new_log

REQUESTER = Requester("User:ann", "tool", "10.0.0.1")
_SOON_S = 30
A = TypeVar("A")
RANGE: Protocols = (Protocol("range", b""),)
_ALIVE = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)


class ManualTimer:
    """Something that will happen unless it is cancelled."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.run: Callable[[], object] | None = run

    def cancel(self) -> None:
        """Cancels it."""
        self.run = None


class ManualTimers:
    """Timers of real time that ring when a test says that time has passed."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._now_ms = 0
        self._due: list[tuple[int, int, ManualTimer]] = []
        self._numbers = itertools.count()

    def call_later_ms(self, delay_ms: int, run: Callable[[], object]) -> ManualTimer:
        """Sets a timer."""
        timer = ManualTimer(run)
        heapq.heappush(self._due, (self._now_ms + delay_ms, next(self._numbers), timer))
        return timer

    def advance(self, ms: int) -> None:
        """Lets so much time pass, and whatever is due happen in order."""
        end_ms = self._now_ms + ms
        while self._due and self._due[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._due)
            self.clock.advance(due_ms - self._now_ms)
            self._now_ms = due_ms
            run, timer.run = timer.run, None
            if run is not None:
                run()
        self.clock.advance(end_ms - self._now_ms)
        self._now_ms = end_ms

    @property
    def pending(self) -> int:
        """The number of timers that are set."""
        return sum(timer.run is not None for _, _, timer in self._due)


class TopicsUnderTest:
    """The metadata of a cluster whose topics a test creates and changes."""

    def __init__(self, new_id: Callable[[], uuid.UUID] = uuid.uuid4) -> None:
        """No topics; `new_id` makes the ids of those that are created."""
        self.image = MetadataImage()
        self._new_id = new_id

    def create(self, name: str, partitions: int) -> None:
        """Makes a topic, in place of one that has the name."""
        self._put(TopicImage(name=name, topic_id=self._new_id()), partitions)

    def grow(self, name: str, partitions: int) -> None:
        """Has a topic have more partitions."""
        self._put(self.image.topics[name], partitions)

    def delete(self, name: str) -> None:
        """Deletes a topic."""
        self._set({each: topic for each, topic in self.image.topics.items() if each != name})

    def _put(self, topic: TopicImage, partitions: int) -> None:
        grown = replace(topic, partitions=dict.fromkeys(range(partitions), _ALIVE))
        self._set({**self.image.topics, topic.name: grown})

    def _set(self, topics: Mapping[str, TopicImage]) -> None:
        self.image = replace(
            self.image,
            topics=PersistentMap(dict(topics)),
            topic_names=PersistentMap({topic.topic_id: name for name, topic in topics.items()}),
            next_offset=self.image.next_offset + 10,
        )


class GroupBroker(TopicsUnderTest):
    """Broker of a coordinator, over real logs in a directory.

    `fails_with` makes every append fail. With `is_replicated`, an append is not committed until
    the test advances the high watermark. What is handed over by `call_soon` happens at `run_soon`.
    """

    def __init__(
        self,
        root: Path,
        *,
        partitions: int = 1,
        topics: Mapping[str, int] | None = None,
        topic: str = GROUP_METADATA_TOPIC,
        served: str = GROUP_METADATA_TOPIC,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        """A broker with a topic for groups.

        Args:
            root: where its logs are, or will be.
            partitions: how many the topic for groups has; none without it.
            topics: partitions of other topics.
            topic: the one for groups.
            served: the topic whose partitions have logs.
            new_id: makes the ids of topics.
        """
        super().__init__(new_id)
        self.root = root
        self.served = served
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.call_later_ms = self.timers.call_later_ms
        self.after_input = at_once
        self.fails_with: KafkaError | None = None
        self.is_replicated = False
        self.periods: dict[str, int] = {}
        self._soon: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._logs: dict[int, PartitionLog] = {}
        self._context = LogContext(
            clock=self.clock, resources=ResourceCache(OS), verify_transactions=False
        )
        for name, count in {
            **({topic: partitions} if partitions else {}),
            **(topics or {}),
        }.items():
            self.create(name, count)

    def log(self, topic: str, index: int) -> PartitionLog:
        """The log of a partition of the topic for groups, or of the one that is served."""
        known = self.image.topics.get(topic)
        if topic != self.served or known is None or index not in known.partitions:
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        if index not in self._logs:
            log = new_log(
                self.root, name=f"{topic}-{index}", context=self._context, cleanup_policy="compact"
            )
            log.update_high_watermark(log.log_end_offset)
            self._logs[index] = log
        return self._logs[index]

    def append(
        self,
        topic: str,
        index: int,
        records: bytes,
        *,
        origin: AppendOrigin,
        verification_guard: object | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Appends; commits too, unless `is_replicated`."""
        if self.fails_with is not None:
            raise self.fails_with
        log = self.log(topic, index)
        result = log.append_as_leader(
            records,
            origin=origin,
            verification_guard=verification_guard,
            transaction_version=transaction_version,
        )
        if not self.is_replicated:
            log.update_high_watermark(log.log_end_offset)
        return result

    def call_soon(self, run: Callable[[], object]) -> None:
        """Keeps something for `run_soon`; from any thread."""
        self._soon.put(run)

    def run_soon(self) -> bool:
        """Waits until something is handed over, and does it; False if nothing comes."""
        try:
            run = self._soon.get(timeout=_SOON_S)
        except queue.Empty:
            return False
        run()
        return True

    def run_in_slices(self, run: Callable[[], object]) -> None:
        """Does it when time passes; at once, unless the test lets others interrupt it."""
        self.timers.call_later_ms(0, run)

    def schedule(self, name: str, period_ms: int, run: Callable[[], object]) -> ManualTimer:
        """Notes the period; the test calls what is to be done."""
        self.periods[name] = period_ms
        return ManualTimer(run)

    def recreate(self, name: str) -> None:
        """Deletes a topic and makes one of the same name."""
        self.create(name, 1)

    def configure(self, group: str, **settings: str) -> None:
        """Sets settings of a group; an underscore stands for a dot."""
        values = {name.replace("_", "."): value for name, value in settings.items()}
        configs = self.image.configs.changed({(ConfigResource.GROUP, group): values})
        self.image = replace(self.image, configs=configs)

    def group_setting(self, group: str, name: str) -> int | None:
        """A setting that a group has of its own."""
        text = self.image.configs.get((ConfigResource.GROUP, group), {}).get(name)
        return None if text is None else int(text)

    def records(self, index: int = 0) -> list[Record]:
        """All records of a partition of the topic for groups, without markers."""
        log = self.log(self.served, index)
        if log.log_start_offset == log.log_end_offset:
            return []
        batches = batches_read(log.reader.read(0, 1 << 26, isolation=Isolation.LOG_END))
        return [
            record for batch in batches if not batch.header.is_control for record in batch.records()
        ]

    def close(self) -> None:
        """Stops in good order: the logs can be opened again."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()


class GroupRun:
    """A coordinator, and clients that ask it by short calls. Answers come into lists."""

    def __init__(self, broker: GroupBroker, **settings: Any) -> None:
        self.broker = broker
        self.timers = broker.timers
        chosen = GroupSettings(**settings)
        log = TopicLog(group_log_format(chosen.topic_codec), broker, broker)
        cluster = CoordinatorMetadataImage(broker, broker.group_setting)
        self.groups = GroupCoordinator(log, broker, chosen, cluster, FixedRng(0))

    def join(self, member_id: str = "", *, group: str = "g", **fields: Any) -> list[JoinAnswer]:
        """Asks to join; the list is empty while the answer is waited for."""
        answers: list[JoinAnswer] = []
        request = JoinRequest(
            **{
                "group_id": group,
                "member_id": member_id,
                "group_instance_id": None,
                "client": Client("client", "/127.0.0.1"),
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 60_000,
                "protocol_type": "consumer",
                "protocols": RANGE,
                **fields,
            }
        )
        self.groups.join(request, answers.append)
        return answers

    def beat(
        self, member_id: str, epoch: int, *, group: str = "g", **fields: Any
    ) -> HeartbeatAnswer:
        """A heartbeat of a member of the consumer protocol, whose answer comes at once."""
        request = HeartbeatRequest(
            **{
                "group_id": group,
                "member_id": member_id,
                "member_epoch": epoch,
                "client": Client("client", "/127.0.0.1"),
                **fields,
            }
        )
        answers: list[HeartbeatAnswer] = []
        self.groups.consumer_heartbeat(request, answers.append)
        return only(answers)

    def enter(self, member_id: str, *topics: str, **fields: Any) -> HeartbeatAnswer:
        """A member of the consumer protocol joins, and subscribes to topics."""
        given = {"rebalance_timeout_ms": 60_000, "owned": (), "topics": topics, **fields}
        return self.beat(member_id, 0, **given)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        **fields: Any,
    ) -> list[SyncAnswer]:
        """Asks for an assignment; a leader brings those of all."""
        answers: list[SyncAnswer] = []
        request = SyncRequest(
            **{
                "group_id": group,
                "member_id": member_id,
                "group_instance_id": None,
                "generation_id": generation_id,
                "assignments": tuple((assignments or {}).items()),
                **fields,
            }
        )
        self.groups.sync(request, answers.append)
        return answers

    def member_id(self, **fields: Any) -> str:
        """The id that a new member is given to come back with."""
        (answer,) = self.join(**fields)
        return answer.member_id

    def stable(self, count: int = 1, *, group: str = "g", **fields: Any) -> list[str]:
        """Brings a new group to Stable; the ids of its members, the leader first."""
        ids = [self.member_id(group=group, **fields) for _ in range(count)]
        joins = [self.join(member_id, group=group, **fields) for member_id in ids]
        self.timers.advance(self.groups.settings.initial_rebalance_delay_ms)
        while not joins[0]:
            self.timers.advance(self.groups.settings.initial_rebalance_delay_ms)
        generation, leader = joins[0][0].generation_id, joins[0][0].leader
        ids.sort(key=lambda member_id: member_id != leader)
        self.sync(leader, generation, {each: assigned(each) for each in ids}, group=group)
        for member_id in ids[1:]:
            self.sync(member_id, generation, group=group)
        assert self.state(group) is GroupState.STABLE, group
        return ids

    def state(self, group: str = "g") -> GroupState | None:
        """A group's state; None if there is no such group."""
        try:
            return self.groups.describe(group, ClassicGroup).state
        except KafkaError:
            return None

    def commit(
        self,
        offset: int,
        *,
        topic: str = "t",
        partition: int = 0,
        group: str = "g",
        metadata: str | None = "",
        topic_id: uuid.UUID = ZERO_UUID,
        **fields: Any,
    ) -> int:
        """Commits an offset; an error code."""
        part = CommitPartition(partition, offset, -1, metadata)
        request = CommitRequest(
            group_id=group, topics=(CommitTopic(topic, (part,), topic_id),), **fields
        )
        answers: list[int] = []
        self.groups.commit(request, answers.append)
        return only(answers)

    def commit_all(self, topic: CommitTopic) -> int:
        """Commits offsets of a topic to group g; an error code."""
        request = CommitRequest(group_id="g", topics=(topic,))
        answers: list[int] = []
        self.groups.commit(request, answers.append)
        return only(answers)

    def fetched(
        self,
        topic: str = "t",
        partition: int = 0,
        *,
        group: str = "g",
        topic_id: uuid.UUID = ZERO_UUID,
        require_stable: bool = False,
    ) -> FetchedOffset:
        """The answer of OffsetFetch for a partition."""
        wanted = [FetchTopic(topic, (partition,), topic_id)]
        if not require_stable:
            (found,) = self.groups.fetch(group, wanted)
            return found.partitions[0]
        answers = self.fetch_stable(wanted, group=group)
        answer = only(answers)
        assert isinstance(answer, list), answer
        return answer[0].partitions[0]

    def fetch_stable(
        self, wanted: Sequence[FetchTopic], *, group: str = "g"
    ) -> list[list[FetchedTopic] | int]:
        """The answer of an OffsetFetch that waits for stable offsets."""
        answers: list[list[FetchedTopic] | int] = []

        def committed(error: int) -> None:
            answers.append(error or self.groups.fetch(group, wanted, require_stable=True))

        self.groups.await_commit(group, committed)
        return answers

    def offset(self, topic: str = "t", partition: int = 0, *, group: str = "g") -> int:
        """The committed offset of a partition, -1 for none."""
        return self.fetched(topic, partition, group=group).offset

    def heartbeat(
        self,
        member_id: str,
        generation_id: int,
        *,
        group: str = "g",
        group_instance_id: str | None = None,
    ) -> int:
        """An error code."""
        answers: list[int] = []
        self.groups.heartbeat(group, member_id, group_instance_id, generation_id, answers.append)
        return only(answers)

    def leave(self, *members: LeavingMember, group: str = "g") -> tuple[LeaveAnswer, ...]:
        """Removes members; the result for each."""
        answers: list[LeaveReply] = []
        self.groups.leave(group, members, answers.append)
        reply = only(answers)
        assert reply.error_code == ErrorCode.NONE
        return reply.members

    def delete_group(self, group: str = "g") -> int:
        """An error code."""
        answers: list[int] = []
        self.groups.delete_group(group, answers.append, by=REQUESTER)
        return only(answers)

    def delete_offsets(self, *partitions: tuple[str, int], group: str = "g") -> DeletedOffsets:
        """An error code for all, or for each partition."""
        answers: list[DeletedOffsets] = []
        self.groups.delete_offsets(group, partitions, answers.append, by=REQUESTER)
        return only(answers)

    def commit_log(self, partition: int = 0) -> None:
        """Advances the high watermark to the log's end, as the other replicas do."""
        log = self.broker.log(GROUP_METADATA_TOPIC, partition)
        log.update_high_watermark(log.log_end_offset)
        self.groups.runtime.on_high_watermark(partition, log.high_watermark)

    def restarted(self, **settings: Any) -> GroupRun:
        """The coordinator that follows this one over the same logs."""
        self.groups.close()
        self.broker.close()
        return GroupRun(self.broker, **settings)


def only(answers: Sequence[A]) -> A:
    """The answer to a request that is answered at once."""
    (answer,) = answers
    return answer


def assigned(member_id: str) -> bytes:
    """A member's assignment in `GroupRun.stable`: no partitions, its id as user data."""
    data = member_id.encode()
    return struct.pack(">hii", 0, 0, len(data)) + data


def codes(answers: Sequence[JoinAnswer] | Sequence[SyncAnswer]) -> list[int]:
    """The error codes of answers."""
    return [int(answer.error_code) for answer in answers]
