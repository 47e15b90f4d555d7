"""The coordinator of all groups whose partition of `__consumer_offsets` this broker leads.

It turns requests into events of the runtime, and reads the committed state. It belongs to the
thread that owns the broker's state.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorService.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from cordwood.coordinator.effects import Answer, ReplyTo
from cordwood.coordinator.errors import CoordinatorRequestError, error_of_append, error_of_fetch
from cordwood.coordinator.group import events, offset_requests
from cordwood.coordinator.group.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupState,
)
from cordwood.coordinator.group.classic.member import (
    JoinAnswer,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    MemberIds,
    SyncAnswer,
    SyncRequest,
)
from cordwood.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from cordwood.coordinator.group.consumer.rebalance import Cluster
from cordwood.coordinator.group.counters import Count
from cordwood.coordinator.group.events import DeletedOffsets
from cordwood.coordinator.group.machine import GroupStateMachine
from cordwood.coordinator.group.offset_requests import (
    NO_MEMBER,
    CommitRequest,
    FetchedTopic,
    FetchingMember,
    FetchTopic,
)
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.coordinator.group.records import CoordinatorRecord, OffsetRecord
from cordwood.coordinator.group.settings import ConsumerGroupSettings, GroupSettings
from cordwood.coordinator.group.shard import GroupShard
from cordwood.coordinator.runtime import (
    Appended,
    CoordinatorLog,
    CoordinatorRuntime,
    LoadTime,
    RuntimeHost,
)
from cordwood.format.java_map import absolute_hash
from cordwood.model.audit import Requester
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.rng import Rng
from cordwood.model.timers import Timer
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.uuids import fresh_uuid, uuid_text

CLASSIC = "classic"
CONSUMER = "consumer"

A = TypeVar("A")
KeptOffsets = Mapping[OffsetKey, CommittedOffset]
"""Committed offsets that outlive their topic."""
Reply = Callable[[A], object]
"""Receives the answer to a request, immediately or later."""

_LOG = logging.getLogger(__name__)

#: How many groups and offsets are looked at in one turn of the loop.
_EXPIRED_AT_ONCE = 1_000


class GroupLog(CoordinatorLog[GroupShard, CoordinatorRecord], Protocol):
    """The log of groups, and the topics whose offsets they commit."""

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, UUID]:
        """The ids of those of the topics that exist."""


class GroupHost(RuntimeHost, Protocol):
    """The functions of the process that a group coordinator uses."""

    def schedule(self, name: str, period_ms: int, run: Callable[[], object], /) -> Timer:
        """Calls a function in every period of the movable clock."""


class ListedGroup(NamedTuple):
    """A group as ListGroups describes it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupCounts(NamedTuple):
    """Classic and consumer groups by their state, committed offsets, and what has happened."""

    groups: Mapping[GroupState, int]
    consumer_groups: Mapping[ConsumerGroupState, int]
    offsets: int
    since_start: Mapping[Count, int]


class GroupCoordinator:
    """Answers the requests of the group APIs.

    Functions that change groups take a `reply`, which is called when the change is committed.
    Functions that only read return the committed state.
    """

    def __init__(
        self, log: GroupLog, host: GroupHost, settings: GroupSettings, cluster: Cluster, rng: Rng
    ) -> None:
        """Creates the coordinator; no partition is loaded yet.

        Args:
            log: the log that the groups are written to.
            host: clock, timers, and access to the thread that owns the broker's state.
            settings: limits, delays, retention.
            cluster: its topics, and the settings of groups.
            rng: makes the ids of members.
        """
        self._log = log
        self._host = host
        machine = GroupStateMachine(settings, cluster, _member_ids(rng))
        self._machine = machine
        self._runtime: CoordinatorRuntime[GroupShard, events.GroupEvent, CoordinatorRecord] = (
            CoordinatorRuntime(machine, log, host, write_timeout_ms=settings.commit_timeout_ms)
        )
        self._expiry: Timer | None = None

    @property
    def settings(self) -> GroupSettings:
        """The settings of the broker that groups obey, at present."""
        return self._machine.settings

    @settings.setter
    def settings(self, settings: GroupSettings) -> None:
        """Those that can be changed at run time take effect at the next event."""
        self._machine.settings = settings

    # ---- partitions

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group's records are in.

        Source: GroupCoordinatorService.partitionFor.
        """
        count = len(self._log.partitions()) or self.settings.topic_partitions
        return absolute_hash(group_id) % count

    def start(self) -> None:
        """Looks regularly for offsets that expire, and loads what is led here already."""
        self._expiry = self._host.schedule(
            "delete-expired-group-metadata",
            self.settings.retention_check_interval_ms,
            self.expire_offsets,
        )
        self._runtime.load_all(lambda: None)

    def close(self) -> None:
        """Unloads all groups: requests that wait are refused, timers are cancelled."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._runtime.unload()

    def when_loaded(self, then: Callable[[], None]) -> None:
        """Calls `then` once all groups are known, immediately if they are."""
        self._runtime.load_all(then)

    def require_loaded(self, partition: int) -> None:
        """Checks that a partition's groups are known, and begins to load them if not.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, or NOT_COORDINATOR where they cannot be read.
        """
        self._runtime.read(partition)

    def complete_transaction(
        self,
        partition: int,
        batch: bytes,
        producer_id: int,
        *,
        commit: bool,
        transaction_version: int,
    ) -> Appended:
        """Appends a transaction marker, and commits or drops the offsets of the transaction.

        Raises:
            KafkaError: the groups are not loaded, or the marker cannot be appended.

        Source: GroupCoordinatorService.completeTransaction.
        """
        return self._runtime.complete_transaction(
            partition,
            batch,
            producer_id,
            commit=commit,
            transaction_version=transaction_version,
        )

    def on_elected(self, partition: int) -> None:
        """This broker leads a partition, in a new leader epoch: its groups are loaded.

        Those that are loaded already stay as they are.

        Source: GroupCoordinatorService.onElection.
        """
        self._runtime.elect(partition)

    def on_resigned(self, partition: int) -> None:
        """This broker does not lead a partition any more: its groups are unloaded.

        Source: GroupCoordinatorService.onResignation.
        """
        self._runtime.resign(partition)

    def on_high_watermark(self, partition: int, high_watermark: int) -> None:
        """Records below an offset are committed: sends the answers that waited for that."""
        self._runtime.on_high_watermark(partition, high_watermark)

    def _write(self, group_id: str, event: events.GroupEvent) -> None:
        self._runtime.write(self.partition_for(group_id), event)

    def _read(self, group_id: str) -> tuple[GroupShard, int]:
        return self._runtime.read(self.partition_for(group_id))

    # ---- members

    def join(self, request: JoinRequest, reply: Reply[JoinAnswer]) -> None:
        """Adds a member to its group; answers when the group's next generation begins."""
        settings = self.settings
        error = ErrorCode.NONE
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not (
            settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error:
            reply(JoinAnswer(error_code=error, member_id=request.member_id))
            return
        reply_to = ReplyTo(reply, lambda error: JoinAnswer(error_code=error_of_append(error)))
        self._write(request.group_id, events.Join(request=request, reply_to=reply_to))

    def sync(self, request: SyncRequest, reply: Reply[SyncAnswer]) -> None:
        """Answers with a member's assignment, once the leader has sent it."""
        if not request.group_id:
            reply(SyncAnswer(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        reply_to = ReplyTo(reply, lambda error: SyncAnswer(error_code=error_of_append(error)))
        self._write(request.group_id, events.Sync(request=request, reply_to=reply_to))

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        reply: Reply[int],
    ) -> None:
        """Resets a member's session timeout; answers with an error code."""
        if not group_id:
            reply(ErrorCode.INVALID_GROUP_ID)
            return
        event = events.Heartbeat(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
            reply_to=ReplyTo(reply, _code_of_heartbeat),
        )
        self._write(group_id, event)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], reply: Reply[LeaveReply]
    ) -> None:
        """Removes members from their group."""
        if not group_id:
            reply(LeaveReply(ErrorCode.INVALID_GROUP_ID))
            return
        reply_to = ReplyTo(reply, lambda error: LeaveReply(error_of_append(error)))
        event = events.Leave(group_id=group_id, members=tuple(members), reply_to=reply_to)
        self._write(group_id, event)

    def consumer_heartbeat(
        self,
        request: HeartbeatRequest,
        reply: Reply[HeartbeatAnswer],
        *,
        needs_member_id: bool = True,
    ) -> None:
        """A member of a consumer group joins, shows that it is alive, or leaves.

        With `needs_member_id` a member makes its id itself; without, it is given one.
        """
        error = heartbeat_error(request, self.settings.consumer, needs_member_id=needs_member_id)
        if error is not None:
            reply(error)
            return
        reply_to = ReplyTo(
            reply, lambda error: HeartbeatAnswer(error_of_append(error), str(error) or None)
        )
        event = events.ConsumerHeartbeat(request=request, reply_to=reply_to)
        self._write(request.group_id, event)

    # ---- offsets

    def commit(self, request: CommitRequest, reply: Reply[int]) -> None:
        """Commits offsets, without those whose metadata is too long; answers an error code.

        Those of a transaction count when its marker is written.
        """
        records = offset_requests.records_of_commit(
            request,
            now_ms=self._host.clock.now_ms(),
            metadata_bytes_max=self.settings.offset_metadata_max_bytes,
        )
        event = events.Commit(
            request=request, records=records, reply_to=ReplyTo(reply, error_of_append)
        )
        self._write(request.group_id, event)

    def is_metadata_too_long(self, metadata: str | None) -> bool:
        """Whether a commit with that metadata is refused because the metadata is too long."""
        return offset_requests.is_too_long(metadata, self.settings.offset_metadata_max_bytes)

    def fetch(
        self,
        group_id: str,
        topics: Iterable[FetchTopic] | None,
        member: FetchingMember = NO_MEMBER,
        *,
        require_stable: bool = False,
    ) -> list[FetchedTopic]:
        """The committed offsets of a group for these partitions, or for all if None.

        With `require_stable` an offset that an open transaction may change has an error instead.
        A transaction whose marker is written has changed it: `await_commit` comes first, or the
        answer may be the offset before.

        Raises:
            KafkaError: the group's partition is not loaded, or the group refuses the member.

        Differs: Kafka reads stable offsets as they are written, before it waits.
        """
        shard, at = self._read(group_id)
        return offset_requests.found_offsets(
            shard, group_id, topics, at=at, require_stable=require_stable, member=member
        )

    def await_commit(self, group_id: str, reply: Reply[int]) -> None:
        """Answers when what has been written of a group is committed, or an error code."""
        answer = Answer(ReplyTo(reply, error_of_fetch), ErrorCode.NONE)
        self._runtime.await_commit(self.partition_for(group_id), answer)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]],
        reply: Reply[DeletedOffsets],
        *,
        by: Requester,
    ) -> None:
        """Deletes a group's offsets for these topics and partitions, as a client has asked."""
        if not group_id:
            reply(DeletedOffsets(ErrorCode.INVALID_GROUP_ID))
            return
        event = events.DeleteOffsets(
            group_id=group_id,
            partitions=tuple(partitions),
            requester=by,
            reply_to=ReplyTo(reply, lambda error: DeletedOffsets(error_of_append(error))),
        )
        self._write(group_id, event)

    # ---- groups

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[ListedGroup]:
        """The groups of all loaded partitions, filtered by state and type if these are given.

        They are in Kafka's order.

        Raises:
            KafkaError: a partition is still being loaded.

        Source: GroupCoordinatorService.listGroups.
        """
        wanted_states = {state.lower().strip() for state in states}
        wanted_types = {each.lower() for each in types}
        return [
            group
            for _, shard, at in self._runtime.read_all()
            for group in _listed(shard, at)
            if not wanted_states or group.state.lower() in wanted_states
            if not wanted_types or group.group_type in wanted_types
        ]

    @property
    def load_times(self) -> Sequence[LoadTime]:
        """How long the last loads of partitions took."""
        return tuple(self._runtime.load_times)

    def counts(self) -> GroupCounts:
        """The number of groups and offsets in the loaded partitions.

        Source: org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics.
        """
        try:
            shards = self._runtime.read_all()
        except KafkaError:
            shards = []
        groups = [group for _, shard, at in shards for group in shard.groups.values(at)]
        return GroupCounts(
            Counter(group.state for group in groups if isinstance(group, ClassicGroup)),
            Counter(group.state for group in groups if isinstance(group, ConsumerGroup)),
            sum(len(shard.offsets) for _, shard, _ in shards),
            {what: self._machine.counts[what] for what in Count},
        )

    def describe(self, group_id: str) -> ClassicGroup | None:
        """A classic group; None if there is none of that name.

        Raises:
            KafkaError: the group's partition is not loaded.
        """
        shard, at = self._read(group_id)
        return shard.classic_group(group_id, at)

    def describe_consumer_group(self, group_id: str) -> ConsumerGroup:
        """A group of the consumer protocol.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or the group's partition is not loaded.

        Source: GroupMetadataManager.consumerGroup.
        """
        shard, at = self._read(group_id)
        group = shard.consumer_group(group_id, at)
        if group is None:
            is_classic = shard.classic_group(group_id, at) is not None  # it may have no members
            is_other = is_classic or self.is_of_other_protocol(group_id)
            why = "is not a consumer group" if is_other else "not found"
            raise CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        return group

    def is_of_other_protocol(self, group_id: str) -> bool:
        """Whether the log has a group of that name that is not a classic one."""
        shard, at = self._read(group_id)
        is_consumer_group = shard.consumer_group(group_id, at) is not None
        return is_consumer_group or shard.other_groups.get(group_id, at) is not None

    def delete_group(self, group_id: str, reply: Reply[int], *, by: Requester) -> None:
        """Deletes an empty group and all its offsets, as a client has asked; answers a code."""
        reply_to = ReplyTo(reply, error_of_append)
        event = events.DeleteGroup(group_id=group_id, requester=by, reply_to=reply_to)
        self._write(group_id, event)

    # ---- what happens without a request

    def expire_offsets(self) -> None:
        """Deletes offsets that nobody has used for long enough, and groups that have none."""
        self._runtime.load_all(self._expire_all)

    def _expire_all(self) -> None:
        self._expire_next(self._expiries())

    def _expiries(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The groups of each partition, in parts that have not too many offsets."""
        for partition, shard, _ in self._runtime.read_all():
            part: list[str] = []
            count = 0
            for group_id, _ in shard.groups.items():
                part.append(group_id)
                count += 1 + shard.offsets.count_of(group_id)
                if count >= _EXPIRED_AT_ONCE:
                    yield partition, tuple(part)
                    part, count = [], 0
            if part:
                yield partition, tuple(part)

    def _expire_next(self, expiries: Iterator[tuple[int, tuple[str, ...]]]) -> None:
        """Looks at some groups now, and at the others later: requests come between."""
        for partition, group_ids in expiries:
            if self._runtime.is_active(partition):
                event = events.ExpireOffsets(group_ids=group_ids, reply_to=self._logged(partition))
                self._runtime.write(partition, event)
                self._host.call_soon(partial(self._expire_next, expiries))
                break

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Topics are new, deleted or changed: groups that subscribe to them look at them again.

        Source: GroupMetadataManager.onMetadataUpdate.
        """
        if not names:
            return
        try:
            shards = self._runtime.read_all()
        except KafkaError:  # a group looks at the topics at the first heartbeat after its load
            return
        for _, shard, _ in shards:
            for group in shard.groups.values():
                if isinstance(group, ConsumerGroup) and any(map(group.is_subscribed_to, names)):
                    group.request_refresh()

    def on_topics_deleted(
        self, names: Iterable[str], note: Callable[[str, KeptOffsets], object] | None = None
    ) -> None:
        """Deletes the offsets of deleted topics; there may be new topics with the same names.

        Args:
            names: the topics'.
            note: called with a topic and offsets of it, before these are deleted.

        Source: GroupCoordinatorService.onMetadataUpdate, OffsetMetadataManager.onTopicsDeleted.
        """
        gone = set(names)
        if GROUP_METADATA_TOPIC in gone:
            self._runtime.unload()
            gone.discard(GROUP_METADATA_TOPIC)
        if gone:
            self._runtime.load_all(partial(self._delete_of_topics, frozenset(gone), note))

    def _delete_of_topics(
        self, names: frozenset[str], note: Callable[[str, KeptOffsets], object] | None
    ) -> None:
        recreated = self._log.topic_ids(names)
        if note is not None:
            for name, offsets in self._committed_of(names, recreated).items():
                note(name, offsets)
        for partition, _, _ in self._runtime.read_all():
            event = events.TopicsDeleted(
                names=names,
                recreated=recreated,
                reply_to=self._logged(partition),
            )
            self._runtime.write(partition, event)

    def _committed_of(
        self, names: frozenset[str], recreated: Mapping[str, UUID]
    ) -> dict[str, KeptOffsets]:
        """The committed offsets of topics that are to be deleted, by topic."""
        found: dict[str, list[tuple[OffsetKey, CommittedOffset]]] = {}
        for _, shard, _ in self._runtime.read_all():
            for key in shard.offsets.of_topics(names, lambda *_: True):
                offset = shard.offsets.get(key)
                if offset is not None and offset.topic_id != recreated.get(key.topic):
                    found.setdefault(key.topic, []).append((key, offset))
        return {name: dict(offsets) for name, offsets in found.items()}

    def put_back_offsets(self, offsets: KeptOffsets, reply: Reply[int | None]) -> None:
        """Commits the offsets of a restored topic again, and answers how many.

        The answer is None if some cannot be committed now; they can be later. Where a group has
        committed since, the newer offset stays. The others count as committed now, so that none
        expires at once.
        """
        self._runtime.load_all(partial(self._put_back, offsets, reply))

    def _put_back(self, offsets: KeptOffsets, reply: Reply[int | None]) -> None:
        by_partition: dict[int, list[OffsetRecord]] = {}
        for key, offset in offsets.items():
            record = OffsetRecord(key, offset)
            by_partition.setdefault(self.partition_for(key.group_id), []).append(record)
        counts: list[int | None] = []

        def done(count: int | None) -> None:
            counts.append(count)
            if len(counts) == len(by_partition):
                reply(None if None in counts else sum(each or 0 for each in counts))

        def failed(error: KafkaError) -> None:
            _LOG.error("Cannot put back offsets of a restored topic", exc_info=error)

        if not by_partition:
            reply(0)
        for partition, records in by_partition.items():
            event = events.PutBackOffsets(records=records, reply_to=ReplyTo(done, failed))
            self._runtime.write(partition, event)

    @staticmethod
    def _logged(partition: int) -> ReplyTo[None]:
        """Logs the error of an event that no client has requested."""

        def log(error: KafkaError) -> None:
            _LOG.error(
                "Cannot write tombstones to %s-%d", GROUP_METADATA_TOPIC, partition, exc_info=error
            )

        return ReplyTo(lambda _: None, log)


def _code_of_heartbeat(error: KafkaError) -> int:
    """A heartbeat succeeds while its group is being loaded, so that members do not rejoin."""
    is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.NONE if is_loading else error_of_append(error)


def _member_ids(rng: Rng) -> MemberIds:
    return MemberIds(
        of_classic=lambda: str(UUID(hex=rng.unique_id())),
        of_consumer=lambda: uuid_text(fresh_uuid(rng)),
    )


def heartbeat_error(
    request: HeartbeatRequest, settings: ConsumerGroupSettings, *, needs_member_id: bool
) -> HeartbeatAnswer | None:
    """The answer to a ConsumerGroupHeartbeat whose fields contradict each other.

    Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
    """
    epoch = request.member_epoch
    needs_member_id |= epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    why = None
    for is_checked, value, name in (
        (needs_member_id, request.member_id, "MemberId"),
        (True, request.group_id, "GroupId"),
        (True, request.instance_id, "InstanceId"),
        (True, request.rack_id, "RackId"),
    ):
        if why is None and is_checked and value is not None and not value.strip():
            why = f"{name} can't be empty."
    if why is None and epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            why = "RebalanceTimeoutMs must be provided in first request."
        elif request.owned != ():
            why = "TopicPartitions must be empty when (re-)joining."
        elif request.topics is None and request.regex is None:
            why = (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif why is None and epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        why = "InstanceId can't be null."
    elif why is None and epoch < LEAVE_STATIC_EPOCH:
        why = "MemberEpoch is invalid."
    if why is not None:
        return HeartbeatAnswer(ErrorCode.INVALID_REQUEST, why)
    assignors = settings.assignors
    if request.assignor is not None and request.assignor not in assignors:
        return HeartbeatAnswer(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
    return None


def _listed(shard: GroupShard, at: int) -> Iterator[ListedGroup]:
    groups, others = dict(shard.groups.items(at)), dict(shard.other_groups.items(at))
    for group_id in shard.ids.listed(at):
        group = groups.get(group_id)
        if group is None:
            # Nobody can be a member of the others here: their sessions have run out.
            kind = others[group_id]
            yield ListedGroup(group_id, kind, GroupState.EMPTY.value, kind)
        elif isinstance(group, ConsumerGroup):
            yield ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, CONSUMER)
        else:
            yield ListedGroup(group_id, group.protocol_type or "", group.state.value, CLASSIC)
