from __future__ import annotations

import pytest

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.consumer import ConsumedRecord, Consumer, NoOffsetError
from cordwood.client.errors import ClientError, RefusedError
from cordwood.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, Offsets
from cordwood.client.partitioner import partition_of
from cordwood.client.producer import Producer, ProducerRecord, ProducerSettings
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Header
from cordwood.model.topic_partition import TopicPartition


def refuse(record: ProducerRecord, error: ClientError) -> None:
    pytest.fail(f"{record}: {error.described}")


def send(cluster: ClusterClient, records: list[ProducerRecord], settings: ProducerSettings) -> None:
    producer = Producer(cluster, settings, refuse)
    for record in records:
        producer.send(record)
    producer.flush()


def read(cluster: ClusterClient, topic: str, start: int = EARLIEST) -> list[ConsumedRecord]:
    consumer = Consumer(cluster=cluster)
    (facts,) = Admin(cluster).topics([topic])
    consumer.assign({TopicPartition(topic, p.partition): start for p in facts.partitions})
    found: list[ConsumedRecord] = []
    while records := consumer.poll(200):
        found += records
    return found


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("acks", ["all", "1"])
def test_what_is_sent_is_read(cluster: ClusterClient, codec: Codec, acks: str) -> None:
    topic = f"echo-{codec.config_name}-{acks}"
    Admin(cluster).create_topic(topic)
    records = [
        ProducerRecord(topic, b"k", b"v", (Header("h", b"1"), Header("n", None))),
        ProducerRecord(topic, None, b""),
        ProducerRecord(topic, b"", None),
    ]
    send(cluster, records, ProducerSettings(codec=codec, acks=acks))
    found = [consumed.record for consumed in read(cluster, topic)]
    assert [(r.offset, r.key, r.value, r.headers) for r in found] == [
        (offset, *record[1:]) for offset, record in enumerate(records)
    ]


def test_without_acks_nothing_is_waited_for(cluster: ClusterClient) -> None:
    Admin(cluster).create_topic("quick")
    send(cluster, [ProducerRecord("quick", None, b"v")], ProducerSettings(acks="0"))
    assert [consumed.record.value for consumed in read(cluster, "quick")] == [b"v"]


def test_keys_decide_the_partition(cluster: ClusterClient) -> None:
    Admin(cluster).create_topic("keyed", partitions=5)
    keys = [str(number).encode() for number in range(40)]
    send(cluster, [ProducerRecord("keyed", key, b"") for key in keys], ProducerSettings())
    found = read(cluster, "keyed")
    assert {consumed.record.key for consumed in found} == set(keys)
    for consumed in found:
        assert consumed.partition.partition == partition_of(consumed.record.key or b"", 5)


def test_full_batches_go_out_by_themselves(cluster: ClusterClient) -> None:
    Admin(cluster).create_topic("batches")
    producer = Producer(cluster, ProducerSettings(batch_bytes=200), refuse)
    for number in range(10):
        producer.send(ProducerRecord("batches", None, b"%03d" % number * 20))
    sent = len(read(cluster, "batches"))
    assert 0 < sent < 10
    producer.flush()
    assert len(read(cluster, "batches")) == 10


def test_a_batch_that_is_too_large_is_divided_and_a_record_that_is_is_lost(
    cluster: ClusterClient,
) -> None:
    Admin(cluster).create_topic("small", configs={"max.message.bytes": "150"})
    lost: list[tuple[bytes | None, str]] = []
    producer = Producer(
        cluster,
        ProducerSettings(),
        lambda record, error: lost.append((record.value, error.java_class.rpartition(".")[2])),
    )
    values = [b"a" * 40, b"b" * 40, b"x" * 400, b"c" * 40]
    for value in values:
        producer.send(ProducerRecord("small", None, value))
    producer.flush()
    assert [r.record.value for r in read(cluster, "small")] == [values[0], values[1], values[3]]
    assert lost == [(values[2], "RecordTooLargeException")]


def test_records_that_break_a_rule_are_told_one_by_one(cluster: ClusterClient) -> None:
    Admin(cluster).create_topic("compacted", configs={"cleanup.policy": "compact"})
    told: list[str] = []
    producer = Producer(
        cluster, ProducerSettings(), lambda record, error: told.append(error.described)
    )
    producer.send(ProducerRecord("compacted", b"k", b"good"))
    producer.send(ProducerRecord("compacted", None, b"bad"))
    producer.flush()
    assert told == [
        "org.apache.kafka.common.KafkaException: Failed to append record because it was part of a "
        "batch which had one more more invalid records",
        "org.apache.kafka.common.InvalidRecordException: Compacted topic cannot accept message "
        "without key in topic partition compacted-0",
    ]


def test_a_record_that_no_request_may_hold_is_not_sent(cluster: ClusterClient) -> None:
    told: list[str] = []
    producer = Producer(
        cluster,
        ProducerSettings(max_request_bytes=2000),
        lambda record, error: told.append(str(error)),
    )
    producer.send(ProducerRecord("any", None, b"x" * 2000))
    assert told == [
        "The message is 2086 bytes when serialized which is larger than 2000, which is the value "
        "of the max.request.size configuration."
    ]


def test_a_topic_that_does_not_come_is_waited_for_no_longer_than_allowed(
    cluster: ClusterClient,
) -> None:
    told: list[str] = []
    producer = Producer(
        cluster, ProducerSettings(max_block_ms=0), lambda record, error: told.append(str(error))
    )
    producer.send(ProducerRecord("absent", None, b"v"))
    assert told == ["Topic absent not present in metadata after 0 ms."]


def test_offsets_are_found_and_what_is_before_them_deleted(cluster: ClusterClient) -> None:
    Admin(cluster).create_topic("offsets")
    send(cluster, [ProducerRecord("offsets", None, b"v")] * 5, ProducerSettings())
    offsets, tp = Offsets(cluster), TopicPartition("offsets", 0)
    assert offsets.list_offsets({tp: LATEST}) == {tp: 5}
    assert offsets.delete_records({tp: 3}) == {tp: 3}
    assert offsets.list_offsets({tp: EARLIEST}) == {tp: 3}
    assert offsets.list_offsets({tp: 1 << 60}) == {tp: -1}
    assert isinstance(offsets.list_offsets({tp: MAX_TIMESTAMP})[tp], int)
    assert [r.record.offset for r in read(cluster, "offsets", start=0)] == [], "reset to the end"
    assert [r.record.offset for r in read(cluster, "offsets", start=4)] == [4]
    refused = offsets.delete_records({tp: 99, TopicPartition("offsets", 8): 0})
    assert [error.code for error in refused.values() if isinstance(error, RefusedError)] == [1, 3]


def test_a_position_outside_the_log_is_an_error_where_nothing_says_what_to_do(
    cluster: ClusterClient,
) -> None:
    Admin(cluster).create_topic("outside")
    consumer = Consumer(cluster=cluster, reset=None)
    consumer.assign({TopicPartition("outside", 0): 7})
    with pytest.raises(NoOffsetError, match=r"no reset policy is configured: \{outside-0=7\}"):
        consumer.poll(100)
