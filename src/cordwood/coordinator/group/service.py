"""The coordinator of all groups whose partition of `__consumer_offsets` this broker leads.

It turns requests into events of the runtime, and reads the committed state. It belongs to the
thread that owns the broker's state.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorService.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast
from uuid import UUID

from cordwood.coordinator.effects import Answer, Reply, ReplyTo
from cordwood.coordinator.errors import CoordinatorRequestError, error_of_append, error_of_fetch
from cordwood.coordinator.group import events, offset_requests
from cordwood.coordinator.group.classic import events as classic_events
from cordwood.coordinator.group.classic.member import (
    JoinAnswer,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    MemberIds,
    SyncAnswer,
    SyncRequest,
)
from cordwood.coordinator.group.consumer import events as consumer_events
from cordwood.coordinator.group.consumer.heartbeat_checks import heartbeat_error
from cordwood.coordinator.group.consumer.member import HeartbeatAnswer, HeartbeatRequest
from cordwood.coordinator.group.consumer.topics import CoordinatorMetadata
from cordwood.coordinator.group.counters import Count
from cordwood.coordinator.group.events import DeletedOffsets
from cordwood.coordinator.group.group import Group
from cordwood.coordinator.group.machine import GroupStateMachine
from cordwood.coordinator.group.maintenance import GroupMaintenance
from cordwood.coordinator.group.offset_fetch import found_offsets
from cordwood.coordinator.group.offset_requests import (
    NO_MEMBER,
    CommitRequest,
    FetchedTopic,
    FetchingMember,
    FetchTopic,
)
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.coordinator.group.shard import CoordinatorRecord, GroupShard
from cordwood.coordinator.led_partitions import CoordinatorHost
from cordwood.coordinator.log import CoordinatorLog
from cordwood.coordinator.runtime import CoordinatorRuntime
from cordwood.model.audit import Requester
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.rng import Rng
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import fresh_uuid, uuid_text

G = TypeVar("G", bound=Group)


class ListedGroup(NamedTuple):
    """A group as ListGroups describes it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupCounts(NamedTuple):
    """Groups by kind and state, committed offsets, and what has happened."""

    states: Mapping[str, Mapping[str, int]]
    offsets: int
    since_start: Mapping[Count, int]


class GroupCoordinator:
    """Answers the requests of the group APIs.

    Functions that change groups take a `reply`, which is called when the change is committed.
    Functions that only read return the committed state.
    """

    key_type = 0
    has_transactional_records = True

    def __init__(
        self,
        log: CoordinatorLog[GroupShard, CoordinatorRecord],
        host: CoordinatorHost,
        settings: GroupSettings,
        metadata: CoordinatorMetadata,
        rng: Rng,
    ) -> None:
        """Creates the coordinator; no partition is loaded yet.

        Args:
            log: the log that the groups are written to.
            host: clock, timers, and access to the thread that owns the broker's state.
            settings: limits, delays, retention.
            metadata: the topics of the cluster, and the settings of groups.
            rng: makes the ids of members.
        """
        self._host = host
        machine = GroupStateMachine(settings, metadata, _member_ids(rng))
        self._machine = machine
        self.runtime: CoordinatorRuntime[GroupShard, events.GroupEvent, CoordinatorRecord] = (
            CoordinatorRuntime(
                machine,
                log,
                host,
                write_timeout_ms=settings.commit_timeout_ms,
                topic_partitions=settings.topic_partitions,
            )
        )
        self.maintenance = GroupMaintenance(self.runtime, metadata, host)

    @property
    def settings(self) -> GroupSettings:
        """The settings of the broker that groups obey, at present."""
        return self._machine.settings

    @settings.setter
    def settings(self, settings: GroupSettings) -> None:
        """Replaces the settings; changes that need no restart take effect at the next event."""
        self._machine.settings = settings

    def start(self) -> None:
        """Checks regularly which offsets have expired, and loads what is led here already."""
        self.maintenance.start(self.settings.retention_check_interval_ms)
        self.runtime.partitions.load_all(lambda: None)

    def close(self) -> None:
        """Unloads all groups: requests that wait are refused, timers are cancelled."""
        self.maintenance.close()
        self.runtime.partitions.unload()

    def partition_for(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that a group's records are in."""
        return self.runtime.partitions.partition_for(group_id)

    def _write(self, group_id: str, event: events.GroupEvent) -> None:
        self.runtime.write(self.runtime.partitions.index_for(group_id), event)

    def _read(self, group_id: str) -> tuple[GroupShard, int]:
        return self.runtime.partitions.read(self.runtime.partitions.index_for(group_id))

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
        self._write(request.group_id, classic_events.Join(request=request, reply_to=reply_to))

    def sync(self, request: SyncRequest, reply: Reply[SyncAnswer]) -> None:
        """Answers with a member's assignment, once the leader has sent it."""
        if not request.group_id:
            reply(SyncAnswer(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        reply_to = ReplyTo(reply, lambda error: SyncAnswer(error_code=error_of_append(error)))
        self._write(request.group_id, classic_events.Sync(request=request, reply_to=reply_to))

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
        event = classic_events.Heartbeat(
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
        event = classic_events.Leave(group_id=group_id, members=tuple(members), reply_to=reply_to)
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
        event = consumer_events.ConsumerHeartbeat(request=request, reply_to=reply_to)
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
        return found_offsets(
            shard, group_id, topics, at=at, require_stable=require_stable, member=member
        )

    def await_commit(self, group_id: str, reply: Reply[int]) -> None:
        """Answers when what has been written of a group is committed, or an error code."""
        answer = Answer(ReplyTo(reply, error_of_fetch), ErrorCode.NONE)
        self.runtime.await_commit(self.runtime.partitions.index_for(group_id), answer)

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
            for _, shard, at in self.runtime.partitions.read_all()
            for group in _listed(shard, at)
            if not wanted_states or group.state.lower() in wanted_states
            if not wanted_types or group.group_type in wanted_types
        ]

    def counts(self) -> GroupCounts:
        """The number of groups and offsets in the loaded partitions.

        Source: org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics.
        """
        try:
            shards = self.runtime.partitions.read_all()
        except KafkaError:
            shards = []
        states: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for _, shard, at in shards:
            for group in shard.groups.values(at):
                states[group.kind][group.state_name] += 1
        return GroupCounts(
            states,
            sum(len(shard.offsets) for _, shard, _ in shards),
            {what: self._machine.counts[what] for what in Count},
        )

    def describe(self, group_id: str, kind: type[G]) -> G:
        """A group of a kind, as it is committed.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or the group's partition is not loaded.

        Source: GroupMetadataManager.consumerGroup, classicGroup.
        """
        shard, at = self._read(group_id)
        group = shard.groups.get(group_id, at)
        if group is None or group.kind != kind.kind:
            why = "not found" if group is None else f"is not a {kind.kind} group"
            raise CoordinatorRequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")
        return cast("G", group)

    def delete_group(self, group_id: str, reply: Reply[int], *, by: Requester) -> None:
        """Deletes an empty group and all its offsets, as a client has asked; answers a code."""
        reply_to = ReplyTo(reply, error_of_append)
        event = events.DeleteGroup(group_id=group_id, requester=by, reply_to=reply_to)
        self._write(group_id, event)


def _code_of_heartbeat(error: KafkaError) -> int:
    """A heartbeat succeeds while its group is being loaded, so that members do not rejoin."""
    is_loading = error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.NONE if is_loading else error_of_append(error)


def _member_ids(rng: Rng) -> MemberIds:
    return MemberIds(
        of_classic=lambda: str(UUID(hex=rng.unique_id())),
        of_consumer=lambda: uuid_text(fresh_uuid(rng)),
    )


def _listed(shard: GroupShard, at: int) -> Iterator[ListedGroup]:
    groups = dict(shard.groups.items(at))
    for group_id in shard.ids.listed(at):
        group = groups[group_id]
        yield ListedGroup(group_id, group.protocol_type or "", group.state_name, group.kind)
