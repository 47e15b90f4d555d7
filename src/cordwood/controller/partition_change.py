"""The record of a partition's change: its leader, ISR, replicas and directories.

Source: org.apache.kafka.controller.PartitionChangeBuilder, PartitionReassignmentReplicas,
PartitionReassignmentRevert; KIP-455, KIP-966.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from cordwood.format.java_map import JavaHashSet
from cordwood.metadata.image import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    PartitionImage,
)
from cordwood.metadata.records import ApiRecord, has_directories, partition_version

#: From this level of metadata.version on, a smaller ISR needs no new leader epoch (KAFKA-15021).
_NO_BUMP_ON_SHRINK = 14


def check_partition(partition: PartitionImage) -> None:
    """Checks what holds of each partition in the metadata, whatever has changed it."""
    replicas = set(partition.replicas)
    assert len(replicas) == len(partition.replicas), partition
    assert len(set(partition.isr)) == len(partition.isr), partition
    assert replicas.issuperset(partition.isr), partition
    assert partition.leader == NO_LEADER or partition.leader in partition.isr, partition
    assert not set(partition.isr) & set(partition.elr), partition
    assert replicas.issuperset(partition.adding_replicas), partition
    assert replicas.issuperset(partition.removing_replicas), partition
    assert len(partition.directories) in {0, len(partition.replicas)}, partition
    assert partition.leader_epoch >= 0, partition
    assert partition.partition_epoch >= 0, partition


class Election(enum.Enum):
    """Kind of leader election."""

    ONLINE = enum.auto()
    """Any that is eligible; the one there is stays."""
    PREFERRED = enum.auto()
    """The first replica."""
    UNCLEAN = enum.auto()
    """Any live replica, if no eligible one is available."""


@dataclass(frozen=True, kw_only=True)
class ChangeContext:
    """The part of an operation that is the same for all its partitions.

    `may_lead` returns whether a broker is active, `has_online_directory` whether a directory of a
    broker is online. `directory_of` returns the directory of a new replica.
    """

    may_lead: Callable[[int], bool]
    directory_of: Callable[[int], uuid.UUID]
    has_online_directory: Callable[[int, uuid.UUID | None], bool]
    metadata_version: int
    has_elr: bool


@dataclass(kw_only=True)
class PartitionChange:
    """A change of one partition: set the wanted fields, then call `record`."""

    topic_id: uuid.UUID
    number: int
    old: PartitionImage
    context: ChangeContext
    min_isr: int = 1
    election: Election = Election.ONLINE
    unclean_shutdown: Collection[int] = ()
    isr: list[int] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)
    adding: list[int] = field(default_factory=list)
    recovery_state: int = RECOVERED
    directories: dict[int, uuid.UUID] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.isr = list(self.old.isr)
        self.replicas = list(self.old.replicas)
        self.removing = list(self.old.removing_replicas)
        self.adding = list(self.old.adding_replicas)
        self.recovery_state = self.old.recovery_state
        known = self.old.directories or [MIGRATING_DIRECTORY] * len(self.old.replicas)
        self.directories = dict(zip(self.old.replicas, known, strict=True))
        self._elr = list(self.old.elr)

    def record(self) -> ApiRecord | None:
        """The record that makes the change; None where nothing changes."""
        old = self.old
        fields: dict[str, Any] = {}
        self._complete_reassignment()
        self._find_eligible()
        self._elect(fields)
        if "leader" not in fields and not set(old.replicas) <= set(self.replicas):
            fields["leader"] = old.leader
        self._put_eligible(fields)
        if "isr" not in fields and self.isr != list(old.isr) and (self.isr or self._keeps_elr):
            fields["isr"] = self.isr
        self._bump_epoch_of_old_versions(fields)
        self._put_last_known_leader(fields)
        self._put_assignment(fields)
        if self.recovery_state != old.recovery_state:
            fields["leaderRecoveryState"] = self.recovery_state
        if not fields:
            return None
        fields.update(partitionId=self.number, topicId=self.topic_id)
        version = partition_version(self.context.metadata_version)
        return ApiRecord("PartitionChangeRecord", version, fields)

    @property
    def _keeps_elr(self) -> bool:
        return self.context.has_elr

    def _complete_reassignment(self) -> None:
        """Source: PartitionReassignmentReplicas.maybeCompleteReassignment."""
        if not (self.removing or self.adding):
            return
        isr = [each for each in self.isr if each not in self.removing]
        replicas = [each for each in self.replicas if each not in self.removing]
        if self.removing and not (isr and replicas):
            return
        if not set(self.adding) <= set(isr):
            return
        # With fewer replicas than before, the ISR would be smaller than need be.
        is_reduced = len(self.adding) < len(self.removing)
        if is_reduced and not set(replicas) <= set(isr):
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _find_eligible(self) -> None:
        if not self._keeps_elr:
            return
        if len(self.isr) >= self.min_isr:
            self._elr = []
            return
        candidates = JavaHashSet.of(self._elr, len(self._elr))
        for each in self.old.isr:
            candidates.add(each)
        self._elr = [
            each
            for each in candidates
            if each not in self.isr and each not in self.unclean_shutdown
        ]

    def _elect(self, fields: dict[str, Any]) -> None:
        leader, is_unclean = self._new_leader()
        if leader == self.old.leader:
            return
        if leader in self._elr:
            self.isr = [leader]
            self._elr = [each for each in self._elr if each != leader]
        fields["leader"] = leader
        if is_unclean:
            fields["isr"] = [leader]
            if self.old.recovery_state != RECOVERING:
                fields["leaderRecoveryState"] = RECOVERING

    def _new_leader(self) -> tuple[int, bool]:
        """The leader to be, and whether records may be lost by it."""
        wanted = [self.old.leader, *self.replicas]
        if self.election is Election.PREFERRED:
            wanted = [self.replicas[0], *wanted]
        for each in wanted:
            if self._is_eligible(each):
                return each, False
        if self._may_elect_last_known():
            return self.old.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for each in self.replicas:
                if self._may_lead(each):
                    return each, True
        return NO_LEADER, False

    def _is_eligible(self, replica: int) -> bool:
        eligible = self.isr or self._elr
        return replica in eligible and self._may_lead(replica)

    def _may_lead(self, replica: int) -> bool:
        """Whether a replica is on a broker that is active, in a directory that is online.

        Differs: Kafka looks at the directories before the change alone. A replica that was in a
        lost directory, such as on a full disk, and is back would lead only after the next start of
        a broker.

        Source: org.apache.kafka.controller.LeaderAcceptor.
        """
        directories = dict(zip(self.old.replicas, self.old.directories, strict=False))
        return self.context.may_lead(replica) and any(
            self.context.has_online_directory(replica, each.get(replica))
            for each in (directories, self.directories)
        )

    def _may_elect_last_known(self) -> bool:
        return (
            self._keeps_elr
            and not self._elr
            and not self.isr
            and len(self.old.last_known_elr) == 1
            and self._may_lead(self.old.last_known_elr[0])
        )

    def _put_eligible(self, fields: dict[str, Any]) -> None:
        if "isr" in fields or not self._keeps_elr:
            self._elr = []
        if self._elr != list(self.old.elr):
            fields["eligibleLeaderReplicas"] = self._elr

    def _bump_epoch_of_old_versions(self, fields: dict[str, Any]) -> None:
        if (
            self.context.metadata_version < _NO_BUMP_ON_SHRINK
            and "leader" not in fields
            and "isr" in fields
            and not set(self.old.isr) <= set(fields["isr"])
        ):
            fields["leader"] = self.old.leader

    def _put_last_known_leader(self, fields: dict[str, Any]) -> None:
        if not self._keeps_elr:
            return
        leader = fields.get("leader")
        known = self.old.last_known_elr
        if leader == NO_LEADER and not known:
            # Only when it loses its leader: later there is none to remember.
            fields["lastKnownElr"] = [self.old.leader]
        elif leader is not None and leader != NO_LEADER and known:
            fields["lastKnownElr"] = []

    def _put_assignment(self, fields: dict[str, Any]) -> None:
        old = self.old
        if has_directories(self.context.metadata_version):
            directories = [
                self.directories.get(each) or self.context.directory_of(each)
                for each in self.replicas
            ]
            if directories != (list(old.directories) or [MIGRATING_DIRECTORY] * len(old.replicas)):
                fields["directories"] = directories
        if self.replicas != list(old.replicas):
            fields["replicas"] = self.replicas
        if self.removing != list(old.removing_replicas):
            fields["removingReplicas"] = self.removing
        if self.adding != list(old.adding_replicas):
            fields["addingReplicas"] = self.adding


def reassigned(
    old: PartitionImage, target: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """(Replicas, removing, adding) while a partition moves to the replicas of `target`."""
    removing = sorted(set(old.replicas) - set(target))
    adding = sorted(set(target) - set(old.replicas))
    return [*target, *removing], removing, adding
