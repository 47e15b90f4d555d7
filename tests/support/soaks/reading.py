"""Contents of a broker at the end of a soak: records of partitions, offsets of groups."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from support.reading import read_partition
from support.soaks.ledger import Cleanup, Ledger, Place, ReadRecord, judge
from support.soaks.stamps import HEADER, read_stamp

_READ_S: Final = 600.0
_NOT_READY: Final = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE}


def read_messages(servers: str, place: Place) -> tuple[list[Message], int]:
    """All committed records of a partition up to its last stable offset, and its log start offset.

    Raises:
        TimeoutError: they are not read in ten minutes.
    """
    return read_partition(
        {"bootstrap.servers": servers}, *place, passes_over_errors=True, timeout_s=_READ_S
    )


def read_records(servers: str, place: Place) -> tuple[list[ReadRecord], int]:
    """The records of writers, and the log start offset, as `read_messages`."""
    messages, start = read_messages(servers, place)
    records = []
    for message in messages:
        header: Any = dict(message.headers() or []).get(HEADER)
        stamp = read_stamp(message.key(), message.value(), header)
        records.append(ReadRecord(int(message.offset() or 0), stamp, message.value() is None))
    return records, start


def complaints_of(
    servers: str, place: Place, ledger: Ledger, cleanup: Cleanup = Cleanup.NONE
) -> list[str]:
    """Complaints about a partition in which only the ledger's writers write."""
    records, start = read_records(servers, place)
    return judge(
        place,
        ledger.of(place),
        records,
        cleanup=cleanup,
        log_start_offset=start,
        failed=ledger.failed_of(place.topic),
    )


def ends_of(servers: str, topic: str, partitions: int) -> dict[Place, int]:
    """The log end offsets of a topic's partitions."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "ends", "log_level": 0})
    try:
        return {
            Place(topic, number): consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=30
            )[1]
            for number in range(partitions)
        }
    finally:
        consumer.close()


def committed_offsets(admin: AdminClient, group: str) -> dict[Place, int] | None:
    """The offsets of a group; None while its coordinator is not ready."""
    (done,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    try:
        answer = done.result(30)
    except KafkaException as error:
        if error.args[0].retriable() or error.args[0].code() in _NOT_READY:
            return None
        raise
    return {Place(each.topic, each.partition): each.offset for each in answer.topic_partitions}
