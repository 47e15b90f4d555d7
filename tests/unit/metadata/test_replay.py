from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cordwood.configs.resource import ConfigResource
from cordwood.configs.sources import Sources, resolve_topic
from cordwood.format.control_record import ControlType, build_control_key
from cordwood.format.file_names import log_file_name, metadata_snapshot_name
from cordwood.format.metadata_records import encode_metadata_record
from cordwood.format.record_batch import Record, build_batch
from cordwood.metadata.image import Endpoint, MetadataImage, PartitionImage
from cordwood.metadata.replay import Replay, read_metadata_image, valid_batches
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.model.uuids import parse_uuid
from support.golden import Golden

ORDERS_ID = parse_uuid("b3JkZXJzAAAAAAAAAAAAAQ")
OTHER_ID = parse_uuid("b3RoZXIAAAAAAAAAAAAAAQ")
DIRECTORY_ID = parse_uuid("m8yCKPtj-67ToAczzdCnyQ")

Change = tuple[str, int, dict[str, Any]]


def topic(name: str = "orders", topic_id: UUID = ORDERS_ID) -> Change:
    return ("TopicRecord", 0, {"name": name, "topicId": topic_id})


def remove(topic_id: UUID = ORDERS_ID) -> Change:
    return ("RemoveTopicRecord", 0, {"topicId": topic_id})


def config(
    name: str, value: str | None, *, resource: str = "orders", kind: int = ConfigResource.TOPIC
) -> Change:
    return (
        "ConfigRecord",
        0,
        {"resourceType": kind, "resourceName": resource, "name": name, "value": value},
    )


def partition(**changes: Any) -> Change:
    fields: dict[str, Any] = {
        "partitionId": 0,
        "topicId": ORDERS_ID,
        "replicas": [1, 2],
        "isr": [1, 2],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": 1,
        "leaderEpoch": 0,
        "partitionEpoch": 0,
        "directories": [DIRECTORY_ID, DIRECTORY_ID],
    }
    return ("PartitionRecord", 1, fields | changes)


def partition_change(**changes: Any) -> Change:
    return ("PartitionChangeRecord", 1, {"partitionId": 0, "topicId": ORDERS_ID} | changes)


BEGIN: Change = ("BeginTransactionRecord", 0, {"name": "several batches"})
END: Change = ("EndTransactionRecord", 0, {})
ABORT: Change = ("AbortTransactionRecord", 0, {"reason": "a new controller"})


def data_batch(base_offset: int, changes: Iterable[Change], *, epoch: int = 1) -> bytes:
    records = [
        Record(
            offset=base_offset + number,
            timestamp=0,
            key=None,
            value=encode_metadata_record(name, version, fields),
        )
        for number, (name, version, fields) in enumerate(changes)
    ]
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=epoch)


def control_batch(base_offset: int, *controls: tuple[ControlType, bytes], epoch: int = 1) -> bytes:
    records = [
        Record(offset=base_offset + number, timestamp=0, key=build_control_key(kind), value=value)
        for number, (kind, value) in enumerate(controls)
    ]
    return build_batch(
        records, base_offset=base_offset, is_control=True, partition_leader_epoch=epoch
    )


def voters(*ids: int) -> tuple[ControlType, bytes]:
    one = struct.pack(">16s", b"\1" * 16) + b"\1" + struct.pack(">hh", 0, 1) + b"\0" + b"\0"
    listed = b"".join(struct.pack(">i", each) + one for each in ids)
    return ControlType.KRAFT_VOTERS, b"\0\0" + bytes([len(ids) + 1]) + listed + b"\0"


HEADER = (ControlType.SNAPSHOT_HEADER, struct.pack(">hq", 0, 0) + b"\0")
FOOTER = (ControlType.SNAPSHOT_FOOTER, struct.pack(">h", 0) + b"\0")


def snapshot_bytes(changes: Sequence[Change], *, epoch: int = 1) -> bytes:
    return (
        control_batch(0, HEADER, epoch=epoch)
        + data_batch(1, changes, epoch=epoch)
        + control_batch(1 + len(changes), FOOTER, epoch=epoch)
    )


class Directory:
    """A metadata log directory being made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next_offset = 0

    def log(self, *batches: Sequence[Change], start: int | None = None, epoch: int = 1) -> Path:
        """Adds a segment with a batch for each list of changes."""
        base = self.next_offset if start is None else start
        self.next_offset = base
        data = b""
        for changes in batches:
            data += data_batch(self.next_offset, changes, epoch=epoch)
            self.next_offset += len(changes)
        path = self.path / log_file_name(base)
        path.write_bytes(data)
        return path

    def snapshot(self, end_offset: int, changes: Sequence[Change], *, epoch: int = 1) -> Path:
        """Adds a snapshot."""
        path = self.path / metadata_snapshot_name(end_offset, epoch)
        path.write_bytes(snapshot_bytes(changes, epoch=epoch))
        return path

    def quorum(self, *ids: int) -> None:
        """Writes the state of a quorum with these voters."""
        state = {"currentVoters": [{"voterId": each} for each in ids], "data_version": 0}
        (self.path / "quorum-state").write_text(json.dumps(state))

    def read(self) -> MetadataImage:
        """The image of the directory."""
        return read_metadata_image(self.path)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


class TestRecords:
    def test_topics_and_their_settings(self, directory: Directory) -> None:
        directory.log(
            [topic(), topic("other", OTHER_ID)],
            [config("retention.ms", "5"), config("cleanup.policy", "")],
            [config("log.retention.ms", "6", resource="", kind=ConfigResource.BROKER)],
            [config("log.retention.ms", "7", resource="3", kind=ConfigResource.BROKER)],
        )
        image = directory.read()
        assert set(image.topics) == {"orders", "other"}
        assert image.topics["orders"].topic_id == ORDERS_ID
        assert image.topic_names[OTHER_ID] == "other"
        assert image.topic_config("orders") == {"retention.ms": "5", "cleanup.policy": ""}
        assert image.topic_config("other") == {}
        assert image.configs[ConfigResource.BROKER, ""] == {"log.retention.ms": "6"}
        assert image.configs[ConfigResource.BROKER, "3"] == {"log.retention.ms": "7"}
        assert (image.next_offset, image.epoch) == (6, 1)

    def test_a_null_value_takes_a_setting_away(self, directory: Directory) -> None:
        directory.log(
            [topic(), config("retention.ms", "5"), config("segment.ms", "6")],
            [config("retention.ms", None)],
        )
        assert directory.read().topic_config("orders") == {"segment.ms": "6"}
        directory.log([config("segment.ms", None)])
        assert directory.read().configs == {}

    def test_a_topic_takes_its_settings_with_it(self, directory: Directory) -> None:
        directory.log(
            [topic(), partition(), config("retention.ms", "5")],
            [remove(), topic(topic_id=OTHER_ID)],
        )
        image = directory.read()
        assert image.topic_names == {OTHER_ID: "orders"}
        assert image.topic_config("orders") == {}
        assert image.topics["orders"].partitions == {}

    def test_changes_of_a_partition(self, directory: Directory) -> None:
        directory.log([topic(), partition()])
        directory.log([partition_change(isr=[1])])
        directory.log([partition_change(leader=1)])
        directory.log([partition_change(leader=-1, replicas=[1], directories=[DIRECTORY_ID])])
        assert directory.read().topics["orders"].partitions == {
            0: PartitionImage(
                replicas=(1,),
                isr=(1,),
                leader=-1,
                leader_epoch=2,
                partition_epoch=3,
                directories=(DIRECTORY_ID,),
            )
        }

    def test_the_life_of_a_broker(self, directory: Directory) -> None:
        registration = {
            "brokerId": 1,
            "incarnationId": DIRECTORY_ID,
            "brokerEpoch": 8,
            "endPoints": [{"name": "X", "host": "h", "port": 9, "securityProtocol": 0}],
            "features": [],
            "rack": "r",
            "fenced": True,
            "logDirs": [DIRECTORY_ID],
        }
        same = {"brokerId": 1, "brokerEpoch": 8}
        directory.log([("RegisterBrokerRecord", 3, registration)])
        broker = directory.read().brokers[1]
        assert (broker.epoch, broker.rack, broker.fenced) == (8, "r", True)
        assert broker.endpoints == (Endpoint(name="X", host="h", port=9),)
        directory.log([("BrokerRegistrationChangeRecord", 0, {**same, "fenced": -1})])
        assert not directory.read().brokers[1].fenced
        directory.log([("BrokerRegistrationChangeRecord", 1, {**same, "inControlledShutdown": 1})])
        directory.log([("BrokerRegistrationChangeRecord", 2, {**same, "logDirs": [ORDERS_ID]})])
        broker = directory.read().brokers[1]
        assert (broker.fenced, broker.in_controlled_shutdown) == (False, True)
        assert broker.log_dirs == (ORDERS_ID,)
        directory.log([("FenceBrokerRecord", 0, {"id": 1, "epoch": 8})])
        assert directory.read().brokers[1].fenced
        directory.log([("UnfenceBrokerRecord", 0, {"id": 1, "epoch": 8})])
        assert not directory.read().brokers[1].fenced
        directory.log([("UnregisterBrokerRecord", 0, same)])
        assert directory.read().brokers == {}

    def test_controllers(self, directory: Directory) -> None:
        registration = {
            "controllerId": 3000,
            "incarnationId": ORDERS_ID,
            "zkMigrationReady": False,
            "endPoints": [],
            "features": [],
        }
        directory.log([("RegisterControllerRecord", 0, registration)])
        assert list(directory.read().controllers) == [3000]
        unregistered: Change = ("UnregisterControllerRecord", 0, {"controllerId": 3000})
        directory.log([unregistered, unregistered])
        assert directory.read().controllers == {}

    def test_features(self, directory: Directory) -> None:
        directory.log(
            [
                ("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": 30}),
                ("FeatureLevelRecord", 0, {"name": "group.version", "featureLevel": 1}),
                ("FeatureLevelRecord", 0, {"name": "group.version", "featureLevel": 0}),
                ("NoOpRecord", 0, {}),
            ]
        )
        assert directory.read().features == {"metadata.version": 30}


class TestTransactions:
    def test_records_count_when_the_transaction_ends(self, directory: Directory) -> None:
        directory.log([BEGIN, topic()], [config("retention.ms", "5")], [END])
        assert directory.read().topic_config("orders") == {"retention.ms": "5"}

    def test_an_aborted_one_leaves_no_trace(self, directory: Directory) -> None:
        directory.log(
            [topic(), partition(), config("retention.ms", "5")],
            [BEGIN, config("retention.ms", "6"), partition_change(leader=2)],
            [topic("other", OTHER_ID), ABORT],
        )
        image = directory.read()
        assert set(image.topics) == {"orders"}
        assert image.topic_config("orders") == {"retention.ms": "5"}
        assert image.topics["orders"].partitions[0].leader == 1
        assert image.next_offset == 8

    def test_an_open_one_does_not_count_yet(self, directory: Directory) -> None:
        directory.log([topic()], [BEGIN, remove()])
        assert set(directory.read().topics) == {"orders"}

    @pytest.mark.parametrize("changes", [[END], [ABORT], [BEGIN, BEGIN]])
    def test_out_of_turn(self, directory: Directory, changes: list[Change]) -> None:
        path = directory.log([topic()], changes)
        with pytest.raises(CorruptError, match="metadata transaction") as caught:
            directory.read()
        assert caught.value.path == str(path)
        assert caught.value.position == len(data_batch(0, [topic()]))


class TestSnapshots:
    def test_the_newest_counts_and_the_log_from_its_end(self, directory: Directory) -> None:
        directory.snapshot(2, [topic("old", OTHER_ID)])
        directory.snapshot(4, [topic(), config("retention.ms", "5")])
        directory.log([topic("old", OTHER_ID), remove(OTHER_ID)], [topic(), remove()])
        directory.log([config("segment.ms", "6")])
        image = directory.read()
        assert set(image.topics) == {"orders"}
        assert image.topic_config("orders") == {"retention.ms": "5", "segment.ms": "6"}
        assert image.next_offset == 5

    def test_of_a_batch_that_the_snapshot_ends_in_the_rest_counts(
        self, directory: Directory
    ) -> None:
        directory.snapshot(1, [topic()])
        directory.log([topic(), config("retention.ms", "5")])
        assert directory.read().topic_config("orders") == {"retention.ms": "5"}

    def test_alone(self, directory: Directory) -> None:
        directory.snapshot(40, [topic()], epoch=3)
        image = directory.read()
        assert set(image.topics) == {"orders"}
        assert (image.next_offset, image.epoch) == (40, 3)

    @pytest.mark.parametrize(("end_offset", "epoch"), [(9, 1), (2, 2)])
    def test_a_log_that_ends_before_it_does_not_count(
        self, directory: Directory, end_offset: int, epoch: int
    ) -> None:
        directory.snapshot(end_offset, [topic()], epoch=epoch)
        directory.log([topic("old", OTHER_ID)], [config("retention.ms", "5")], [remove(OTHER_ID)])
        image = directory.read()
        assert set(image.topics) == {"orders"}
        assert image.next_offset == end_offset

    def test_without_a_footer_it_is_not_whole(self, directory: Directory) -> None:
        path = directory.snapshot(4, [topic()])
        whole = path.read_bytes()
        path.write_bytes(whole[: -len(control_batch(2, FOOTER))])
        with pytest.raises(CorruptError, match="snapshot without its footer") as caught:
            directory.read()
        assert caught.value.path == str(path)

    def test_files_under_way_or_going_are_passed_over(self, directory: Directory) -> None:
        directory.log([topic()])
        for suffix in (".part", ".deleted"):
            (directory.path / (metadata_snapshot_name(9, 1) + suffix)).write_bytes(b"x")
        (directory.path / "00000000000000000001.snapshot").write_bytes(b"x")
        (directory.path / (log_file_name(0) + ".deleted")).write_bytes(b"x")
        assert set(directory.read().topics) == {"orders"}


class TestDamage:
    def test_a_batch_cut_off_at_the_end_is_left_out(self, directory: Directory) -> None:
        path = directory.log([topic()], [config("retention.ms", "5")])
        whole = path.read_bytes()
        first = len(data_batch(0, [topic()]))
        for size in range(first, len(whole)):
            path.write_bytes(whole[:size])
            image = directory.read()
            assert (image.next_offset, image.topic_config("orders")) == (1, {}), size

    def test_a_flipped_bit_is_found(self, directory: Directory) -> None:
        path = directory.log([topic()], [config("retention.ms", "5")])
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptError, match="has CRC") as caught:
            directory.read()
        assert caught.value.path == str(path)
        assert caught.value.position == len(data_batch(0, [topic()]))

    def test_a_flipped_bit_in_a_snapshot_is_found(self, directory: Directory) -> None:
        path = directory.snapshot(4, [topic()])
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptError, match="has CRC") as caught:
            directory.read()
        assert caught.value.path == str(path)

    def test_a_missing_segment_is_found(self, directory: Directory) -> None:
        directory.log([topic()])
        directory.log([config("retention.ms", "5")]).unlink()
        path = directory.log([config("segment.ms", "5")])
        with pytest.raises(CorruptError, match=r"offset 2 does not follow .* ended at 1") as caught:
            directory.read()
        assert (caught.value.path, caught.value.position) == (str(path), 0)

    def test_a_missing_beginning_is_found(self, directory: Directory) -> None:
        directory.log([config("retention.ms", "5")], start=5)
        with pytest.raises(CorruptError, match="offset 5 does not follow"):
            directory.read()

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(b"\x02\x02\x00", id="frame"),
            pytest.param(b"\x01\x63\x00", id="kind"),
            pytest.param(b"\x01\x02\x07", id="version"),
        ],
    )
    def test_what_is_of_a_later_kafka_is_refused(self, directory: Directory, value: bytes) -> None:
        path = directory.log([topic()])
        record = Record(offset=1, timestamp=0, key=None, value=value)
        first = path.read_bytes()
        path.write_bytes(first + build_batch([record], base_offset=1))
        with pytest.raises(UnsupportedVersionError) as caught:
            directory.read()
        assert (caught.value.path, caught.value.position) == (str(path), len(first))

    @pytest.mark.parametrize(
        "change",
        [
            remove(),
            partition(),
            partition_change(leader=1),
            ("UnregisterBrokerRecord", 0, {"brokerId": 1, "brokerEpoch": 1}),
        ],
    )
    def test_changes_of_what_is_not_there(self, directory: Directory, change: Change) -> None:
        directory.log([change])
        with pytest.raises(CorruptError, match=r"missing|not there|no such topic|not registered"):
            directory.read()

    @pytest.mark.parametrize("text", ["", "[]", "{"])
    def test_a_quorum_state_that_is_none(self, directory: Directory, text: str) -> None:
        directory.log([topic()])
        (directory.path / "quorum-state").write_text(text)
        with pytest.raises(CorruptError, match="not the state of a quorum"):
            directory.read()


class TestHowFarTheLogIsCommitted:
    @pytest.mark.parametrize(("ids", "uncertain"), [((1,), False), ((1, 2, 3), True), ((), True)])
    def test_by_the_state_of_the_quorum(
        self, directory: Directory, ids: tuple[int, ...], uncertain: bool
    ) -> None:
        directory.log([topic()])
        directory.quorum(*ids)
        assert directory.read().may_have_uncommitted_suffix is uncertain

    def test_without_any_word_of_voters_it_is_not_known(self, directory: Directory) -> None:
        directory.log([topic()])
        assert directory.read().may_have_uncommitted_suffix

    @pytest.mark.parametrize(("ids", "uncertain"), [((1,), False), ((1, 2, 3), True)])
    def test_voters_recorded_in_the_log_come_first(
        self, directory: Directory, ids: tuple[int, ...], uncertain: bool
    ) -> None:
        path = directory.path / log_file_name(0)
        path.write_bytes(control_batch(0, voters(*ids)) + data_batch(1, [topic()]))
        directory.quorum(9) if uncertain else directory.quorum(7, 8, 9)
        image = directory.read()
        assert set(image.topics) == {"orders"}
        assert image.may_have_uncommitted_suffix is uncertain

    def test_voters_of_the_first_snapshot(self, directory: Directory) -> None:
        path = directory.path / metadata_snapshot_name(0, 0)
        path.write_bytes(
            control_batch(0, HEADER, voters(1), epoch=0) + control_batch(2, FOOTER, epoch=0)
        )
        directory.log([topic()])
        image = directory.read()
        assert set(image.topics) == {"orders"}
        assert not image.may_have_uncommitted_suffix


class TestTheLogOfARealKafka:
    @pytest.mark.parametrize("which", ["before", "after", "before-2", "after-2"])
    def test_settings_are_those_the_topics_were_created_with(
        self, golden_a: Golden, which: str
    ) -> None:
        image = read_metadata_image(golden_a.root / which / "__cluster_metadata-0")
        assert set(image.topics) == golden_a.topics.keys() | {
            "__consumer_offsets",
            "__transaction_state",
        }
        for name, settings in golden_a.topics.items():
            found = dict(image.topic_config(name))
            # Kafka's tools do not show this one: it is internal.
            assert int(found.pop("internal.segment.bytes")) >= 32768, name
            assert found == settings, name
        assert not image.may_have_uncommitted_suffix
        assert image.features["metadata.version"] == 30

    def test_every_topic_has_its_settings_in_force(self, golden_a: Golden) -> None:
        image = read_metadata_image(golden_a.root / "before" / "__cluster_metadata-0")
        sources = Sources(metadata=image)
        found = {name: resolve_topic(sources, name, node_id=1) for name in image.topics}
        configs = {name: each.config for name, each in found.items() if each is not None}
        assert configs.keys() == set(image.topics)
        assert configs["tombstones-gone"].delete_retention_ms == 0
        assert configs["compact-and-delete"].cleanup_policy == {"compact", "delete"}
        assert configs["keep-forever"].retention_ms == -1
        assert configs["codec-none"].segment_bytes == 65536
        assert configs["__consumer_offsets"].cleanup_policy == {"compact"}
        assert configs["min-lag"].min_cleanable_dirty_ratio == 0.01

    def test_replicas_and_directories(self, golden_a: Golden) -> None:
        image = read_metadata_image(golden_a.root / "before" / "__cluster_metadata-0")
        (broker,) = image.brokers.values()
        for name, topic_image in image.topics.items():
            for each in topic_image.partitions.values():
                assert each.replicas == (broker.broker_id,), name
                assert each.directories == broker.log_dirs, name


ILLEGAL = ("", ".", "..", "../../evil", "/etc/evil", "a/b", "a\0b", "x" * 10_000, "a b", "\u00e9")


@pytest.mark.parametrize("name", ILLEGAL, ids=lambda name: repr(name)[:20])
def test_a_topic_with_an_illegal_name_is_refused_with_its_place(tmp_path: Path, name: str) -> None:
    directory = Directory(tmp_path)
    path = directory.log([topic()], [topic(name, OTHER_ID)])
    with pytest.raises(
        CorruptError, match=r"TopicRecord at offset 1 cannot be read.*illegal name"
    ) as e:
        directory.read()
    assert e.value.path == str(path)
    assert e.value.position == len(data_batch(0, [topic()]))
    assert len(str(e.value)) < 2_000


def test_a_follower_of_a_controller_leaves_out_what_has_an_illegal_name_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replay = Replay(skips_faults=True)
    of_it = partition(topicId=OTHER_ID)
    data = data_batch(0, [topic("../../evil", OTHER_ID), of_it, topic(), partition()])
    for batch in valid_batches(data):
        replay.take_log_batch(batch)
    assert set(replay.image().topics) == {"orders"}
    assert replay.next_offset == 4
    assert "Error loading metadata log record from offset 0: TopicRecord" in caplog.text
    assert "Error loading metadata log record from offset 1: PartitionRecord" in caplog.text


def test_what_is_not_a_record_is_no_fault_to_be_left_out() -> None:
    replay = Replay(skips_faults=True)
    record = Record(offset=0, timestamp=0, key=None, value=b"\1\2")
    (batch,) = valid_batches(build_batch([record], base_offset=0))
    with pytest.raises(CorruptError):
        replay.take_log_batch(batch)
