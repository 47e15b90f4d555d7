"""Entries of the audit log for what a running broker removes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.groups import Groups
from cordwood.client.settings import ClientSettings
from cordwood.model.audit import (
    AppliedSetting,
    GroupDeleted,
    LogDeleted,
    OffsetsDeleted,
    OffsetsExpired,
    RecordsDeleted,
    Requester,
    SegmentDeleted,
    SegmentsCompacted,
    TrashEmptied,
)
from cordwood.model.topic_partition import TopicPartition as Partition
from cordwood.testing.broker import RunningBroker
from support.audit_events import Events, audit_events
from support.commits import commit
from support.in_process_engine import CompiledEngine
from support.kafka import poll_until

DAY_MS = 86_400_000
TOOL = Requester("User:ANONYMOUS", "tool", "127.0.0.1")


@pytest.fixture
def events() -> Iterator[Events]:
    with audit_events() as found:
        yield found


@pytest.fixture
def broker(tmp_path: Path, events: Events) -> Iterator[RunningBroker]:
    del events  # which are to be there when it stops
    properties = {
        "cordwood.trash.dir": str(tmp_path / "trash"),
        "cordwood.trash.ms": "0",
        "log.retention.hours": "48",
        "node.id": "1",
    }
    with RunningBroker(properties, log_dir=tmp_path / "logs", engine=CompiledEngine) as running:
        yield running


def create(broker: RunningBroker, topic: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {"message.timestamp.type": "LogAppendTime"}
    config |= {name.replace("_", "."): value for name, value in settings.items()}
    for made in admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
        made.result()


def produce(broker: RunningBroker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"})
    for value in values:
        producer.produce(topic, value, key=b"k", partition=0)
    assert producer.flush(30) == 0


def test_segments_that_retention_deletes_are_noted_with_the_setting_and_its_origin(
    broker: RunningBroker, events: Events, tmp_path: Path
) -> None:
    create(broker, "orders")
    create(broker, "short", retention_ms="1000")
    produce(broker, "orders", "a", "b")
    produce(broker, "short", "a")
    broker.advance(days=1)
    (gone,) = events.of(SegmentDeleted)
    assert (str(gone.partition), gone.base_offset, gone.last_offset) == ("short-0", 0, 0)
    assert gone.setting == AppliedSetting(
        name="retention.ms",
        value="1000",
        given="retention.ms=1000",
        level="topic",
        source="metadata log",
    )
    broker.advance(days=3)
    _, gone = events.of(SegmentDeleted)
    assert (str(gone.partition), gone.base_offset, gone.last_offset) == ("orders-0", 0, 1)
    assert gone.records_max == 2
    assert gone.log_dir == str(tmp_path / "logs")
    assert gone.reason.startswith(f"log retention time {2 * DAY_MS}ms breach based on ")
    assert gone.setting is not None
    assert (gone.setting.value, gone.setting.level) == (str(2 * DAY_MS), "static broker")
    assert gone.trash is None


def test_records_that_compaction_discards_are_noted_by_reason(
    broker: RunningBroker, events: Events
) -> None:
    create(
        broker,
        "keyed",
        cleanup_policy="compact",
        segment_ms="60000",
        min_cleanable_dirty_ratio="0.01",
    )
    produce(broker, "keyed", *"abc")
    broker.advance(minutes=2)
    produce(broker, "keyed", "d")
    broker.advance(minutes=2)
    (gone,) = events.of(SegmentsCompacted)
    assert (str(gone.partition), gone.segments, gone.last_offset) == ("keyed-0", (0,), 2)
    assert (gone.records_before, gone.records_after, gone.discarded) == (3, 1, {"superseded": 2})
    assert gone.size_bytes_before > gone.size_bytes_after > 0
    assert gone.setting is not None
    assert (gone.setting.value, gone.setting.level) == ("compact", "topic")


def test_requests_that_delete_records_and_topics_are_noted(
    broker: RunningBroker, events: Events
) -> None:
    create(broker, "orders")
    produce(broker, "orders", *"abc")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "client.id": "tool"})
    for _ in range(2):  # the second deletes nothing
        for done in admin.delete_records([TopicPartition("orders", 0, 2)]).values():
            done.result()
    (gone,) = events.of(RecordsDeleted)
    assert (str(gone.partition), gone.first_offset, gone.last_offset) == ("orders-0", 0, 1)
    assert gone.requester == TOOL
    for deleted in admin.delete_topics(["orders"]).values():
        deleted.result()
    broker.advance(minutes=2)
    (log,) = events.of(LogDeleted)
    assert str(log.partition) == "orders-0"
    assert (log.log_start_offset, log.log_end_offset, log.in_trash) == (2, 3, False)
    assert log.size_bytes > 0
    assert log.topic_id


def test_offsets_of_groups_that_expire_are_noted(broker: RunningBroker, events: Events) -> None:
    create(broker, "orders")
    produce(broker, "orders", *"abc")
    commit(broker.bootstrap_servers, "billing", [TopicPartition("orders", 0, 3)])
    broker.advance(days=8)
    # The coordinator handles the check after other events.
    (gone,) = poll_until(
        lambda: events.of(OffsetsExpired) or None, timeout_s=60, what="offsets expire"
    )
    assert (gone.group, gone.offsets, gone.retention_ms) == ("billing", {"orders-0": 3}, 7 * DAY_MS)


def test_offsets_of_groups_that_clients_delete_are_noted(
    broker: RunningBroker, events: Events
) -> None:
    create(broker, "orders")
    create(broker, "clicks")
    settings = ClientSettings(bootstrap_servers=broker.bootstrap_servers, client_id="tool")
    first, second = Partition("orders", 0), Partition("clicks", 0)
    with ClusterClient(settings, warn=pytest.fail) as cluster:
        groups = Groups(cluster)
        for group in ("billing", "shop"):
            groups.alter_offsets(group, {first: 3, second: 5})
        for _ in range(2):  # the second deletes nothing
            assert groups.delete_offsets("billing", [first]) == (None, {first: None})
        groups.delete("billing")
        Admin(cluster).delete_topics(["orders"])
    (deleted,) = events.of(GroupDeleted)
    assert (deleted.group, deleted.offsets) == ("billing", {"clicks-0": 5})
    assert deleted.requester == TOOL

    def noted() -> list[OffsetsDeleted] | None:
        found = events.of(OffsetsDeleted)
        return found if len(found) > 1 else None

    # The coordinator handles the deletion of a topic after other events.
    of_client, of_topic = poll_until(noted, timeout_s=60, what="offsets of the topic are deleted")
    assert (of_client.group, of_client.offsets) == ("billing", {"orders-0": 3})
    assert of_client.requester == TOOL
    assert (of_topic.group, of_topic.offsets) == ("shop", {"orders-0": 3})
    assert of_topic.requester is None


def test_what_goes_to_the_trash_and_what_leaves_it_is_noted(
    broker: RunningBroker, events: Events, tmp_path: Path
) -> None:
    create(broker, "orders", cordwood_trash_ms=str(DAY_MS), retention_ms="1000")
    produce(broker, "orders", "a")
    broker.advance(minutes=20)
    (gone,) = events.of(SegmentDeleted)
    assert gone.trash == str(tmp_path / "trash")
    assert events.of(TrashEmptied) == []
    broker.advance(days=2)
    (emptied,) = events.of(TrashEmptied)
    assert (emptied.what, emptied.segments, emptied.why) == ("orders-0", (0,), "retention")
    assert emptied.size_bytes == gone.size_bytes
