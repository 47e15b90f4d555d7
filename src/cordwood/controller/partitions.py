"""Elections of leaders, changes of ISRs, reassignments, and directories of replicas.

Source: org.apache.kafka.controller.ReplicationControlManager.electLeaders, alterPartition,
alterPartitionReassignments, handleAssignReplicasToDirs; KIP-183, KIP-455, KIP-460, KIP-497,
KIP-858.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from cordwood.controller.cluster_view import RECORDS_MAX, ClusterView
from cordwood.controller.partition_change import Election, PartitionChange, reassigned
from cordwood.controller.record_values import RECOVERY_STATES
from cordwood.controller.registration import leaving
from cordwood.metadata.controller_requests import (
    DirectoryAssignment,
    ElectionResult,
    IsrChange,
    Reassignment,
)
from cordwood.metadata.image import RECOVERING, PartitionImage, TopicImage
from cordwood.metadata.records import ApiRecord, Records, has_directories
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    KafkaError,
    NoReassignmentInProgressError,
    PolicyViolationError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    UnsupportedRequestError,
)
from cordwood.model.pauses import in_steps

PREFERRED, UNCLEAN = 0, 1


def elect_leaders(
    view: ClusterView, wanted: Iterable[tuple[str, int]] | None, election_type: int
) -> tuple[Records, list[ElectionResult]]:
    """The records of elections, and the result of each.

    Raises:
        InvalidRequestError: there is no such type of election.
    """
    if election_type not in {PREFERRED, UNCLEAN}:
        raise InvalidRequestError(f"Unknown election type {election_type}")
    records: Records = []
    results = []
    is_all = wanted is None
    if wanted is None:
        wanted = [
            (topic.name, number)
            for topic in view.image.topics.values()
            for number in topic.partitions
        ]
    for topic_name, number in in_steps(wanted, every=16):
        error: KafkaError | None = None
        try:
            records.append(_elect(view, topic_name, number, election_type))
        except ElectionNotNeededError as not_needed:
            if is_all:
                continue
            error = not_needed
        except KafkaError as failed:
            error = failed
        results.append(ElectionResult(topic_name, number, error))
    return records, results


def _elect(view: ClusterView, topic_name: str, number: int, election_type: int) -> ApiRecord:
    topic = view.image.topics.get(topic_name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"No such topic as {topic_name}")
    partition = topic.partitions.get(number)
    if partition is None:
        raise UnknownTopicOrPartitionError(f"No such partition as {topic_name}-{number}")
    is_preferred = election_type == PREFERRED
    if (is_preferred and partition.leader == partition.replicas[0]) or (
        not is_preferred and partition.leader >= 0
    ):
        raise ElectionNotNeededError("Leader election not needed for topic partition.")
    change = _change(view, topic, number, partition)
    change.election = Election.PREFERRED if is_preferred else Election.UNCLEAN
    record = change.record()
    if record is not None:
        return record
    if is_preferred:
        raise PreferredLeaderNotAvailableError("The preferred leader was not available.")
    raise EligibleLeadersNotAvailableError("Eligible topic partition leaders are not available.")


def alter_reassignments(
    view: ClusterView,
    wanted: Sequence[Reassignment],
    *,
    allow_replication_factor_change: bool = True,
) -> tuple[Records, list[KafkaError | None]]:
    """The records for reassigned partitions, and the error of each partition that is refused.

    Raises:
        PolicyViolationError: the change needs more than 10,000 records.
    """
    records: Records = []
    results: list[KafkaError | None] = []
    for each in in_steps(wanted, every=16):
        try:
            record = _reassign(view, each, allow_replication_factor_change)
        except KafkaError as error:
            results.append(error)
            continue
        results.append(None)
        if record is not None:
            records.append(record)
    if len(records) > RECORDS_MAX:
        raise PolicyViolationError("Unable to perform excessively large batch operation.")
    return records, results


def _reassign(
    view: ClusterView, wanted: Reassignment, allow_factor_change: bool
) -> ApiRecord | None:
    topic = view.image.topics.get(wanted.topic)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"Unable to find a topic named {wanted.topic}.")
    partition = topic.partitions.get(wanted.partition)
    if partition is None:
        raise UnknownTopicOrPartitionError(
            f"Unable to find partition {wanted.topic}:{wanted.partition}."
        )
    change = _change(view, topic, wanted.partition, partition)
    if wanted.replicas is None:
        _revert(view, topic.name, partition, change)
        return change.record()
    view.require_assignable(wanted.replicas)
    factor = len({*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas})
    if not allow_factor_change and len(wanted.replicas) != factor:
        raise InvalidReplicationFactorError(
            f"The replication factor is changed from {factor} to {len(wanted.replicas)}"
        )
    replicas, removing, adding = reassigned(partition, wanted.replicas)
    change.replicas = replicas
    change.removing = removing or change.removing
    change.adding = adding or change.adding
    return change.record()


def _revert(
    view: ClusterView, topic: str, partition: PartitionImage, change: PartitionChange
) -> None:
    if not partition.is_reassigning:
        raise NoReassignmentInProgressError
    change.replicas = [each for each in partition.replicas if each not in partition.adding_replicas]
    change.isr = [each for each in partition.isr if each not in partition.adding_replicas]
    change.removing, change.adding = [], []
    is_unclean_allowed = view.allows_unclean_election(topic)
    if not change.isr:
        if not is_unclean_allowed:
            raise InvalidReplicaAssignmentError(
                f"Unable to revert partition assignment for {topic}:{change.number} because it "
                "would require an unclean leader election."
            )
        change.isr = change.replicas[:1]
    if is_unclean_allowed:
        change.election = Election.UNCLEAN


def _change(
    view: ClusterView, topic: TopicImage, number: int, partition: PartitionImage
) -> PartitionChange:
    return PartitionChange(
        topic_id=topic.topic_id,
        number=number,
        old=partition,
        context=view.change_context(),
        min_isr=view.min_isr(topic.name, len(partition.replicas)),
    )


def assign_directories(
    view: ClusterView, broker_id: int, assigned: Iterable[DirectoryAssignment]
) -> tuple[Records, list[ErrorCode]]:
    """The records of the directories in which a broker has put replicas, and an error for each.

    A replica in a directory that is offline leaves the ISR.

    Raises:
        UnsupportedRequestError: the metadata.version has no directories.

    Source: ReplicationControlManager.handleAssignReplicasToDirs; KIP-858.
    """
    records: Records = []
    errors = []
    lost: set[tuple[uuid.UUID, int]] = set()
    if not has_directories(view.image.metadata_version):
        raise UnsupportedRequestError("Directory assignment is not supported yet.")
    for each in in_steps(assigned, every=16):
        topic = view.image.topic_by_id(each.topic_id)
        partition = None if topic is None else topic.partitions.get(each.partition)
        error = ErrorCode.NONE
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif partition is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif broker_id not in partition.replicas:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            change = _change(view, topic, each.partition, partition)
            change.directories[broker_id] = each.directory
            record = change.record()
            if record is not None:
                records.append(record)
            if not view.has_online_directory(broker_id, each.directory):
                lost.add((each.topic_id, each.partition))
        errors.append(error)
    if lost:
        records += leaving(view, broker_id, lambda topic_id, number, _: (topic_id, number) in lost)
    return records, errors


def alter_isrs(
    view: ClusterView, broker_id: int, changes: Iterable[IsrChange]
) -> tuple[Records, list[ErrorCode]]:
    """The records of proposed ISRs, and an error for each; NEW_LEADER_ELECTED is recorded, too.

    Source: ReplicationControlManager.alterPartition.
    """
    records: Records = []
    errors = []
    for proposed in in_steps(changes, every=16):
        topic = view.image.topic_by_id(proposed.topic_id)
        if topic is None:
            errors.append(ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        partition = topic.partitions.get(proposed.partition)
        error = _refusal(view, broker_id, partition, proposed)
        if error is ErrorCode.NONE:
            assert partition is not None, "refused"
            change = _change(view, topic, proposed.partition, partition)
            if view.allows_unclean_election(topic.name):
                change.election = Election.UNCLEAN
            change.isr = [replica for replica, _ in proposed.isr]
            change.recovery_state = proposed.recovery_state
            record = change.record()
            if record is not None:
                records.append(record)
                # It completes a reassignment that removes the leader.
                if record.fields.get("leader", broker_id) != broker_id:
                    error = ErrorCode.NEW_LEADER_ELECTED
        errors.append(error)
    return records, errors


def _refusal(
    view: ClusterView, broker_id: int, partition: PartitionImage | None, proposed: IsrChange
) -> ErrorCode:
    """Source: ReplicationControlManager.validateAlterPartitionData."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if (
        proposed.leader_epoch > partition.leader_epoch
        or proposed.partition_epoch > partition.partition_epoch
    ):
        return ErrorCode.NOT_CONTROLLER  # the leader knows of a controller after this one
    if proposed.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposed.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [replica for replica, _ in proposed.isr]
    recovers = proposed.recovery_state == RECOVERING
    if (
        proposed.recovery_state not in RECOVERY_STATES  # Kafka's controller resigns
        or len(set(isr)) != len(isr)
        or not set(isr) <= set(partition.replicas)
        or partition.leader not in isr
        or (recovers and (len(isr) > 1 or partition.recovery_state != RECOVERING))
    ):
        return ErrorCode.INVALID_REQUEST
    for replica, epoch in proposed.isr:
        broker = view.image.brokers.get(replica)
        if broker is None or not broker.is_active or epoch not in {-1, broker.epoch}:
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def preferred_leaders(view: ClusterView, count_max: int) -> Records:
    """The elections of preferred leaders that are possible and needed, at most so many.

    Source: ReplicationControlManager.maybeBalancePartitionLeaders.
    """
    return _elections(
        view, lambda _, partition: partition.leader != partition.replicas[0], PREFERRED, count_max
    )


def unclean_leaders(view: ClusterView, count_max: int) -> Records:
    """The elections for partitions without a leader whose topic allows unclean ones.

    Source: ReplicationControlManager.maybeElectUncleanLeaders.
    """
    return _elections(
        view,
        lambda topic, partition: partition.leader < 0 and view.allows_unclean_election(topic),
        UNCLEAN,
        count_max,
    )


def _elections(
    view: ClusterView,
    is_due: Callable[[str, PartitionImage], bool],
    election_type: int,
    count_max: int,
) -> Records:
    records: Records = []
    for topic in in_steps(view.image.topics.values()):
        for number, partition in topic.partitions.items():
            if len(records) >= count_max:
                return records
            if not is_due(topic.name, partition):
                continue
            with suppress(PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError):
                records.append(_elect(view, topic.name, number, election_type))
    return records
