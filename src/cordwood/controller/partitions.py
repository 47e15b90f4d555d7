"""Leaders elected, replicas moved, directories recorded.

Source: org.apache.kafka.controller.ReplicationControlManager.electLeaders,
alterPartitionReassignments, handleAssignReplicasToDirs; KIP-183, KIP-455, KIP-460, KIP-858.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from cordwood.controller.cluster_view import RECORDS_MAX, ClusterView
from cordwood.controller.partition_change import Election, PartitionChange, reassigned
from cordwood.metadata.controller_requests import ElectionResult, Reassignment
from cordwood.metadata.image import PartitionImage, TopicImage
from cordwood.metadata.records import ApiRecord, Records, partition_version
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
)
from cordwood.model.pauses import in_steps

PREFERRED, UNCLEAN = 0, 1


def elect_leaders(
    view: ClusterView, wanted: Iterable[tuple[str, int]] | None, election_type: int
) -> tuple[Records, list[ElectionResult]]:
    """The records of elections, and how each went.

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
    factor = len(set(partition.replicas) - set(partition.adding_replicas))
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
    view: ClusterView, broker_id: int, assigned: Iterable[tuple[uuid.UUID, int, uuid.UUID]]
) -> Records:
    """The records of the directories in which a broker has put partitions."""
    records: Records = []
    version = partition_version(view.image.metadata_version)
    if version < 1:
        return records
    for topic_id, number, directory in in_steps(assigned, every=16):
        topic = view.image.topic_by_id(topic_id)
        partition = None if topic is None else topic.partitions.get(number)
        if partition is None or broker_id not in partition.replicas:
            continue
        known = dict(zip(partition.replicas, partition.directories, strict=False))
        if known.get(broker_id) == directory:
            continue
        known[broker_id] = directory
        directories = [known.get(each) or view.directory_of(each) for each in partition.replicas]
        fields = {
            "topicId": topic_id,
            "partitionId": number,
            "directories": list(directories),
        }
        records.append(ApiRecord("PartitionChangeRecord", version, fields))
    return records
