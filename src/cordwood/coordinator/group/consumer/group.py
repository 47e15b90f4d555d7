"""A consumer group: its members, epochs, target assignment, and what follows from them.

A group in the coordinator's state changes by records alone. Within one change of the state it is
copied once (`GroupShard`), so that the change can be reverted.

Source: org.apache.kafka.coordinator.group.modern.ModernGroup, consumer.ConsumerGroup,
SubscriptionCount, TargetAssignmentMetadata.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from uuid import UUID

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.consumer.member import ConsumerMember, Epochs, MemberState
from cordwood.coordinator.group.consumer.slot_map import SlotMap, slot_of
from cordwood.coordinator.group.consumer.subscriptions import ResolvedRegex, Subscriptions
from cordwood.coordinator.group.consumer.topics import Topics, group_hash
from cordwood.coordinator.group.group import BY_COMMIT, Group
from cordwood.coordinator.group.offset_requests import CommitRequest, FetchingMember, is_too_long
from cordwood.format.java_map import JavaHashMap, capacity_for
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError

FIRST_EPOCH = 1
NO_EPOCH = -1
_ASSIGNOR_SLOTS = 2

Target = Mapping[UUID, Collection[int]]
"""The partitions that a member is to have, by topic id."""


class ConsumerGroupState(enum.Enum):
    """The state of a group, as tools show it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(Group):
    """A group whose target assignment the coordinator computes."""

    kind = "consumer"
    expiry_base = BY_COMMIT

    def __init__(self, group_id: str, change_id: int = 0) -> None:
        """Creates an empty group.

        Args:
            group_id: its name.
            change_id: the change of the state in which it was made, and may be changed.
        """
        self.group_id = group_id
        self.protocol_type = "consumer"
        self.change_id = change_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.has_partition_metadata = False
        self.subscriptions = Subscriptions()
        self.resolved: dict[str, ResolvedRegex] = {}
        self.targets: dict[str, Target] = {}
        self.target_owners: dict[UUID, dict[int, str]] = {}
        self.classic_count = 0
        # Not in the log; a change that is reverted may leave them as they are.
        self.refresh_deadline_ms = 0
        self.refresh_epoch = 0
        self._members: SlotMap[ConsumerMember] = SlotMap()
        self._static: dict[str, str] = {}
        self._epochs: dict[UUID, dict[int, int]] = {}
        self._votes: Counter[str] = Counter()

    def copy(self, change_id: int) -> ConsumerGroup:
        """A group that can be changed without changing this one."""
        other = copy(self)
        other.change_id = change_id
        other.subscriptions = self.subscriptions.copy()
        other.resolved = self.resolved.copy()
        other.targets = self.targets.copy()
        other.target_owners = {topic: owners.copy() for topic, owners in self.target_owners.items()}
        other._members = self._members.copy()
        other._static = self._static.copy()
        other._votes = self._votes.copy()
        other._epochs = {topic: epochs.copy() for topic, epochs in self._epochs.items()}
        return other

    def check_invariants(self) -> None:
        """Checks that what is derived from the members and the targets agrees with them."""
        members = list(self.members())
        counted = Subscriptions()
        epochs: dict[UUID, dict[int, int]] = {}
        for member in members:
            counted.count_member(member, 1)
            assert member.member_epoch <= self.epoch, (member.member_id, self.epoch)
            for assignment in (member.assigned, member.revoking):
                for topic_id, partitions in assignment.items():
                    owned = epochs.setdefault(topic_id, {})
                    twice = owned.keys() & partitions.keys()
                    assert not twice, (self.group_id, topic_id, twice)
                    owned.update(dict.fromkeys(partitions, member.member_epoch))
        for resolved in self.resolved.values():
            counted.count_resolved(resolved.topics, 1)
        assert {topic: each for topic, each in epochs.items() if each} == self._epochs, epochs
        assert counted.topics == self.subscriptions.topics, self.subscriptions.topics
        assert counted.regexes == self.subscriptions.regexes, self.subscriptions.regexes
        static = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert static == self._static, (self.group_id, static, self._static)
        votes = Counter(m.assignor for m in members if m.assignor is not None)
        assert votes == self._votes, (self.group_id, votes, self._votes)
        classic_count = sum(member.uses_classic_protocol for member in members)
        assert classic_count == self.classic_count, (classic_count, self.classic_count)
        assert self.assignment_epoch <= self.epoch, (self.assignment_epoch, self.epoch)
        assert self.targets.keys() <= set(self.member_ids()), self.targets.keys()
        for topic_id, owners in self.target_owners.items():
            for partition, member_id in owners.items():
                of_member = self.target(member_id).get(topic_id, ())
                assert partition in of_member, (topic_id, partition, member_id)

    # ---- queries

    @property
    def state(self) -> ConsumerGroupState:
        """Its state, which follows from its members and epochs.

        Source: ConsumerGroup.maybeUpdateGroupState.
        """
        if not self._members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        """The name of its state."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self._members

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def members(self) -> Iterator[ConsumerMember]:
        """The members; the group may change during the iteration."""
        return iter([self._members[member_id] for member_id in self._members])

    def member_ids(self) -> list[str]:
        """The ids of its members."""
        return list(self._members)

    def member(self, member_id: str) -> ConsumerMember | None:
        """The member of an id."""
        return self._members.get(member_id)

    def static_member_id(self, instance_id: str | None) -> str | None:
        """The id that a static member has at present."""
        return None if instance_id is None else self._static.get(instance_id)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member of an instance id."""
        member_id = self.static_member_id(instance_id)
        return None if member_id is None else self._members.get(member_id)

    def target(self, member_id: str | None) -> Target:
        """The target assignment of a member; empty for one that has none."""
        return {} if member_id is None else self.targets.get(member_id, {})

    def partition_epoch(self, topic_id: UUID, partition: int) -> int:
        """The epoch of the member that has a partition, or has still to give it up; else -1."""
        return self._epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic, by name or by a regular expression."""
        return topic in self.subscriptions.topics

    def subscribers_of(self, regex: str) -> int:
        """The number of members that subscribe to a regular expression."""
        return self.subscriptions.regexes.get(regex, 0)

    @property
    def resolved_at_ms(self) -> int | None:
        """The time (ms) at which its regular expressions were last resolved; None if never."""
        return next((each.timestamp_ms for each in self.resolved.values()), None)

    @property
    def resolved_version(self) -> int:
        """The version of the metadata in which they were resolved; 0 if they never were."""
        return next((each.version for each in self.resolved.values()), 0)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member subscribes to; none for an unresolved expression.

        Source: CurrentAssignmentBuilder.subscribedTopicIds.
        """
        resolved = self.resolved.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    @property
    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for; None if none asks for any.

        Source: ConsumerGroup.preferredServerAssignor.
        """
        votes = self._votes_in_order()
        return max(votes, key=votes.__getitem__, default=None)

    def preferred_assignor_after(self, gone: ConsumerMember, come: ConsumerMember) -> str | None:
        """The assignor that most members ask for, when one member takes the place of another.

        Of those with as many votes it is the first in the order of Java's map.

        Source: ConsumerGroup.computePreferredServerAssignor.
        """
        before = self._votes_in_order()
        votes: JavaHashMap[str, int] = JavaHashMap(capacity_for(len(before)) if before else 16)
        for name, count in before.items():
            votes.put(name, count)
        if gone.assignor is not None and gone.assignor in votes:
            votes.put(gone.assignor, votes[gone.assignor] - 1)
            if not votes[gone.assignor]:
                votes.remove(gone.assignor)
        if come.assignor is not None:
            known = votes.compute_if_absent(come.assignor, int)
            votes.put(come.assignor, known + 1)
        return max(votes, key=votes.__getitem__, default=None)

    def _votes_in_order(self) -> dict[str, int]:
        """The number of members that ask for each assignor, in the order of Kafka's table."""
        return {name: self._votes[name] for name in sorted(self._votes, key=_assignor_slot)}

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Whether another member has still to give up a partition that a member is to have.

        Source: ConsumerGroup.waitingOnUnreleasedPartition.
        """
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {})
            and self.partition_epoch(topic_id, partition) != NO_EPOCH
            for topic_id, partitions in self.target(member.member_id).items()
            for partition in partitions
        )

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member of the classic protocol with these protocols may join.

        Source: ConsumerGroup.supportsClassicProtocols.
        """
        if protocol_type != "consumer":
            return False
        if self.is_empty:
            return bool(names)
        return any(
            sum(any(each.name == name for each in m.protocols) for m in self.members())
            == self.classic_count
            for name in names
        )

    def hash_of(self, subscriptions: Subscriptions, topics: Topics) -> int:
        """The hash of the topics that are subscribed to, and exist.

        Source: ModernGroup.computeMetadataHash.
        """
        found = (topics.by_name(name) for name in subscriptions.topics)
        return group_hash([topic for topic in found if topic is not None])

    # ---- offsets

    def require_commit(self, request: CommitRequest, *, metadata_bytes_max: int) -> None:
        """Checks that a member commits offsets of its own epoch, or of partitions that it has.

        Raises:
            CoordinatorRequestError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION,
                UNSUPPORTED_VERSION.

        Source: ConsumerGroup.validateOffsetCommit, createAssignmentEpochValidator.
        """
        epoch = request.generation_id
        if epoch < 0 and self.is_empty:
            return
        in_transaction = request.producer is not None
        is_nameless = not request.member_id and request.group_instance_id is None
        if in_transaction and epoch == -1 and is_nameless:
            return
        member = self.member(request.member_id)
        if member is None:
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        is_classic = member.uses_classic_protocol
        if not is_classic and not in_transaction and not request.knows_member_epochs:
            raise CoordinatorRequestError(ErrorCode.UNSUPPORTED_VERSION)
        if epoch == member.member_epoch:
            return
        is_generation = is_classic or not request.knows_member_epochs
        stale = ErrorCode.ILLEGAL_GENERATION if is_generation else ErrorCode.STALE_MEMBER_EPOCH
        if epoch > member.member_epoch:
            raise CoordinatorRequestError(stale)
        for topic in request.topics:
            for partition in topic.partitions:
                if is_too_long(partition.metadata, metadata_bytes_max):
                    continue
                since = member.assignment_epoch(topic.topic_id, partition.partition)
                if since is None or epoch < since:
                    raise CoordinatorRequestError(stale)

    def require_fetch(self, asking: FetchingMember) -> None:
        """Checks that a member fetches offsets in its own epoch.

        Raises:
            CoordinatorRequestError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.

        Source: ConsumerGroup.validateOffsetFetch.
        """
        if asking.member_id is None and asking.epoch < 0:
            return
        member = self.member(asking.member_id or "")
        if member is None:
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        if asking.epoch != member.member_epoch:
            raise CoordinatorRequestError(
                ErrorCode.ILLEGAL_GENERATION
                if member.uses_classic_protocol
                else ErrorCode.STALE_MEMBER_EPOCH
            )

    # ---- changes, by records

    def put_member(self, member: ConsumerMember) -> None:
        """Adds or replaces a member.

        Raises:
            CorruptError: it has a partition that another one has at the same epoch, or a later one.

        Source: ConsumerGroup.updateMember.
        """
        before = self._members.get(member.member_id)
        self._count(before, -1)
        self._members.put(member.member_id, member)
        self._count(member, 1)
        for assignment in (member.assigned, member.revoking):
            self._add_epochs(assignment, member.member_epoch)
        if before is not None and before.instance_id is not None:
            self._static.pop(before.instance_id, None)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Removes a member; does nothing if there is none."""
        member = self._members.remove(member_id)
        self._count(member, -1)
        if member is not None and member.instance_id is not None:
            self._static.pop(member.instance_id, None)

    def _count(self, member: ConsumerMember | None, by: int) -> None:
        if member is None:
            return
        self.subscriptions.count_member(member, by)
        self.classic_count += by * member.uses_classic_protocol
        if member.assignor is not None:
            self._votes[member.assignor] += by
            if not self._votes[member.assignor]:
                del self._votes[member.assignor]
        if by < 0:
            for assignment in (member.assigned, member.revoking):
                self._remove_epochs(assignment, member.member_epoch)

    def _add_epochs(self, assignment: Epochs, epoch: int) -> None:
        for topic_id, partitions in assignment.items():
            epochs = self._epochs.setdefault(topic_id, {})
            for partition in partitions:
                before = epochs.get(partition)
                if before is not None and before >= epoch:
                    raise CorruptError(
                        f"group {self.group_id}: {topic_id}-{partition} is assigned at epoch "
                        f"{epoch}, but still owned at epoch {before}"
                    )
                epochs[partition] = epoch

    def _remove_epochs(self, assignment: Epochs, epoch: int) -> None:
        for topic_id, partitions in assignment.items():
            epochs = self._epochs.get(topic_id, {})
            for partition in partitions:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                self._epochs.pop(topic_id, None)

    def put_target(self, member_id: str, target: Target) -> None:
        """Sets the target assignment of a member.

        Source: ModernGroup.updateInvertedTargetAssignment.
        """
        self._disown(member_id, target)
        for topic_id, partitions in target.items():
            before = self.target(member_id).get(topic_id, ())
            owners = self.target_owners.setdefault(topic_id, {})
            for partition in partitions:
                if partition not in before:
                    owners[partition] = member_id
        self.targets[member_id] = target

    def remove_target(self, member_id: str) -> None:
        """Removes the target assignment of a member."""
        self._disown(member_id, {})
        self.targets.pop(member_id, None)

    def _disown(self, member_id: str, target: Target) -> None:
        """Partitions that the member is not to have any more; another may have got them before."""
        for topic_id, partitions in self.target(member_id).items():
            kept = target.get(topic_id, ())
            owners = self.target_owners.get(topic_id, {})
            for partition in partitions:
                if partition not in kept and owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self.target_owners.pop(topic_id, None)

    def put_resolved(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Sets the topics of a regular expression; None removes them."""
        before = self.resolved.pop(regex, None)
        if before is not None:
            self.subscriptions.count_resolved(before.topics, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            self.subscriptions.count_resolved(resolved.topics, 1)

    # ---- not in the log

    def refresh_at(self, deadline_ms: int, epoch: int) -> None:
        """Has the topics be looked at again at a time, unless the epoch is lower by then."""
        self.refresh_deadline_ms = deadline_ms
        self.refresh_epoch = epoch

    def request_refresh(self) -> None:
        """Has the topics be looked at again at the next heartbeat: one of them has changed."""
        self.refresh_at(0, 0)

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Requests a refresh if a member subscribes to one of the topics.

        Source: GroupMetadataManager.onMetadataUpdate.
        """
        if any(map(self.is_subscribed_to, names)):
            self.request_refresh()

    def must_refresh(self, now_ms: int) -> bool:
        """Whether it is time to look at the topics again.

        Source: ModernGroup.hasMetadataExpired.
        """
        return now_ms >= self.refresh_deadline_ms or self.epoch < self.refresh_epoch


def _assignor_slot(name: str) -> int:
    return slot_of(name, _ASSIGNOR_SLOTS)
