"""Topics that are made and deleted: what clients of others notice of it."""

from __future__ import annotations

import threading
import uuid
from asyncio import Future, Task
from pathlib import Path

import pytest

from cordwood.broker.broker import Broker
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.transaction.requests import InitProducerIdAnswer, InitProducerIdRequest
from cordwood.metadata.image import PartitionImage
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.metadata.records import ApiRecord, partition_record, topic_record
from cordwood.model.kafka_errors import InvalidTopicError
from cordwood.model.pauses import background
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OsFileSystem
from cordwood.storage.log_manager import LogManager
from cordwood.testing.broker import RunningBroker
from support.controller_under_test import append_to_metadata_log
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Plain, Wire


async def _producer_id(broker: Broker) -> int:
    """The id of a new idempotent producer."""
    answer = CoordinatorAnswer[InitProducerIdAnswer](broker.thread)
    request = InitProducerIdRequest(transactional_id=None, timeout_ms=0)
    broker.transactions.init_producer_id(request, answer)
    return (await answer.value()).producer_id


def create(wire: Wire, name: str, partitions: int) -> None:
    asked = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    wire.ask("create_topics", 5, {"timeout_ms": 5000, "topics": [asked]})


def metadata(wire: Wire, *names: str) -> dict[str, str]:
    """The error of each topic."""
    topics = [{"name": name} for name in names]
    answer = wire.ask("metadata", 9, {"topics": topics, "allow_auto_topic_creation": True})
    return {each["name"]: each["error_code"] for each in answer["topics"]}


def test_nobody_waits_while_a_topic_of_many_partitions_is_deleted() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        create(wire, "wide", 20)
        held = running.broker.replicas.logs.logs()[0]
        answers: list[Plain] = []

        def delete() -> None:
            with Wire(running.port) as other:
                asked = {"topic_names": ["wide"], "timeout_ms": 1000}
                answers.append(other.ask("delete_topics", 4, asked))
                answers.append(other.ask("api_versions", 0, {}))

        thread = threading.Thread(target=delete)
        with held.lock:  # as by a slow disk
            thread.start()
            thread.join(120)
            served_meanwhile = len(answers)
        thread.join()
        assert served_meanwhile == 2


def test_a_stop_waits_for_deletions(tmp_path: Path) -> None:
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        Wire(running.port) as wire,
    ):
        create(wire, "wide", 20)
        wire.ask("delete_topics", 4, {"topic_names": ["wide"], "timeout_ms": 1000})
    names = [path.name for path in tmp_path.glob("wide-*")]
    assert len(names) == 20
    assert all(name.endswith("-delete") for name in names)


class Updates:
    """A publisher that keeps all updates."""

    def __init__(self) -> None:
        self.seen: list[MetadataUpdate] = []

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        self.seen.append(update)


def test_topics_asked_for_together_are_made_in_one_change() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        names = [f"t{number}" for number in range(30)]
        updates = Updates()
        running.call(lambda _: running.node.loader.install(updates))
        told = metadata(wire, *names, "not/one")
        assert told == dict.fromkeys(names, "unknown_topic_or_partition") | {
            "not/one": "invalid_topic_exception"
        }
        assert len(updates.seen) == 2  # the first image, and one change
        assert metadata(wire, *names) == dict.fromkeys(names, "none")


class BrokenFileSystem(OsFileSystem):
    """Raises what no disk raises when the directory of t-0 is made."""

    def make_directory(self, path: Path) -> None:
        if path.name == "t-0":
            raise RuntimeError("as by a bug")
        super().make_directory(path)


class HeldFileSystem(OsFileSystem):
    """Creates no directory of the topic `held` before the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()

    def make_directory(self, path: Path) -> None:
        if path.name.startswith("held-"):
            self.begun.set()
            assert self.let_go.wait(120)
        super().make_directory(path)


def test_a_topic_is_created_for_the_client_when_its_logs_are_there(tmp_path: Path) -> None:
    fs = HeldFileSystem()
    answers: list[str] = []
    with RunningBroker(log_dir=tmp_path, engine=NoEngine, fs=fs) as running:

        def ask() -> None:
            with Wire(running.port) as wire:
                create(wire, "held", 3)
                asked = {
                    "name": "held",
                    "partitions": [{"partition_index": n, "timestamp": -1} for n in range(3)],
                }
                answer = wire.ask("list_offsets", 6, {"replica_id": -1, "topics": [asked]})
                answers.extend(each["error_code"] for each in answer["topics"][0]["partitions"])

        thread = threading.Thread(target=ask)
        thread.start()
        assert fs.begun.wait(120)
        with Wire(running.port) as other:  # other requests are served meanwhile
            assert metadata(other, "held") == {"held": "none"}
        assert not answers
        fs.let_go.set()
        thread.join(120)
    assert answers == ["none"] * 3


def ends(wire: Wire, name: str, partitions: int = 1) -> set[str]:
    """The errors of a topic's partitions when their ends are asked for."""
    numbers = [{"partition_index": n, "timestamp": -1} for n in range(partitions)]
    asked = {"replica_id": -1, "topics": [{"name": name, "partitions": numbers}]}
    answer = wire.ask("list_offsets", 6, asked)
    return {each["error_code"] for each in answer["topics"][0]["partitions"]}


def test_a_partition_without_a_log_is_offline_only_where_a_directory_is(tmp_path: Path) -> None:
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine, fs=BrokenFileSystem()) as running,
        Wire(running.port) as wire,
    ):
        create(wire, "t", 1)
        assert ends(wire, "t") == {"not_leader_or_follower"}


def test_a_topic_that_is_made_again_has_no_offline_partitions_until_the_old_logs_are_gone() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        create(wire, "wide", 20)
        held = running.broker.replicas.logs.logs()[0]
        seen = set()

        def delete_and_create() -> None:
            with Wire(running.port) as other:
                other.ask("delete_topics", 4, {"topic_names": ["wide"], "timeout_ms": 1000})
                create(other, "wide", 20)
                seen.update(ends(other, "wide", 20))

        thread = threading.Thread(target=delete_and_create)
        with held.lock:  # as by a slow disk
            thread.start()
            thread.join(120)
        assert seen == {"not_leader_or_follower"}
        poll_until(lambda: ends(wire, "wide", 20) == {"none"}, what="new logs", timeout_s=120)


def test_producers_that_ask_at_the_same_time_get_ids_of_one_block() -> None:
    with RunningBroker(engine=NoEngine) as running:
        held, let_go = threading.Event(), threading.Event()

        def hold(broker: Broker) -> Future[None]:
            def change() -> None:
                with running.node.controller.between_changes, background():
                    held.set()
                    assert let_go.wait(120)

            return broker.thread.slices.run(change)

        def ask(broker: Broker) -> list[Task[int]]:
            return [broker.thread.loop.create_task(_producer_id(broker)) for _ in range(3)]

        running.call(hold)
        assert held.wait(120)
        asked = running.call(ask)
        poll_until(
            lambda: running.call(lambda broker: broker.thread.slices.unfinished_count) >= 2,
            timeout_s=120,
            what="a request that waits for the change",
        )
        let_go.set()
        poll_until(
            lambda: running.call(lambda _: all(each.done() for each in asked)),
            timeout_s=120,
            what="the ids",
        )
        ids = sorted(each.result() for each in asked)
        assert ids == [ids[0], ids[0] + 1, ids[0] + 2]


METADATA_LOG = "__cluster_metadata"


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12, 13])
def test_metadata_never_creates_a_topic_with_the_name_of_the_metadata_log(
    running: RunningBroker, wire: Wire, version: int
) -> None:
    asked = {"topics": [{"name": METADATA_LOG}], "allow_auto_topic_creation": True}
    for _ in range(2):
        (topic,) = wire.ask("metadata", version, asked)["topics"]
        assert topic["error_code"] == "unknown_topic_or_partition"
        assert not topic["partitions"]
    assert METADATA_LOG not in running.call(lambda broker: broker.metadata.image.topics)


@pytest.mark.parametrize(
    ("name", "partitions", "configs"),
    [
        (
            "__consumer_offsets",
            50,
            {
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": "104857600",
            },
        ),
        (
            "__transaction_state",
            3,
            {
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": "1",
                "segment.bytes": "1048576",
                "unclean.leader.election.enable": "false",
            },
        ),
        (
            "__share_group_state",
            4,
            {
                "compression.type": "producer",
                "cleanup.policy": "delete",
                "min.insync.replicas": "2",
                "segment.bytes": "104857600",
                "retention.ms": "-1",
            },
        ),
    ],
)
def test_metadata_creates_internal_topics_as_their_coordinators_need_them(
    name: str, partitions: int, configs: dict[str, str]
) -> None:
    properties = {
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.segment.bytes": "1048576",
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
    }
    with RunningBroker(properties, engine=NoEngine) as running, Wire(running.port) as wire:
        assert metadata(wire, name) == {name: "unknown_topic_or_partition"}
        image = running.call(lambda broker: broker.metadata.image)
    assert len(image.topics[name].partitions) == partitions
    assert list(image.topic_config(name).items()) == list(configs.items())


def test_a_topic_with_the_name_of_the_metadata_log_is_deleted_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        Wire(running.port) as wire,
    ):
        create(wire, "kept", 1)
    append_to_metadata_log(tmp_path, reserved_topic(), node_id=1)
    metadata_log = tmp_path / f"{METADATA_LOG}-0"
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        Wire(running.port) as wire,
    ):
        assert list(running.call(lambda broker: broker.metadata.image.topics)) == ["kept"]
        assert metadata(wire, "kept", METADATA_LOG) == {
            "kept": "none",
            METADATA_LOG: "unknown_topic_or_partition",
        }
        assert metadata_log.is_dir()
    assert f"reserved name {METADATA_LOG}" in caplog.text
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as running:
        assert list(running.call(lambda broker: broker.metadata.image.topics)) == ["kept"]


def reserved_topic() -> list[ApiRecord]:
    """The records by which a topic with the name of the metadata log was once created."""
    topic_id = uuid.UUID(int=77)
    partition = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
    return [topic_record(METADATA_LOG, topic_id), partition_record(topic_id, 0, partition, 30)]


def test_a_log_manager_opens_no_second_log_in_the_metadata_log(tmp_path: Path) -> None:
    logs = LogManager([tmp_path])
    logs.load()
    with pytest.raises(InvalidTopicError):
        logs.get_or_create(TopicPartition(METADATA_LOG, 0))
    assert not list(tmp_path.glob("*-0"))
    logs.shutdown()


@pytest.mark.parametrize("version", range(14))
def test_the_first_answer_for_a_topic_that_metadata_creates_is_that_it_is_unknown(
    wire: Wire, version: int
) -> None:
    asked = {"topics": [{"name": f"first-{version}"}], "allow_auto_topic_creation": True}
    answers = [wire.ask("metadata", version, asked)["topics"][0] for _ in range(2)]
    assert [each["error_code"] for each in answers] == ["unknown_topic_or_partition", "none"]
    assert [len(each["partitions"]) for each in answers] == [0, 2]
