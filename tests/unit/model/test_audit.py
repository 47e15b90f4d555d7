"""The events of the audit log: a line for each, and values for a JSON document."""

from __future__ import annotations

import json
import logging

import pytest

from cordwood.model import audit as module
from cordwood.model.audit import (
    AUDIT_LOGGER,
    EVENT_ATTRIBUTE,
    AppliedSetting,
    AuditEvent,
    FileErased,
    GroupDeleted,
    HoldReleased,
    LogDeleted,
    LogRestarted,
    LogTruncated,
    OffsetsDeleted,
    OffsetsExpired,
    RecordsDeleted,
    RecordsErased,
    Requester,
    SegmentDeleted,
    SegmentsCompacted,
    TrashEmptied,
    audit,
)
from cordwood.model.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)
ANN = Requester("User:ann", "tool", "10.0.0.1")
HOURS = AppliedSetting(
    name="retention.ms",
    value="172800000",
    given="log.retention.hours=48",
    level="static broker",
    source="--set",
)
EVENTS: tuple[tuple[AuditEvent, str], ...] = (
    (
        SegmentDeleted(
            partition=ORDERS,
            log_dir="/data",
            base_offset=0,
            last_offset=9,
            records_max=10,
            size_bytes=128,
            rule="time",
            reason="log retention time 172800000ms breach based on the largest record timestamp in "
            "the segment",
            at_ms=1,
            setting=HOURS,
        ),
        "[orders-0] Deleted segment 0 of 128 bytes (offsets 0 to 9) in dir /data due to log "
        "retention time 172800000ms breach based on the largest record timestamp in the segment; "
        "retention.ms=172800000 (log.retention.hours=48, static broker, --set)",
    ),
    (
        SegmentsCompacted(
            partition=ORDERS,
            log_dir="/data",
            segments=(0, 10),
            last_offset=19,
            size_bytes_before=200,
            size_bytes_after=50,
            records_before=20,
            records_after=5,
            discarded={"superseded": 14, "tombstone": 1},
            at_ms=1,
            setting=AppliedSetting(name="cleanup.policy", value="compact"),
            trash="/trash",
        ),
        "[orders-0] Compacted segments 0, 10 (offsets 0 to 19) in dir /data: 15 of 20 records "
        "discarded (14 superseded, 1 tombstone), 200 to 50 bytes; cleanup.policy=compact; moved to "
        "/trash",
    ),
    (
        LogRestarted(
            partition=ORDERS, log_dir="/data", segments=(0, 5), size_bytes=9, log_start_offset=100
        ),
        "[orders-0] Deleted all segments (0, 5, 9 bytes) in dir /data: the log start offset 100 is "
        "beyond the end of the log",
    ),
    (
        LogDeleted(
            partition=ORDERS,
            directory="/data/orders-0.1-delete",
            topic_id="AAAA",
            log_start_offset=3,
            log_end_offset=8,
            size_bytes=70,
        ),
        "[orders-0] Deleted log for partition orders-0 in /data/orders-0.1-delete (70 bytes, "
        "offsets 3 to 7, topic id AAAA): its topic was deleted, or its replica has moved",
    ),
    (
        RecordsDeleted(
            partition=ORDERS,
            log_dir="/data",
            first_offset=0,
            last_offset=4,
            requester=ANN,
        ),
        "[orders-0] Deleted records at offsets 0 to 4 in dir /data due to a DeleteRecords request "
        "of User:ann, client tool at 10.0.0.1",
    ),
    (
        LogTruncated(partition=ORDERS, log_dir="/data", offset=5, log_end_offset_before=9),
        "[orders-0] Truncated to offset 5 in dir /data: offsets up to 8 are gone",
    ),
    (
        RecordsErased(
            partition=ORDERS,
            directory="/data/orders-0",
            erasure="erasure-1",
            records=3,
            offsets=((1, 1), (4, 5)),
            operator="ann",
            reason="case 7",
        ),
        "[orders-0] Erased 3 records (offsets 1, 4 to 5) in /data/orders-0 by erasure-1 of ann "
        "(case 7)",
    ),
    (
        FileErased(path="/data/x.deleted", erasure="erasure-1"),
        "Removed /data/x.deleted by erasure-1",
    ),
    (
        OffsetsExpired(group="billing", offsets={"orders-0": 7}, retention_ms=60000, at_ms=5),
        "[GroupId billing] Expired the committed offsets of orders-0 at 7 due to "
        "offsets.retention.minutes: 60000 ms",
    ),
    (
        OffsetsDeleted(group="billing", offsets={"orders-0": 7, "orders-1": 9}, requester=ANN),
        "[GroupId billing] Deleted the committed offsets of orders-0 at 7, orders-1 at 9 due to an "
        "OffsetDelete request of User:ann, client tool at 10.0.0.1",
    ),
    (
        OffsetsDeleted(group="billing", offsets={"orders-0": 7}),
        "[GroupId billing] Deleted the committed offsets of orders-0 at 7 due to the deletion of "
        "their topics",
    ),
    (
        GroupDeleted(group="billing", offsets={}, requester=ANN),
        "[GroupId billing] Deleted the group, with the committed offsets of no partition, due to a "
        "DeleteGroups request of User:ann, client tool at 10.0.0.1",
    ),
    (
        HoldReleased(
            hold="case-7",
            target="orders:3",
            reason="No. 7",
            added_by="ada",
            added_ms=5,
            released_by="ann",
        ),
        "Released the hold case-7 on orders:3 by ann, which ada added at 5 (No. 7)",
    ),
    (
        TrashEmptied(
            trash="/trash",
            what="orders-0",
            why="retention",
            removed_ms=5,
            size_bytes=1,
            segments=(0,),
        ),
        "Deleted from the trash /trash: segments 0 of orders-0 (1 bytes), removed by retention "
        "at 5",
    ),
)


def test_every_kind_of_event_is_shown_here() -> None:
    kinds = {each for each in vars(module).values() if isinstance(each, type)}
    assert {type(event) for event, _ in EVENTS} == {
        each for each in kinds if issubclass(each, AuditEvent) and each is not AuditEvent
    }


@pytest.mark.parametrize(
    ("event", "text"),
    EVENTS,
    ids=lambda each: type(each).__name__ if isinstance(each, AuditEvent) else "",
)
def test_an_event_is_a_line_and_a_json_document(event: AuditEvent, text: str) -> None:
    assert str(event) == text
    document = json.loads(json.dumps(event.to_json()))
    assert document["event"] == event.kind
    assert document.get("partition", "orders-0") == "orders-0"
    assert len({each.kind for each, _ in EVENTS}) == len({type(each) for each, _ in EVENTS})


def test_the_client_of_a_request_has_values_of_its_own_in_json() -> None:
    document = GroupDeleted(group="billing", offsets={"orders-0": 7}, requester=ANN).to_json()
    assert document == {
        "event": "group deleted",
        "group": "billing",
        "offsets": {"orders-0": 7},
        "principal": "User:ann",
        "client_id": "tool",
        "host": "10.0.0.1",
    }
    document = OffsetsDeleted(group="billing", offsets={}).to_json()
    assert (document["principal"], document["client_id"], document["host"]) == (None, None, None)


def test_an_event_is_logged_at_info_and_is_in_the_record(caplog: pytest.LogCaptureFixture) -> None:
    event, _ = EVENTS[0]
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        audit(event)
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.INFO, "cordwood.audit")
    assert record.getMessage() == str(event)
    assert getattr(record, EVENT_ATTRIBUTE) is event
