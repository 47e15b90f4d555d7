"""Topics made and deleted, partitions added: Kafka's checks, and the records.

Source: org.apache.kafka.controller.ReplicationControlManager.createTopics, deleteTopics,
createPartitions.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from cordwood.configs.min_isr import MIN_ISR
from cordwood.configs.resource import ConfigResource
from cordwood.controller.cluster_view import RECORDS_MAX, ClusterView
from cordwood.metadata.controller_requests import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    RestoredTopic,
)
from cordwood.metadata.image import PartitionImage
from cordwood.metadata.records import (
    ApiRecord,
    Records,
    config_record,
    has_elr,
    partition_record,
    topic_record,
)
from cordwood.model.kafka_errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    KafkaError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from cordwood.model.pauses import in_steps
from cordwood.model.topic_names import NewTopicNames, is_reserved
from cordwood.model.uuids import fresh_uuid

CheckConfigs = Callable[[Mapping[str, str]], None]
#: Why a topic, by name, must not be deleted; None if it may be.
CheckDeletion = Callable[[str], KafkaError | None]


def create_topics(
    view: ClusterView, topics: Sequence[NewTopic], check_configs: CheckConfigs | None = None
) -> tuple[Records, list[CreatedTopic | KafkaError]]:
    """The records of new topics, and the result of each.

    Raises:
        PolicyViolationError: they need more than 10,000 records.
    """
    _require_partitions_bounded(
        sum(
            _partitions_asked_for(view, each)
            for each in in_steps(topics, every=16)
            if not is_reserved(each.name)
        )
    )
    records: Records = []
    results: list[CreatedTopic | KafkaError] = []
    free = NewTopicNames(view.image.topics)
    times = Counter(each.name for each in topics)
    for topic in in_steps(topics):
        try:
            if times[topic.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            free.require_free(topic.name)
            _require_configs(topic, check_configs)
            made = _create_topic(view, topic, records)
        except KafkaError as error:
            results.append(error)
        else:
            results.append(made)
        _require_bounded(records)
    return records, results


def _partitions_asked_for(view: ClusterView, topic: NewTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return (
        view.settings.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)
    )


def _require_configs(topic: NewTopic, check_configs: CheckConfigs | None) -> None:
    without_value = [key for key, value in topic.configs.items() if value is None]
    if without_value:
        raise InvalidConfigError(
            f"Null value not supported for topic configs: {','.join(without_value)}"
        )
    if check_configs is not None and topic.configs:
        check_configs({key: value for key, value in topic.configs.items() if value is not None})


def _create_topic(view: ClusterView, topic: NewTopic, records: Records) -> CreatedTopic:
    partitions = (
        _assigned_partitions(view, topic) if topic.assignments else _placed_partitions(view, topic)
    )
    topic_id = fresh_uuid(view.rng)
    records.append(topic_record(topic.name, topic_id))
    records += _config_records(view, topic)
    level = view.image.metadata_version
    records += [
        partition_record(topic_id, number, partition, level)
        for number, partition in in_steps(enumerate(partitions), every=16)
    ]
    return CreatedTopic(topic.name, topic_id, len(partitions), len(partitions[0].replicas))


def _config_records(view: ClusterView, topic: NewTopic) -> Iterable[ApiRecord]:
    for key, value in topic.configs.items():
        yield config_record(ConfigResource.TOPIC, topic.name, key, value)
    if MIN_ISR in topic.configs and has_elr(view.image.features):
        yield clear_elr_record(topic.name)


def clear_elr_record(topic: str) -> ApiRecord:
    """Has the eligible leader replicas of a topic forgotten, of all topics if it is ''."""
    return ApiRecord("ClearElrRecord", 0, {"topicName": topic})


def _assigned_partitions(view: ClusterView, topic: NewTopic) -> list[PartitionImage]:
    said = "A manual partition assignment was specified, but"
    if topic.replication_factor != -1:
        raise InvalidRequestError(f"{said} replication factor was not set to -1.")
    if topic.num_partitions != -1:
        raise InvalidRequestError(f"{said} numPartitions was not set to -1.")
    found: dict[int, PartitionImage] = {}
    replication_factor: int | None = None
    for number, brokers in in_steps(topic.assignments, every=16):
        if number in found:
            raise InvalidReplicaAssignmentError(
                f"Found multiple manual partition assignments for partition {number}"
            )
        view.require_assignable(brokers, replication_factor)
        replication_factor = len(brokers)
        found[number] = _active_partition(view, number, brokers)
    if sorted(found) != list(range(len(found))):
        raise InvalidReplicaAssignmentError(
            "partitions should be a consecutive 0-based integer sequence"
        )
    return [found[number] for number in range(len(found))]


def _active_partition(view: ClusterView, number: int, brokers: Sequence[int]) -> PartitionImage:
    partition = view.new_partition(brokers)
    if partition is None:
        raise InvalidReplicaAssignmentError(
            "All brokers specified in the manual partition assignment for partition "
            f"{number} are fenced or in controlled shutdown."
        )
    return partition


def _placed_partitions(view: ClusterView, topic: NewTopic) -> list[PartitionImage]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise InvalidReplicationFactorError(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise InvalidPartitionsError(
            "Number of partitions was set to an invalid non-positive value."
        )
    count, factor = topic.num_partitions, topic.replication_factor
    if count == -1:
        count = view.settings.num_partitions
    if factor == -1:
        factor = view.settings.default_replication_factor
    try:
        return _placed(view, count, factor)
    except InvalidReplicationFactorError as error:
        said = f"Unable to replicate the partition {factor} time(s): "
        text = str(error)
        raise InvalidReplicationFactorError(
            text if text.startswith(said) else said + text
        ) from error


def _placed(view: ClusterView, count: int, factor: int) -> list[PartitionImage]:
    partitions = []
    for replicas in in_steps(view.place(count, factor), every=16):
        partition = view.new_partition(replicas)
        if partition is None:
            raise InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): All brokers are currently "
                "fenced or in controlled shutdown."
            )
        partitions.append(partition)
    return partitions


def create_partitions(
    view: ClusterView, topics: Sequence[NewPartitions]
) -> tuple[Records, list[KafkaError | None]]:
    """The records for new partitions, and the error of each topic that is refused.

    Raises:
        PolicyViolationError: the topics get more than 10,000 partitions in all.
    """
    _require_additional_bounded(view, topics)
    records: Records = []
    results: list[KafkaError | None] = []
    for topic in in_steps(topics):
        try:
            records += _more_partitions(view, topic)
        except KafkaError as error:
            results.append(error)
        else:
            results.append(None)
    return records, results


def _more_partitions(view: ClusterView, wanted: NewPartitions) -> Records:
    topic = view.image.topics.get(wanted.topic)
    if topic is None:
        raise UnknownTopicOrPartitionError
    there = len(topic.partitions)
    if wanted.count == there:
        raise InvalidPartitionsError(f"Topic already has {there} partition(s).")
    if wanted.count < there:
        raise InvalidPartitionsError(
            f"The topic {wanted.topic} currently has {there} partition(s); {wanted.count} would "
            "not be an increase."
        )
    additional = wanted.count - there
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        added = _placed(view, additional, factor)
    else:
        if len(wanted.assignments) != additional:
            raise InvalidReplicaAssignmentError(
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(wanted.assignments)} assignment(s) were specified."
            )
        added = []
        for number, brokers in in_steps(enumerate(wanted.assignments, start=there), every=16):
            view.require_assignable(brokers, factor)
            added.append(_active_partition(view, number, brokers))
    level = view.image.metadata_version
    return [
        partition_record(topic.topic_id, number, partition, level)
        for number, partition in in_steps(enumerate(added, start=there), every=16)
    ]


def delete_topics(
    view: ClusterView,
    wanted: Sequence[uuid.UUID | str],
    check_deletion: CheckDeletion | None = None,
) -> tuple[Records, list[KafkaError | None]]:
    """The records that delete topics by id or name, and the error of each that is not deleted.

    Raises:
        TopicDeletionDisabledError: delete.topic.enable is false.
    """
    if not view.settings.delete_topic_enable:
        raise TopicDeletionDisabledError("Topic deletion is disabled.")
    records: Records = []
    results: list[KafkaError | None] = []
    image = view.image
    for each in in_steps(wanted, every=16):
        error: KafkaError | None = None
        if isinstance(each, uuid.UUID):
            topic_id = each
            if each not in image.topic_names:
                error = UnknownTopicIdError("This server does not host this topic ID.")
        elif each in image.topics:
            topic_id = image.topics[each].topic_id
        else:
            error = UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        if error is None and check_deletion is not None:
            error = check_deletion(image.topic_names[topic_id])
        results.append(error)
        if error is None:
            records.append(_removal_record(topic_id))
    _require_bounded(records)
    return records, results


def remove_reserved(view: ClusterView) -> tuple[Records, list[str]]:
    """The records that delete topics whose names no topic may have, and those names.

    Such a topic keeps a Kafka that is started on the directory from leading any partition.
    """
    topics = view.image.topics
    names = [name for name in topics if is_reserved(name)]
    return [_removal_record(topics[name].topic_id) for name in names], names


def _removal_record(topic_id: uuid.UUID) -> ApiRecord:
    return ApiRecord("RemoveTopicRecord", 0, {"topicId": topic_id})


def restore_topic(
    view: ClusterView, topic: RestoredTopic, check_configs: CheckConfigs | None = None
) -> Records:
    """The records that make a deleted topic exist again, with the id that it had.

    Kafka refuses a TopicRecord only while its name or its id is in use. The epochs of partitions
    are above those before: no client, and no log, has seen them.

    Raises:
        KafkaError: its name or its id is in use, or its settings are not valid any more.

    Source: ReplicationControlManager.replay(TopicRecord).
    """
    NewTopicNames(view.image.topics).require_free(topic.name)
    if topic.topic_id in view.image.topic_names:
        raise TopicAlreadyExistsError(f"A topic with the id of '{topic.name}' already exists.")
    if check_configs is not None and topic.configs:
        check_configs(topic.configs)
    records = [topic_record(topic.name, topic.topic_id)]
    records += _config_records(view, NewTopic(name=topic.name, configs=topic.configs))
    for number, before in in_steps(sorted(topic.partitions.items()), every=16):
        image = PartitionImage(
            replicas=(topic.broker_id,),
            isr=(topic.broker_id,),
            leader=topic.broker_id,
            leader_epoch=before.leader_epoch + 1,
            partition_epoch=before.partition_epoch + 1,
            directories=(before.directory,),
        )
        records.append(partition_record(topic.topic_id, number, image, view.image.metadata_version))
    _require_bounded(records)
    return records


def _require_partitions_bounded(count: int) -> None:
    if count > RECORDS_MAX:
        raise PolicyViolationError("Excessively large number of partitions per request.")


def _require_additional_bounded(view: ClusterView, topics: Sequence[NewPartitions]) -> None:
    """Source: ReplicationControlManager.validateTotalNumberOfPartitions (4.4)."""
    additional = 0
    for wanted in in_steps(topics):
        topic = view.image.topics.get(wanted.topic)
        if topic is not None:
            additional += max(wanted.count - len(topic.partitions), 0)
    if additional > RECORDS_MAX:
        raise PolicyViolationError("Excessively large number of additional partitions per request.")


def _require_bounded(records: Records) -> None:
    if len(records) > RECORDS_MAX:
        raise PolicyViolationError("Unable to perform excessively large batch operation.")
