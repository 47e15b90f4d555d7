"""Offsets that a producer commits as a part of its transaction."""

from __future__ import annotations

from collections.abc import Iterator

from cordwood.broker.broker import Broker
from cordwood.format.group_metadata import decode_group_key, decode_group_value
from cordwood.format.record_batch import iter_batches
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Wire
from support.wire_client import WireClient


def stored_topic_ids(broker: Broker) -> Iterator[object]:
    log = broker.replicas.log(GROUP_METADATA_TOPIC, 0)
    for path in sorted(log.directory.glob("*.log")):
        for _, batch in iter_batches(path.read_bytes()):
            for record in batch.records():
                key = decode_group_key(record.key)
                value = decode_group_value(key.record_type, record.value)
                if value is not None and "topicId" in value.fields:
                    yield value.fields["topicId"]


def test_offsets_of_a_transaction_are_stored_with_the_id_of_the_topic() -> None:
    settings = {"offsets.topic.num.partitions": 1}
    with RunningBroker(settings, engine=NoEngine) as running, Wire(running.port) as wire:
        with WireClient(running.port) as client:
            client.create("a")
            topic_id = client.topic_id("a")

        def is_there(key: str, kind: int) -> bool:
            found = wire.ask("find_coordinator", 3, {"key": key, "key_type": kind})
            return bool(found["error_code"] == "none")

        for key, kind in (("g", 0), ("t", 1)):
            poll_until(lambda: is_there(key, kind), timeout_s=30, what="a coordinator")  # noqa: B023
        asked = {"transactional_id": "t", "transaction_timeout_ms": 60_000}
        given = wire.ask("init_producer_id", 5, {**asked, "producer_id": -1, "producer_epoch": -1})
        partition = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1}
        values = {
            "transactional_id": "t",
            "group_id": "g",
            "producer_id": given["producer_id"],
            "producer_epoch": given["producer_epoch"],
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": "a", "partitions": [partition]}],
        }
        (answer,) = wire.ask("txn_offset_commit", 5, values)["topics"]
        assert [each["error_code"] for each in answer["partitions"]] == ["none"]
        assert running.call(lambda broker: list(stored_topic_ids(broker))) == [topic_id]


def test_partition_that_is_named_twice_is_answered_twice() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        partition = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1}
        values = {
            "transactional_id": "t",
            "group_id": "g",
            "producer_id": 7,
            "producer_epoch": 0,
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": "missing", "partitions": [partition, partition]}],
        }
        (answer,) = wire.ask("txn_offset_commit", 5, values)["topics"]
        errors = [each["error_code"] for each in answer["partitions"]]
        assert errors == ["unknown_topic_or_partition"] * 2
