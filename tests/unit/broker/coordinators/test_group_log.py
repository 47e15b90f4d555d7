"""Groups and offsets as the log has them: what is taken in, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.broker.coordinators import coordinator_log
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.offset_records import offset_commit, offset_tombstone
from cordwood.coordinator.group.offset_requests import CommitPartition, CommitTopic
from cordwood.coordinator.group.offsets import CommittedOffset, OffsetKey
from cordwood.coordinator.group.records import batch_of
from cordwood.coordinator.log import EncodedRecord
from cordwood.coordinator.registry import Coordinators
from cordwood.format.compression import Codec
from cordwood.format.group_metadata import GROUP_RECORDS
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from support.groups_under_test import GroupBroker, GroupRun, assigned, codes
from support.log_under_test import catch_up
from support.stored_log import end_transaction

T0 = OffsetKey("g", "t", 0)
CONSUMER_GROUP = 3


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path)


def write(broker: GroupBroker, *records: EncodedRecord, producer_id: int = -1) -> None:
    """Appends a batch as a coordinator of old did, or as part of a transaction."""
    if producer_id == -1:
        batch = batch_of(records, now_ms=broker.clock.now_ms(), codec=Codec.NONE)
    else:
        batch = build_batch(
            [
                Record(number, broker.clock.now_ms(), *record)
                for number, record in enumerate(records)
            ],
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
    broker.append(GROUP_METADATA_TOPIC, 0, batch, origin=AppendOrigin.COORDINATOR)


def end(broker: GroupBroker, producer_id: int, *, commit: bool) -> None:
    """Writes the marker of a transaction."""
    log = broker.log(GROUP_METADATA_TOPIC, 0)
    end_transaction(log, producer_id, commit=commit)
    catch_up(log)


def other_group(record_type: int, group_id: str = "g") -> EncodedRecord:
    """The record that a group of another protocol begins with."""
    key = GROUP_RECORDS.encode_key(record_type, {"groupId": group_id})
    return key, GROUP_RECORDS.encode_value(record_type, 0, {"epoch": 3})


def test_members_and_offsets_are_as_before_a_restart(broker: GroupBroker) -> None:
    run = GroupRun(broker)
    ids = run.stable(2)
    run.commit(7, member_id=ids[0], generation_id=1, metadata="m")
    again = run.restarted()
    assert again.state() is GroupState.STABLE
    assert again.fetched().metadata == "m"
    assert [again.heartbeat(each, 1) for each in ids] == [0, 0]
    assert again.sync(ids[1], 1)[0].assignment == assigned(ids[1])
    (answer,) = again.join(ids[1])
    assert (answer.generation_id, answer.leader) == (1, ids[0])


def test_sessions_of_loaded_members_begin_anew(broker: GroupBroker) -> None:
    run = GroupRun(broker)
    run.stable(2)
    again = run.restarted()
    assert again.state() is GroupState.STABLE
    again.timers.advance(9_999)
    assert again.state() is GroupState.STABLE
    again.timers.advance(1)
    assert again.state() is GroupState.EMPTY


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_offsets_of_every_version_are_read(broker: GroupBroker, version: int) -> None:
    fields = {"offset": 5, "metadata": "m", "commitTimestamp": 9, "leaderEpoch": 2}
    key = GROUP_RECORDS.encode_key(1, {"group": "g", "topic": "t", "partition": 0})
    write(broker, (key, GROUP_RECORDS.encode_value(1, version, fields)))
    found = GroupRun(broker).fetched()
    assert (found.offset, found.metadata) == (5, "m")
    assert found.leader_epoch == (2 if version >= 3 else -1)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_groups_of_every_version_are_read(broker: GroupBroker, version: int) -> None:
    member = {
        "memberId": "m",
        "clientId": "c",
        "clientHost": "/h",
        "rebalanceTimeout": 9_000,
        "sessionTimeout": 8_000,
        "subscription": b"",
        "assignment": b"a",
    }
    fields = {
        "protocolType": "consumer",
        "generation": 4,
        "protocol": "range",
        "leader": "m",
        "currentStateTimestamp": 5,
        "members": [member],
    }
    key = GROUP_RECORDS.encode_key(2, {"group": "g"})
    write(broker, (key, GROUP_RECORDS.encode_value(2, version, fields)))
    group = GroupRun(broker).groups.describe("g", ClassicGroup)
    assert (group.state, group.generation_id, group.leader_id) == (GroupState.STABLE, 4, "m")
    assert group.member("m").rebalance_timeout_ms == (9_000 if version else 8_000)
    assert group.state_timestamp_ms == (5 if version >= 2 else None)


def test_offset_of_a_transaction_counts_when_it_is_committed(broker: GroupBroker) -> None:
    write(broker, offset_commit(T0, CommittedOffset(1)))
    write(broker, offset_commit(T0, CommittedOffset(2)), producer_id=7)
    run = GroupRun(broker)
    assert run.offset() == 1
    unstable = run.fetched(require_stable=True)
    assert (unstable.offset, unstable.error_code) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    run.groups.close()
    end(broker, 7, commit=True)
    run = GroupRun(broker)
    assert run.fetched(require_stable=True).offset == 2


def test_offset_of_an_aborted_transaction_does_not_count(broker: GroupBroker) -> None:
    write(broker, offset_commit(T0, CommittedOffset(1)))
    write(broker, offset_commit(T0, CommittedOffset(2)), producer_id=7)
    end(broker, 7, commit=False)
    assert GroupRun(broker).fetched(require_stable=True).offset == 1


def test_offset_that_was_committed_after_the_transaction_s_stays(broker: GroupBroker) -> None:
    write(broker, offset_commit(T0, CommittedOffset(2)), producer_id=7)
    write(broker, offset_commit(T0, CommittedOffset(3)))
    end(broker, 7, commit=True)
    assert GroupRun(broker).offset() == 3


def test_transaction_that_is_open_keeps_offsets_and_group(broker: GroupBroker) -> None:
    write(broker, offset_commit(T0, CommittedOffset(1, commit_timestamp_ms=0)))
    write(broker, offset_commit(T0, CommittedOffset(2, commit_timestamp_ms=0)), producer_id=7)
    run = GroupRun(broker)
    run.groups.maintenance.expire_offsets()
    assert run.offset() == 1
    assert run.state() is not None


def test_tombstone_takes_an_offset_and_a_group_away(broker: GroupBroker) -> None:
    write(broker, offset_commit(T0, CommittedOffset(1)), offset_tombstone(T0))
    write(broker, (GROUP_RECORDS.encode_key(2, {"group": "g"}), None))
    run = GroupRun(broker)
    assert (run.offset(), run.state()) == (-1, None)


def test_records_of_unknown_types_are_left_alone(broker: GroupBroker) -> None:
    write(broker, (b"\x7f\xff???", b"?"), offset_commit(T0, CommittedOffset(1)))
    assert GroupRun(broker).offset() == 1


@pytest.mark.parametrize(("record_type", "kind"), [(11, "share"), (17, "streams")])
def test_groups_of_other_protocols_are_listed_and_not_touched(
    broker: GroupBroker, record_type: int, kind: str
) -> None:
    write(broker, offset_commit(T0, CommittedOffset(1, commit_timestamp_ms=0)))
    write(broker, other_group(record_type))
    before = len(broker.records())
    run = GroupRun(broker)
    run.groups.maintenance.expire_offsets()
    assert run.offset() == 1
    assert run.groups.list_groups() == [("g", kind, "Empty", kind)]
    assert codes(run.join()) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    assert run.delete_group() == ErrorCode.UNSUPPORTED_VERSION
    assert run.commit(2, generation_id=1, member_id="m") == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError, match="Group g is not a classic group"):
        run.groups.describe("g", ClassicGroup)
    assert len(broker.records()) == before


def test_group_of_another_protocol_that_has_ended_can_be_joined(broker: GroupBroker) -> None:
    ends = [(GROUP_RECORDS.encode_key(each, {"groupId": "g"}), None) for each in (6, 4, 3)]
    write(broker, other_group(CONSUMER_GROUP), *ends)
    assert GroupRun(broker).stable()


def test_offsets_can_be_set_for_a_consumer_group_that_is_not_running(broker: GroupBroker) -> None:
    write(broker, other_group(CONSUMER_GROUP))
    run = GroupRun(broker)
    assert run.commit(9) == ErrorCode.NONE
    assert run.offset() == 9
    assert run.delete_offsets(("t", 0)) == (ErrorCode.NONE, (ErrorCode.NONE,))
    assert run.groups.describe("g", ConsumerGroup).is_empty


def big_log(broker: GroupBroker) -> None:
    """Commits so much that it is not loaded at once."""
    parts = tuple(CommitPartition(number, number) for number in range(3_000))
    topic = CommitTopic("topic" * 10, parts)
    GroupRun(broker).commit_all(topic)
    broker.close()


def test_clients_are_told_to_come_back_while_a_large_log_is_read(broker: GroupBroker) -> None:
    big_log(broker)
    run = GroupRun(broker)
    listed: list[int] = []
    run.groups.start()
    run.groups.runtime.partitions.load_all(lambda: listed.append(len(run.groups.list_groups())))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert run.commit(1) == loading
    assert codes(run.join()) == [loading]
    assert codes(run.sync("m", 1)) == [loading]
    assert run.heartbeat("m", 1) == ErrorCode.NONE, "no reason to rejoin"
    assert run.delete_group() == loading
    with pytest.raises(KafkaError):
        run.groups.list_groups()
    assert listed == []
    assert broker.run_soon()
    assert listed == [1]
    assert run.offset("topic" * 10, 2_999) == 2_999


OFFSET_KEY = GROUP_RECORDS.encode_key(1, {"group": "g", "topic": "t", "partition": 0})


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ((OFFSET_KEY, b"\0\3short"), "OffsetCommit record at offset 1 cannot be read"),
        ((OFFSET_KEY[:-4], b"\0\4"), "OffsetCommit record at offset 1 cannot be read"),
        ((OFFSET_KEY, b"\0\x63\0"), "OffsetCommitValue of version 99"),
        ((b"\0\2\0\1g", b"\0\3\0\5ab"), "GroupMetadata record at offset 1"),
        ((b"", b"\0\3"), "record without a type at offset 1"),
    ],
    ids=["value", "key", "version of the value", "group", "no key"],
)
def test_log_that_cannot_be_read_has_no_coordinator(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture, record: EncodedRecord, words: str
) -> None:
    write(broker, offset_commit(T0, CommittedOffset(1)))
    write(broker, record)
    run = GroupRun(broker)
    assert run.commit(1) == ErrorCode.NOT_COORDINATOR
    assert run.groups.list_groups() == []
    (logged,) = [each for each in caplog.records if each.levelname == "ERROR"]
    text = logged.getMessage()
    assert words in text
    assert str(broker.root / f"{GROUP_METADATA_TOPIC}-0" / "00000000000000000000.log") in text
    assert "restore the partition's directory" in text
    assert logged.exc_info is None


def test_record_of_an_unknown_type_is_logged_and_the_others_are_read(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    write(broker, (b"\0\x63abc", b"x"))
    write(broker, offset_commit(T0, CommittedOffset(1)))
    assert GroupRun(broker).offset() == 1
    assert (
        "The record at offset 0 of __consumer_offsets-0 is ignored: record type 99" in caplog.text
    )


def test_groups_without_their_topic_have_no_coordinator(tmp_path: Path) -> None:
    run = GroupRun(GroupBroker(tmp_path, partitions=0))
    assert run.commit(1) == ErrorCode.NOT_COORDINATOR
    assert run.groups.list_groups() == []


def test_deleted_topic_of_the_groups_takes_them_all_away(broker: GroupBroker) -> None:
    run = GroupRun(broker)
    waiting = run.join(run.member_id())
    broker.delete(GROUP_METADATA_TOPIC)
    coordinators = Coordinators()
    coordinators.register(run.groups)
    coordinators.on_topics_deleted([GROUP_METADATA_TOPIC])
    assert codes(waiting) == [ErrorCode.NOT_COORDINATOR]
    assert run.groups.list_groups() == []


def test_batches_are_read_piece_by_piece(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = GroupRun(broker)
    for number in range(50):
        run.commit(number, partition=number)
    monkeypatch.setattr(coordinator_log, "_READ_BYTES", 200)
    again = run.restarted()
    assert [again.offset(partition=number) for number in range(50)] == list(range(50))


def test_groups_are_spread_over_partitions_as_java_hashes_them(tmp_path: Path) -> None:
    run = GroupRun(GroupBroker(tmp_path, partitions=50))
    # "polygenelubricants".hashCode() is the smallest int there is; "" hashes to 0.
    assert run.groups.partition_for("polygenelubricants").partition == 0
    assert run.groups.partition_for("").partition == 0
    assert run.groups.partition_for("console-consumer-1").partition == 24
    assert run.groups.partition_for("static").partition == 38, "its hash is negative"
    assert run.groups.partition_for("größe-\N{GRINNING FACE}").partition == 21
