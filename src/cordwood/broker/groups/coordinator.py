"""The coordinator of all groups whose partition of `__consumer_offsets` is led here.

It belongs to the event loop's thread. A partition's groups and offsets are read from its log when
it is first needed, a large one in a thread of its own; clients are told to come back meanwhile.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorService, GroupCoordinatorShard,
org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol
from uuid import UUID

from cordwood.broker.groups import offset_requests, records
from cordwood.broker.groups.errors import GroupError, GroupRequestError, error_of_append
from cordwood.broker.groups.group import ClassicGroup, GroupState
from cordwood.broker.groups.member import (
    UNKNOWN_MEMBER_ID,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    LeaveAnswer,
    LeavingMember,
    SyncAnswer,
    SyncReply,
    SyncRequest,
)
from cordwood.broker.groups.offset_requests import (
    CommitRequest,
    FetchedTopic,
    FetchTopic,
)
from cordwood.broker.groups.offsets import CommittedOffset, OffsetKey
from cordwood.broker.groups.rebalance import Rebalancer
from cordwood.broker.groups.records import KeyValue
from cordwood.broker.groups.settings import GroupSettings
from cordwood.broker.groups.shard import GroupShard
from cordwood.broker.groups.shard_loads import ShardLoads
from cordwood.broker.groups.timers import Cancellable, Timers
from cordwood.format.java_map import absolute_hash
from cordwood.format.message_schema import uuid_text
from cordwood.metadata.image import MetadataImage
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.chance import Chance
from cordwood.model.clock import Clock
from cordwood.model.errors import EncodingError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog

CLASSIC = "classic"
_TOMBSTONES_BYTES_MAX = 256 * 1024

MakeRecord = Callable[[], KeyValue]
"""Makes a record; raises EncodingError for a value that does not fit it."""

FindForgotten = Callable[[], tuple[Sequence[OffsetKey], Sequence[str]]]
"""The offsets and the groups to be forgotten now; raises KafkaError where none may be."""

_LOG = logging.getLogger(__name__)


class CoordinatorBroker(Protocol):
    """What a coordinator needs of its broker."""

    @property
    def clock(self) -> Clock:
        """Tells the time of commits, and when offsets expire."""

    @property
    def image(self) -> MetadataImage:
        """What the cluster knows of itself now."""

    def log(self, topic: str, index: int, /) -> PartitionLog:
        """A partition's log; raises KafkaError if it is not led here."""

    def append(
        self, topic: str, index: int, records: bytes, /, *, origin: AppendOrigin
    ) -> AppendResult:
        """Appends and commits a batch; raises KafkaError."""

    def call_soon(self, run: Callable[[], object], /) -> object:
        """From any thread: has `run` called on the thread that owns the broker's state."""

    def call_later_ms(self, delay_ms: int, run: Callable[[], object], /) -> Cancellable:
        """Has `run` called after so much real time."""

    def after_input(self, run: Callable[[], None], /) -> None:
        """Has `run` called when the requests that have arrived by now have been read."""

    def schedule(self, name: str, period_ms: int, run: Callable[[], object], /) -> Cancellable:
        """Has `run` called in every period of the movable clock."""


class ListedGroup(NamedTuple):
    """A group as ListGroups tells of it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupCounts(NamedTuple):
    """Classic groups by their state, and committed offsets of all groups."""

    groups: Mapping[GroupState, int]
    offsets: int


class GroupCoordinator:
    """Answers what the group APIs ask."""

    def __init__(self, broker: CoordinatorBroker, settings: GroupSettings, chance: Chance) -> None:
        """Nothing is read yet.

        Args:
            broker: whose groups these are.
            settings: bounds, delays, retention.
            chance: makes the ids of members.
        """
        self.settings = settings
        self._broker = broker
        self._loads = ShardLoads(broker, GROUP_METADATA_TOPIC, self._loaded)
        self._rebalancer = Rebalancer(
            settings,
            Timers(broker.call_later_ms, broker.after_input),
            self._store,
            lambda: str(UUID(hex=chance.unique_id())),
        )
        self._expiry: Cancellable | None = None

    # ---- partitions

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group's records are in.

        Source: GroupCoordinatorService.partitionFor.
        """
        topic = self._broker.image.topics.get(GROUP_METADATA_TOPIC)
        count = self.settings.topic_partitions if topic is None else len(topic.partitions)
        return absolute_hash(group_id) % count

    def start(self) -> None:
        """Begins to read all groups, and to look regularly for offsets that expire."""
        self._expiry = self._broker.schedule(
            "delete-expired-group-metadata",
            self.settings.retention_check_interval_ms,
            self.expire_offsets,
        )
        self._loads.load_all(lambda: None)

    def close(self) -> None:
        """Sends away who still waits; nothing happens to groups any more."""
        if self._expiry is not None:
            self._expiry.cancel()
        for shard in self._loads.unload():
            for group in shard.groups.values():
                self._rebalancer.end(group)
        self._rebalancer.close()

    def when_loaded(self, then: Callable[[], None]) -> None:
        """Calls `then` once all groups are known, at once if they are."""
        self._loads.load_all(then)

    def end_transaction(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """A marker was written: offsets that a transaction commits count now, or are dropped.

        Source: GroupCoordinatorService.completeTransaction.
        """
        self._loads.shard(partition).offsets.end_transaction(producer_id, commit=commit)

    def require_loaded(self, partition: int) -> None:
        """Checks that a partition's groups are known, and begins to load them if not.

        Raises:
            GroupRequestError: COORDINATOR_LOAD_IN_PROGRESS, or NOT_COORDINATOR where they cannot be
                read.
        """
        self._loads.shard(partition)

    def on_resigned(self, partition: int) -> None:
        """This broker leads a partition no more: its groups are no longer this coordinator's.

        Source: GroupCoordinatorService.onResignation.
        """
        shard = self._loads.resign(partition)
        if shard is not None:
            for group in shard.groups.values():
                self._rebalancer.end(group)

    def _loaded(self, shard: GroupShard) -> None:
        for group in list(shard.groups.values()):
            self._rebalancer.resume(group)

    def _shard(self, group_id: str) -> GroupShard:
        return self._loads.shard(self.partition_for(group_id))

    # ---- members

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """Takes a member into its group; answers once the group's next generation begins."""
        settings = self.settings
        error = GroupError.NONE
        if not request.group_id:
            error = GroupError.INVALID_GROUP_ID
        elif not (
            settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            error = GroupError.INVALID_SESSION_TIMEOUT
        if error:
            reply(JoinAnswer(error_code=error, member_id=request.member_id))
            return
        try:
            shard = self._shard(request.group_id)
        except KafkaError as refused:
            reply(JoinAnswer(error_code=refused.code))
            return
        self._join(shard, request, reply)

    def _join(self, shard: GroupShard, request: JoinRequest, reply: JoinReply) -> None:
        group_id = request.group_id
        if group_id in shard.other_groups:
            reply(JoinAnswer(error_code=GroupError.INCONSISTENT_GROUP_PROTOCOL))
            return
        is_new = group_id not in shard.groups
        group = shard.group(group_id, create=request.member_id == UNKNOWN_MEMBER_ID)
        if group is None:
            reply(JoinAnswer(error_code=GroupError.UNKNOWN_MEMBER_ID, member_id=request.member_id))
            return
        if is_new:
            # The next load of this partition must find the group.
            error = self._write_or_error(shard, [partial(records.new_group_metadata, group)])
            if error:
                shard.groups.pop(group_id)
                reply(JoinAnswer(error_code=error))
                return
        self._rebalancer.join(group, request, reply)

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """Tells a member what it is assigned, once the leader has said so."""
        if not request.group_id:
            reply(SyncAnswer(error_code=GroupError.INVALID_GROUP_ID))
            return
        try:
            group = self._shard(request.group_id).group(request.group_id)
        except KafkaError as refused:
            reply(SyncAnswer(error_code=refused.code))
            return
        if group is None:
            reply(SyncAnswer(error_code=GroupError.UNKNOWN_MEMBER_ID))
        else:
            self._rebalancer.sync(group, request, reply)

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> int:
        """Keeps a member's session alive; an error code."""
        if not group_id:
            return GroupError.INVALID_GROUP_ID
        try:
            group = self._shard(group_id).group(group_id)
        except KafkaError as refused:
            # A member need not rejoin because its group is being read.
            is_loading = refused.code == GroupError.COORDINATOR_LOAD_IN_PROGRESS
            return GroupError.NONE if is_loading else refused.code
        if group is None:
            return GroupError.UNKNOWN_MEMBER_ID
        return self._rebalancer.heartbeat(group, member_id, group_instance_id, generation_id)

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[LeaveAnswer]:
        """Takes members out of their group.

        Raises:
            KafkaError: none was taken out; the code says why.
        """
        if not group_id:
            raise GroupRequestError(GroupError.INVALID_GROUP_ID)
        group = self._shard(group_id).group(group_id)
        if group is None:
            return [
                LeaveAnswer(each.member_id, each.group_instance_id, GroupError.UNKNOWN_MEMBER_ID)
                for each in leaving
            ]
        return self._rebalancer.leave(group, leaving)

    # ---- offsets

    def commit(self, request: CommitRequest) -> None:
        """Commits offsets, without those whose metadata is too long.

        Raises:
            KafkaError: none was committed; the code says why.
        """
        offset_requests.group_to_commit_to(self._shard(request.group_id), request)
        offsets = offset_requests.offsets_to_commit(
            request,
            now_ms=self._broker.clock.now_ms(),
            metadata_bytes_max=self.settings.offset_metadata_max_bytes,
        )
        made = self._made(
            in_steps([partial(records.offset_commit, *each) for each in offsets], every=16)
        )
        # The group may have changed during a pause; from here on there is none.
        shard = self._shard(request.group_id)
        group = offset_requests.group_to_commit_to(shard, request)
        if group is not None and group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._rebalancer.keep_alive(group, request.member_id)
        if not offsets:
            return
        first = self._append(shard, made)
        for number, (key, offset) in enumerate(offsets):
            shard.offsets.put(key, offset._replace(record_offset=first + number))

    def is_metadata_too_long(self, metadata: str | None) -> bool:
        """Whether a commit with that metadata is refused."""
        return offset_requests.is_too_long(metadata, self.settings.offset_metadata_max_bytes)

    def fetch(
        self, group_id: str, topics: Iterable[FetchTopic] | None, *, require_stable: bool
    ) -> list[FetchedTopic]:
        """What a group has committed, for these partitions or, if None, for all.

        Raises:
            KafkaError: the group cannot be looked at; the code says why.
        """
        shard = self._shard(group_id)
        if topics is None:
            return offset_requests.fetch_all_offsets(shard, group_id, require_stable=require_stable)
        return offset_requests.fetch_offsets(shard, group_id, topics, require_stable=require_stable)

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[int]:
        """Forgets a group's offsets for these topics and partitions; an error code for each.

        Raises:
            KafkaError: none was deleted; the code says why.
        """
        if not group_id:
            raise GroupRequestError(GroupError.INVALID_GROUP_ID)
        shard = self._shard(group_id)
        answers: list[int] = []

        def find() -> tuple[list[OffsetKey], list[str]]:
            group = offset_requests.require_offset_delete(shard, group_id)
            gone = []
            answers.clear()
            for topic, partition in partitions:
                key = OffsetKey(group_id, topic, partition)
                if group is not None and group.is_subscribed_to(topic):
                    answers.append(GroupError.GROUP_SUBSCRIBED_TO_TOPIC)
                    continue
                answers.append(GroupError.NONE)
                if shard.offsets.get(key) is not None or shard.offsets.is_pending(key):
                    gone.append(key)
            return gone, []

        self._forget(shard, find)
        return answers

    # ---- groups

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[ListedGroup]:
        """The groups of all partitions that are loaded, in these states and of these types, or all.

        Raises:
            KafkaError: a partition is still being loaded.
        """
        wanted_states = {state.lower().strip() for state in states}
        wanted_types = {each.lower() for each in types}
        return [
            group
            for shard in self._loads.loaded()
            for group in _listed(shard)
            if not wanted_states or group.state.lower() in wanted_states
            if not wanted_types or group.group_type in wanted_types
        ]

    def counts(self) -> GroupCounts:
        """How many there are now, as far as they are loaded.

        Source: org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics.
        """
        try:
            shards = self._loads.loaded()
        except KafkaError:
            shards = []
        states = Counter(group.state for shard in shards for group in shard.groups.values())
        return GroupCounts(dict(states), sum(len(shard.offsets) for shard in shards))

    def describe(self, group_id: str) -> ClassicGroup | None:
        """A classic group; None if there is none of that name.

        Raises:
            KafkaError: the group cannot be looked at; the code says why.
        """
        return self._shard(group_id).group(group_id)

    def is_of_other_protocol(self, group_id: str) -> bool:
        """Whether the log has a group of that name that is not a classic one."""
        return group_id in self._shard(group_id).other_groups

    def delete_group(self, group_id: str) -> int:
        """Forgets an empty group and all its offsets; an error code."""
        try:
            shard = self._shard(group_id)

            def find() -> tuple[list[OffsetKey], list[str]]:
                offset_requests.require_group_delete(shard, group_id)
                return offset_requests.all_offsets(shard, group_id), [group_id]

            self._forget(shard, find)
        except KafkaError as refused:
            return error_of_append(refused)
        return GroupError.NONE

    # ---- what happens by itself

    def expire_offsets(self) -> None:
        """Forgets offsets that nobody has used for long enough, and groups that have none."""
        self._loads.load_all(lambda: self._expire_each(self._loads.loaded()))

    def _expire_each(self, shards: list[GroupShard]) -> None:
        """Looks at one partition that has groups, and at the others later: clients come between."""
        while shards:
            shard = shards.pop(0)
            if shard.groups and self._loads.has(shard):
                self._expire(shard)
                break
        if shards:
            self._broker.call_soon(partial(self._expire_each, shards))

    def _expire(self, shard: GroupShard) -> None:
        now_ms = self._broker.clock.now_ms()
        keys: list[OffsetKey] = []
        groups: list[str] = []
        for group in list(shard.groups.values()):
            expired, has_none_left = offset_requests.expired_offsets(
                shard, group, now_ms=now_ms, retention_ms=self.settings.offsets_retention_ms
            )
            keys += expired
            if has_none_left and group.state is GroupState.EMPTY:
                groups.append(group.group_id)
        if keys or groups:
            _LOG.info(
                "Generated %d tombstone records while cleaning up group metadata of %s-%d.",
                len(keys) + len(groups),
                GROUP_METADATA_TOPIC,
                shard.partition,
            )
        self._try_to_forget(shard, lambda: (keys, groups))

    def on_topics_deleted(self, names: Iterable[str]) -> None:
        """Forgets the offsets of topics that are gone; one of that name may already be there anew.

        Source: GroupCoordinatorService.onMetadataUpdate, OffsetMetadataManager.onTopicsDeleted.
        """
        gone = set(names)
        if GROUP_METADATA_TOPIC in gone:
            for shard in self._loads.unload():
                for group in shard.groups.values():
                    self._rebalancer.end(group)
            gone.discard(GROUP_METADATA_TOPIC)
        if gone:
            self._loads.load_all(partial(self._forget_topics, gone))

    def _forget_topics(self, names: set[str]) -> None:
        topics = self._broker.image.topics
        anew = {
            name: uuid_text(topic.topic_id.bytes)
            for name in names
            if (topic := topics.get(name)) is not None
        }

        def is_of_the_old(name: str, offset: CommittedOffset) -> bool:
            return offset.topic_id != anew.get(name)

        def find(shard: GroupShard) -> tuple[list[OffsetKey], list[str]]:
            return shard.offsets.of_topics(names, is_of_the_old), []

        for shard in self._loads.loaded():
            self._try_to_forget(shard, partial(find, shard))

    # ---- writing

    def _write(self, shard: GroupShard, written: Iterable[MakeRecord]) -> int:
        """Appends records, without a pause amid a group's change; the offset of the first.

        Raises:
            GroupRequestError: nothing was written; the code is what clients are answered.
        """
        return self._append(shard, self._made(written))

    def _made(self, written: Iterable[MakeRecord]) -> list[KeyValue]:
        """The records, encoded; GroupRequestError if a value does not fit its record."""
        try:
            return [make() for make in written]
        except EncodingError as error:
            _LOG.error("Cannot write to %s: %s", GROUP_METADATA_TOPIC, error)
            raise GroupRequestError(GroupError.UNKNOWN_SERVER_ERROR, str(error)) from error

    def _append(self, shard: GroupShard, made: Sequence[KeyValue]) -> int:
        batch = records.batch_of(
            made, now_ms=self._broker.clock.now_ms(), codec=self.settings.topic_codec
        )
        try:
            result = self._broker.append(
                GROUP_METADATA_TOPIC, shard.partition, batch, origin=AppendOrigin.COORDINATOR
            )
        except KafkaError as error:
            _LOG.warning("Cannot write to %s-%d: %s", GROUP_METADATA_TOPIC, shard.partition, error)
            raise GroupRequestError(error_of_append(error), str(error)) from error
        return result.first_offset

    def _write_or_error(self, shard: GroupShard, written: Iterable[MakeRecord]) -> int:
        try:
            self._write(shard, written)
        except KafkaError as error:
            return error.code
        return GroupError.NONE

    def _store(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> int:
        try:
            shard = self._shard(group.group_id)
        except KafkaError as error:
            return error.code
        return self._write_or_error(shard, [partial(records.group_metadata, group, assignments)])

    def _try_to_forget(self, shard: GroupShard, find: FindForgotten) -> None:
        try:
            self._forget(shard, find)
        except KafkaError:
            _LOG.exception(
                "Cannot write tombstones to %s-%d", GROUP_METADATA_TOPIC, shard.partition
            )

    def _forget(self, shard: GroupShard, find: FindForgotten) -> None:
        """Writes tombstones, offsets before groups, in batches that any log takes.

        They are made with pauses, during which clients may join or commit. So `find` is asked a
        second time after the last pause, and what it gives then is forgotten.
        """
        keys, _ = find()
        made = dict(zip(keys, self._made(in_steps(_tombstones(keys), every=16)), strict=True))
        keys, group_ids = find()
        late = [key for key in keys if key not in made]
        made.update(zip(late, self._made(_tombstones(late)), strict=True))
        pending: list[tuple[KeyValue, Callable[[], None]]] = [
            (made[key], partial(shard.offsets.remove, key)) for key in keys
        ]
        ends = self._made(partial(records.group_tombstone, each) for each in group_ids)
        pending += [
            (record, partial(self._end_group, shard, group_id))
            for record, group_id in zip(ends, group_ids, strict=True)
        ]
        start, size_bytes = 0, 0
        for end, (record, _) in enumerate(pending, start=1):
            size_bytes += len(record.key)
            if size_bytes >= _TOMBSTONES_BYTES_MAX or end == len(pending):
                part = pending[start:end]
                self._append(shard, [each for each, _ in part])
                for _, apply in part:
                    apply()
                start, size_bytes = end, 0

    def _end_group(self, shard: GroupShard, group_id: str) -> None:
        group = shard.groups.pop(group_id, None)
        if group is not None:
            self._rebalancer.end(group)


def _tombstones(keys: Iterable[OffsetKey]) -> list[MakeRecord]:
    return [partial(records.offset_tombstone, key) for key in keys]


def _listed(shard: GroupShard) -> list[ListedGroup]:
    classic = [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
        for group in shard.groups.values()
    ]
    # Nobody can be a member of the others here: their sessions have run out.
    others = [
        ListedGroup(group_id, kind, GroupState.EMPTY.value, kind)
        for group_id, kind in shard.other_groups.items()
    ]
    return classic + others
