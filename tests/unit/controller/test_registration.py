"""Records of a start, a stop and a crash, one by one as Kafka writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cordwood.format.metadata_records import encode_metadata_record
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch
from cordwood.metadata.controller_requests import NewTopic
from cordwood.metadata.replay import read_metadata_image
from cordwood.model.errors import ConfigError, UnsupportedVersionError
from cordwood.model.uuids import uuid_text
from support.controller_under_test import ControllerUnderTest, names_of, requests_to

NO_ELR = {"metadata.version": 22, "group.version": 1}


@pytest.fixture
def place(tmp_path: Path) -> ControllerUnderTest:
    return ControllerUnderTest(tmp_path / "d")


def test_an_empty_log_begins_with_the_voters_and_the_bootstrap_records(
    place: ControllerUnderTest,
) -> None:
    controller = place.serve()
    batches = place.batches()
    assert [names_of(batch) for batch in batches] == [
        ["LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"],
        [
            "BeginTransactionRecord",
            *["FeatureLevelRecord"] * 4,
            "ConfigRecord",
            "EndTransactionRecord",
        ],
        ["RegisterControllerRecord"],
        ["RegisterBrokerRecord"],
        ["BrokerRegistrationChangeRecord"],
        ["BrokerRegistrationChangeRecord"],
    ]
    assert batches[1][0][1] == {"name": "Bootstrap records"}
    assert batches[1][5][1] == {
        "resourceType": 4,
        "resourceName": "",
        "name": "min.insync.replicas",
        "value": "1",
    }
    same = {"brokerId": 1, "brokerEpoch": 11}
    assert batches[4] == [("BrokerRegistrationChangeRecord", {**same, "cordonedLogDirs": []})]
    assert batches[5] == [("BrokerRegistrationChangeRecord", {**same, "fenced": -1})]
    broker = controller.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.log_dirs) == (11, False, tuple(place.ids))
    assert controller.image.offset == 13


def test_the_records_of_a_cluster_of_4_4_are_in_its_first_snapshot(tmp_path: Path) -> None:
    levels = {"metadata.version": 33, "group.version": 1, "share.version": 2}
    place = ControllerUnderTest(tmp_path / "d", features=levels)
    assert not (tmp_path / "d/bootstrap.checkpoint").exists()
    assert read_metadata_image(place.directory).features == {}  # none is committed yet
    controller = place.serve()
    assert controller.image.features == levels
    assert [names_of(batch) for batch in place.batches()][:3] == [
        ["LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"],
        ["BeginTransactionRecord", *["FeatureLevelRecord"] * 3, "EndTransactionRecord"],
        ["RegisterControllerRecord"],
    ]
    controller = place.restarted(controller)
    assert controller.image.features == levels
    assert [names_of(batch) for batch in place.batches()].count(
        ["BeginTransactionRecord", *["FeatureLevelRecord"] * 3, "EndTransactionRecord"]
    ) == 1


def test_the_quorum_state_names_the_leader_of_each_epoch(place: ControllerUnderTest) -> None:
    controller = place.serve()
    for epoch in (1, 2, 3):
        state = json.loads((place.directory / "quorum-state").read_text())
        assert state == {
            "leaderId": 1,
            "leaderEpoch": epoch,
            "votedId": -1,
            "votedDirectoryId": "A" * 22,
            "data_version": 1,
        }
        assert requests_to(controller).describe_quorum().leader_epoch == epoch
        controller = place.restarted(controller)


def test_a_clean_stop_leaves_partitions_without_a_leader_and_a_start_elects_it(
    place: ControllerUnderTest,
) -> None:
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    count = len(place.batches())
    controller.close()
    stopped = place.batches()[count:]
    epoch = controller.broker_epoch
    place.serve(previous_broker_epoch=epoch).abandon()
    started = place.batches()[count + len(stopped) :]
    topic_id = uuid_text(controller.image.topics["t"].topic_id)
    partition = {"partitionId": 0, "topicId": topic_id}
    assert stopped == [
        [
            (
                "BrokerRegistrationChangeRecord",
                {"brokerId": 1, "brokerEpoch": epoch, "inControlledShutdown": 1},
            ),
            (
                "PartitionChangeRecord",
                {
                    **partition,
                    "isr": [],
                    "leader": -1,
                    "eligibleLeaderReplicas": [1],
                    "lastKnownElr": [1],
                },
            ),
        ],
        [
            (
                "BrokerRegistrationChangeRecord",
                {"brokerId": 1, "brokerEpoch": epoch, "fenced": 1},
            )
        ],
    ]
    assert [names_of(batch) for batch in started[:4]] == [
        ["LEADER_CHANGE"],
        ["RegisterControllerRecord"],
        ["RegisterBrokerRecord"],
        ["BrokerRegistrationChangeRecord"],
    ]
    registered = started[2][0][1]
    assert registered["brokerEpoch"] == controller.image.next_offset + 2
    assert started[4][1] == (
        "PartitionChangeRecord",
        {
            **partition,
            "isr": [1],
            "leader": 1,
            "eligibleLeaderReplicas": [],
            "lastKnownElr": [],
        },
    )


def test_after_a_crash_the_last_leader_is_elected_uncleanly(place: ControllerUnderTest) -> None:
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    count = len(place.batches())
    controller.abandon()
    again = place.serve()
    changes = [
        fields
        for batch in place.batches()[count:]
        for name, fields in batch
        if name == "PartitionChangeRecord"
    ]
    topic_id = uuid_text(again.image.topics["t"].topic_id)
    same = {"partitionId": 0, "topicId": topic_id}
    assert changes == [
        {**same, "isr": [], "leader": -1, "eligibleLeaderReplicas": [1], "lastKnownElr": [1]},
        {**same, "eligibleLeaderReplicas": []},
        {**same, "isr": [1], "leader": 1, "leaderRecoveryState": 1, "lastKnownElr": []},
    ]
    partition = again.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.recovery_state) == (1, (1,), 1)
    assert (partition.leader_epoch, partition.partition_epoch) == (2, 3)


def test_the_epoch_of_a_broker_is_the_offset_where_its_registration_begins(
    place: ControllerUnderTest,
) -> None:
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t", num_partitions=3)])
    controller.abandon()
    count = len(place.batches())
    again = place.serve()
    offset = controller.image.next_offset
    for batch in place.batches()[count:]:
        if "RegisterBrokerRecord" in names_of(batch):
            break
        offset += len(batch)
    assert again.broker_epoch == offset
    assert names_of(batch) == [*["PartitionChangeRecord"] * 3, "RegisterBrokerRecord"]


def test_without_eligible_leader_replicas_the_isr_stays(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d", features=NO_ELR)
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    assert not controller.image.configs
    controller.close()
    partition = controller.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (-1, (1,), ())
    again = place.serve()
    partition = again.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)
    versions = {
        name: fields
        for batch in place.batches()
        for name, fields in batch
        if name in {"RegisterBrokerRecord", "PartitionRecord"}
    }
    assert "cordonedLogDirs" not in versions["RegisterBrokerRecord"]
    assert "directories" in versions["PartitionRecord"]


def test_an_old_metadata_version_knows_no_directories_and_no_controllers(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d", features={"metadata.version": 7})
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    names = [name for batch in place.batches() for name, _ in batch]
    assert "BeginTransactionRecord" not in names
    assert "RegisterControllerRecord" not in names
    assert controller.image.brokers[1].log_dirs == ()
    assert place.restarted(controller).image.topics["t"].partitions[0].leader == 1


def test_a_transaction_that_was_left_open_is_aborted(place: ControllerUnderTest) -> None:
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    controller.abandon()
    changes: list[tuple[str, dict[str, Any]]] = [
        ("BeginTransactionRecord", {"name": "half"}),
        ("RemoveTopicRecord", {"topicId": controller.image.topics["t"].topic_id}),
    ]
    base = controller.image.next_offset
    path = place.directory / f"{0:020}.log"
    with path.open("ab") as log:
        log.write(
            build_batch(
                [
                    Record(base + number, 0, None, encode_metadata_record(name, 0, fields))
                    for number, (name, fields) in enumerate(changes)
                ],
                base_offset=base,
                partition_leader_epoch=1,
            )
        )
    again = place.serve()
    assert "t" in again.image.topics
    assert ("AbortTransactionRecord", {"reason": "Controller failover"}) in [
        record for batch in place.batches() for record in batch
    ]
    requests_to(again).create_topics([NewTopic(name="u")])
    assert set(read_metadata_image(place.directory).topics) == {"t", "u"}


def test_half_a_batch_at_the_end_is_cut_off(place: ControllerUnderTest) -> None:
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    controller.abandon()
    path = place.directory / f"{0:020}.log"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-50:])
    again = place.serve()
    requests_to(again).create_topics([NewTopic(name="u")])
    assert set(read_metadata_image(place.directory).topics) == {"t", "u"}


def test_without_a_quorum_state_the_epoch_still_rises(place: ControllerUnderTest) -> None:
    controller = place.serve()
    controller = place.restarted(controller)
    controller.close()
    (place.directory / "quorum-state").unlink()
    assert requests_to(place.serve()).describe_quorum().leader_epoch == 3


def test_a_quorum_of_others_is_refused(place: ControllerUnderTest, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="voters"):
        place.open(node_id=2)
    static = ControllerUnderTest(tmp_path / "static")
    for name in ("0" * 20 + "-0000000000.checkpoint",):
        (static.directory / name).unlink()
    state = {"leaderEpoch": 4, "currentVoters": [{"voterId": 1}, {"voterId": 2}]}
    (static.directory / "quorum-state").write_text(json.dumps(state))
    with pytest.raises(ConfigError, match="voters"):
        static.open()


def test_a_static_quorum_of_this_node_stays_static(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d")
    (place.directory / ("0" * 20 + "-0000000000.checkpoint")).unlink()
    controller = place.serve()
    assert names_of(place.batches()[0]) == ["LEADER_CHANGE"]
    state = json.loads((place.directory / "quorum-state").read_text())
    assert (state["currentVoters"], state["data_version"]) == ([{"voterId": 1}], 0)
    assert controller.log.kraft_version == 0
    again = place.restarted(controller)
    assert requests_to(again).describe_quorum().leader_epoch == 2
    assert requests_to(again).describe_quorum().voters[0].directory_id.int == 0


def test_a_cluster_of_a_later_kafka_is_refused(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d")
    controller = place.serve()
    controller.abandon()
    later = {"name": "metadata.version", "featureLevel": 34}
    base = controller.image.next_offset
    record = Record(base, 0, None, encode_metadata_record("FeatureLevelRecord", 0, later))
    with (place.directory / f"{0:020}.log").open("ab") as log:
        log.write(build_batch([record], base_offset=base, partition_leader_epoch=1))
    with pytest.raises(UnsupportedVersionError, match=r"metadata\.version at level 34"):
        place.open()


def test_blocks_of_producer_ids_never_come_twice(place: ControllerUnderTest) -> None:
    controller = place.serve()
    assert [controller.allocate_producer_ids(1, 11) for _ in range(2)] == [(0, 1000), (1000, 1000)]
    again = place.restarted(controller)
    assert again.allocate_producer_ids(1, again.broker_epoch) == (2000, 1000)
    again.abandon()
    assert place.serve().allocate_producer_ids(1, 11) == (3000, 1000)
