"""Images that are taken of records on their way."""

from __future__ import annotations

from dataclasses import replace

from cordwood.format.metadata_records import with_defaults
from cordwood.metadata.delta import ImageDelta
from cordwood.metadata.image import MetadataImage, PartitionImage
from cordwood.metadata.records import ApiRecord, partition_record, topic_record
from cordwood.model.uuids import parse_uuid

TOPIC_ID = parse_uuid("Y29yZHdvb2QtdGVzdHMtMQ")
PARTITION = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)


def apply(delta: ImageDelta, *records: ApiRecord) -> None:
    for record in records:
        delta.apply(record.name, with_defaults(record.name, record.fields))


def taken(delta: ImageDelta) -> MetadataImage:
    return delta.image(next_offset=0, epoch=0)


def partition(number: int) -> ApiRecord:
    return partition_record(TOPIC_ID, number, PARTITION, 30)


def test_an_image_does_not_change_when_further_records_are_applied() -> None:
    delta = ImageDelta()
    apply(delta, topic_record("t", TOPIC_ID), partition(0))
    first = taken(delta)
    apply(delta, partition(1))
    assert list(first.topics["t"].partitions) == [0]
    assert list(taken(delta).topics["t"].partitions) == [0, 1]


def test_an_image_has_nothing_of_a_transaction_that_is_open() -> None:
    delta = ImageDelta()
    apply(delta, topic_record("t", TOPIC_ID), ApiRecord("BeginTransactionRecord", 0, {"name": "x"}))
    apply(delta, partition(0))
    assert not taken(delta).topics["t"].partitions
    apply(delta, ApiRecord("EndTransactionRecord", 0, {}))
    assert list(taken(delta).topics["t"].partitions) == [0]


def test_clearing_eligible_leader_replicas_changes_the_epoch_of_partitions_that_had_some() -> None:
    """Source: TopicDelta.maybeClearElr: a leader that missed it could not change its ISR again."""
    delta = ImageDelta()
    with_elr = replace(PARTITION, replicas=(1, 2), elr=(2,), leader_epoch=3, partition_epoch=7)
    apply(
        delta,
        topic_record("t", TOPIC_ID),
        partition_record(TOPIC_ID, 0, with_elr, 30),
        partition_record(TOPIC_ID, 1, replace(with_elr, elr=()), 30),
        ApiRecord("ClearElrRecord", 0, {"topicName": "t"}),
    )
    partitions = taken(delta).topics["t"].partitions
    assert [(each.elr, each.partition_epoch) for each in partitions.values()] == [((), 8), ((), 7)]
    assert {each.leader_epoch for each in partitions.values()} == {3}
