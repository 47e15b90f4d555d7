"""Several log directories under one broker: where partitions go, and what a dead disk leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.broker.broker import Broker
from cordwood.metadata.image import NO_LEADER, PartitionImage
from cordwood.model.errors import CorruptError
from cordwood.testing.broker import RunningBroker
from support.failing_disks import DeadDisk, break_directory, mend_directory
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.scrape import probed
from support.wire_client import WireClient, batch_of

PARTITIONS = 6
STORAGE_ERROR = "kafka_storage_error"


class Place:
    """Three directories, and the broker that is started on them as often as wanted."""

    def __init__(self, root: Path) -> None:
        self.directories = [root / name for name in "abc"]
        self.fs = DeadDisk()

    def broker(self, **properties: str) -> RunningBroker:
        given = {
            "log.dirs": ",".join(map(str, self.directories)),
            "offsets.topic.num.partitions": "6",
        }
        return RunningBroker(
            given | properties, log_dir=self.directories[0], engine=NoEngine, fs=self.fs
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def running(place: Place) -> Iterator[RunningBroker]:
    with place.broker() as broker:
        yield broker


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[WireClient]:
    with WireClient(running.port) as connection:
        yield connection


def partition(broker: RunningBroker, topic: str, index: int) -> PartitionImage:
    return broker.call(lambda it: it.metadata.image.topics[topic].partitions[index])


def registered(broker: RunningBroker) -> set[UUID]:
    return broker.call(lambda it: set(it.metadata.image.brokers[1].log_dirs))


def ids(broker: RunningBroker) -> dict[Path, UUID | None]:
    return broker.call(lambda it: {d.path: d.directory_id for d in it.replicas.logs.directories})


def waits(broker: RunningBroker, seen: Callable[[Broker], bool], what: str) -> None:
    poll_until(lambda: broker.call(seen), timeout_s=120, what=what)


def written_topic(wire: WireClient, name: str = "t") -> dict[int, Path]:
    """A topic with a record in each partition, and where each lies."""
    wire.create(name, PARTITIONS, retention_ms=-1)
    for index in range(PARTITIONS):
        assert wire.produce(name, batch_of(b"%d" % index), index)["error_code"] == "none"
    return {index: Path(wire.place_of(f"{name}-{index}")) for index in range(PARTITIONS)}


def fail(broker: RunningBroker, directory: Path) -> None:
    """Breaks a directory, and has its loss found out and told."""
    break_directory(directory)
    broker.advance(minutes=2, compact=False)
    lost = ids(broker)[directory]
    poll_until(lambda: lost not in registered(broker), timeout_s=120, what="the loss is told")


# ---- placement


def test_partitions_go_where_the_fewest_are_and_the_controller_is_told(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    where = written_topic(wire)
    assert sorted(map(str, where.values())) == sorted(2 * [str(d) for d in place.directories])
    known = ids(running)

    def is_told(broker: Broker) -> bool:
        images = broker.metadata.image.topics["t"].partitions
        return all(images[n].directories[0] == known[d] for n, d in where.items())

    waits(running, is_told, "the controller knows where all are")
    assert partition(running, "t", 0).leader_epoch == 0


def test_cordoned_directories_get_no_partitions_and_the_controller_is_told(place: Place) -> None:
    a, b, c = place.directories
    with place.broker(**{"cordoned.log.dirs": f"{a},{c}"}) as running:
        known = ids(running)

        def cordoned(broker: Broker) -> set[UUID]:
            return set(broker.metadata.image.brokers[1].cordoned_log_dirs or ())

        assert running.call(cordoned) == {known[a], known[c]}
        with WireClient(running.port) as wire:
            assert set(written_topic(wire).values()) == {b}
            assert wire.directories()[str(a)]["is_cordoned"]
            assert wire.move("t", [0], a) == {0: "invalid_replica_assignment"}
        with probed(running) as endpoint:
            values = endpoint.scrape()
        assert values.value("kafka_log_logmanager_cordonedlogdirectorycount") == 2
    with place.broker() as running:
        assert running.call(cordoned) == set()


# ---- a directory that fails


def test_a_dead_directory_takes_its_partitions_and_no_others(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    where = written_topic(wire)
    dead = place.directories[1]
    fail(running, dead)
    told = wire.partitions("t")
    described = wire.directories()
    assert described[str(dead)]["error_code"] == STORAGE_ERROR
    assert described[str(dead)]["total_bytes"] == -1
    for index, directory in where.items():
        is_dead = directory == dead
        assert told[index]["error_code"] == ("leader_not_available" if is_dead else "none")
        assert told[index]["leader_id"] == (-1 if is_dead else 1)
        assert told[index]["leader_epoch"] == (1 if is_dead else 0)
        assert told[index]["isr_nodes"] == ([] if is_dead else [1])
        assert told[index]["offline_replicas"] == ([1] if is_dead else [])
        expected = STORAGE_ERROR if is_dead else "none"
        assert wire.produce("t", batch_of(b"more"), index)["error_code"] == expected
        assert wire.fetch("t", index)["error_code"] == expected
        assert wire.delete_records("t", index, 0)["error_code"] == expected
        assert wire.move("t", [index], place.directories[0])[index] == expected
        assert wire.move("t", [index], dead)[index] == STORAGE_ERROR


def test_retention_finds_a_dead_directory_out_and_goes_on_with_the_others(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    wire.create("old", PARTITIONS, retention_ms=60_000)
    for index in range(PARTITIONS):
        wire.produce("old", batch_of(b"x"), index)
    where = {index: Path(wire.place_of(f"old-{index}")) for index in range(PARTITIONS)}
    break_directory(place.directories[1])
    running.node.cleaner.retention_once_now()
    assert set(running.node.broker.replicas.logs.context.failures.offline) == {place.directories[1]}
    for index, directory in where.items():
        if directory != place.directories[1]:
            assert wire.fetch("old", index)["error_code"] == "offset_out_of_range"


def test_what_the_controller_writes_of_a_dead_directory(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    where = written_topic(wire)
    dead = place.directories[1]
    fail(running, dead)
    known = ids(running)
    assert registered(running) == {known[d] for d in place.directories if d != dead}
    for index, directory in where.items():
        image = partition(running, "t", index)
        assert image.directories[0] == known[directory]
        if directory == dead:
            assert (image.leader, image.isr, image.elr) == (NO_LEADER, (), (1,))
            assert image.last_known_elr == (1,)


def test_new_topics_go_to_the_directories_that_are_left(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    fail(running, place.directories[1])
    where = written_topic(wire, "later")
    assert set(where.values()) == {place.directories[0], place.directories[2]}


def test_a_topic_in_a_dead_directory_can_be_deleted_and_made_again(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    written_topic(wire)
    fail(running, place.directories[1])
    assert wire.delete("t") == "none"
    where = written_topic(wire)
    assert place.directories[1] not in where.values()
    assert [len(wire.records("t", index)) for index in where] == [1] * PARTITIONS


def test_when_the_directory_is_back_all_is_served_after_a_restart(place: Place) -> None:
    dead = place.directories[1]
    with place.broker() as broker, WireClient(broker.port) as wire:
        where = written_topic(wire)
        fail(broker, dead)
    with place.broker() as broker, WireClient(broker.port) as wire:  # it is still dead
        assert wire.directories()[str(dead)]["error_code"] == STORAGE_ERROR
        for index, directory in where.items():
            expected = STORAGE_ERROR if directory == dead else "none"
            assert wire.fetch("t", index)["error_code"] == expected
        assert wire.create("u") == "none"
    mend_directory(dead)
    with place.broker() as broker, WireClient(broker.port) as wire:
        assert len(registered(broker)) == 3
        for index, directory in where.items():
            assert Path(wire.place_of(f"t-{index}")) == directory
            assert [each.value for each in wire.records("t", index)] == [b"%d" % index]
            assert wire.produce("t", batch_of(b"more"), index)["base_offset"] == 1


def test_a_fetch_that_waits_is_answered_when_its_directory_fails(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    where = written_topic(wire)
    index = next(index for index, directory in where.items() if directory == place.directories[1])
    answers = []

    def wait() -> None:
        with WireClient(running.port) as other:
            answers.append(other.fetch("t", index, 1, wait_ms=60_000)["error_code"])

    thread = threading.Thread(target=wait)
    thread.start()
    waits(running, lambda it: it.replicas.delayed.fetch.delayed_count == 1, "the fetch waits")
    fail(running, place.directories[1])
    thread.join(120)
    assert answers == [STORAGE_ERROR]


def test_a_failed_fsync_takes_the_directory_offline(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    wire.create("t", PARTITIONS, flush_messages=1)
    dead = place.directories[2]
    place.fs.dead = dead
    for index in range(PARTITIONS):
        is_dead = wire.place_of(f"t-{index}") == str(dead) if index == 0 else None
        answer = wire.produce("t", batch_of(b"x"), index)["error_code"]
        if is_dead is not None:
            assert answer == (STORAGE_ERROR if is_dead else "none")
    waits(running, lambda it: len(it.metadata.image.brokers[1].log_dirs) == 2, "the loss is told")
    codes = [each["error_code"] for each in wire.partitions("t").values()]
    assert sorted(codes) == 2 * ["leader_not_available"] + 4 * ["none"]


def test_groups_of_a_dead_directory_have_no_coordinator_and_others_do(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    written_topic(wire)
    wire.find_coordinator("g")
    groups = [f"g{n}" for n in range(12)]
    for group in groups:
        assert wire.commit(group, "t", 0, 7) == "none"
    of = running.broker.groups.partition_for
    shards = {group: of(group).partition for group in groups}
    where = {n: Path(wire.place_of(f"__consumer_offsets-{n}")) for n in range(6)}
    dead = place.directories[1]
    fail(running, dead)
    lost = [group for group in groups if where[shards[group]] == dead]
    assert lost
    for group in groups:
        is_lost = group in lost
        assert wire.commit(group, "t", 0, 8) == ("not_coordinator" if is_lost else "none")
        expected = "coordinator_not_available" if is_lost else "none"
        assert wire.find_coordinator(group) == expected


def test_metrics_and_the_cleaner_forget_a_dead_directory(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    written_topic(wire)
    with probed(running) as probe:
        fail(running, place.directories[1])
        scrape = probe.scrape()
        for directory in place.directories:
            value = scrape.value(
                "kafka_log_logmanager_logdirectoryoffline", logDirectory=str(directory)
            )
            assert value == (directory == place.directories[1])
        assert scrape.value("kafka_log_logmanager_offlinelogdirectorycount") == 1
    kept = set(running.node.cleaner.manager.checkpoints.all())
    assert all(
        log.log_dir != place.directories[1]
        for log in running.call(lambda it: it.replicas.logs.logs())
    )
    assert not kept


def test_a_move_to_a_directory_that_turns_out_to_be_dead_is_refused(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    where = written_topic(wire)
    index = next(index for index, directory in where.items() if directory == place.directories[0])
    break_directory(place.directories[1])
    assert wire.move("t", [index], place.directories[1]) == {index: STORAGE_ERROR}
    waits(running, lambda it: len(it.metadata.image.brokers[1].log_dirs) == 2, "the loss is told")
    assert Path(wire.place_of(f"t-{index}")) == place.directories[0]
    assert wire.produce("t", batch_of(b"more"), index)["base_offset"] == 1
    assert wire.move("t", [index], place.directories[2]) == {index: "none"}
    known = ids(running)[place.directories[2]]

    def is_told(broker: Broker) -> bool:
        image = broker.metadata.image.topics["t"].partitions[index]
        return image.directories[0] == known

    waits(running, is_told, "the move is over, and told")
    assert [each.value for each in wire.records("t", index)] == [b"%d" % index, b"more"]


def test_a_directory_whose_meta_properties_is_malformed_is_offline_alone(place: Place) -> None:
    first, damaged, _ = place.directories
    with place.broker():
        pass
    for content in ("directory.id=garbage\n", "version=1\nnode.id=abc\n"):
        (damaged / "meta.properties").write_text(content)
        with place.broker() as broker, WireClient(broker.port) as wire:
            assert wire.directories()[str(damaged)]["error_code"] == STORAGE_ERROR
            assert len(registered(broker)) == 2
        assert (damaged / "meta.properties").read_text() == content
    (first / "meta.properties").write_text("directory.id=garbage\n")
    with pytest.raises(CorruptError, match=r"/a/meta.properties: .*`garbage`"):
        place.broker().start()


def test_a_malformed_meta_properties_keeps_another_directory_from_being_formatted(
    place: Place,
) -> None:
    place.directories[1].mkdir()
    (place.directories[1] / "meta.properties").write_text("directory.id=garbage\n")
    with pytest.raises(CorruptError, match=r"/b/meta.properties: "):
        place.broker().start()
    assert not place.directories[0].exists()


# ---- no directory left


def test_a_node_without_its_metadata_directory_gives_up(
    running: RunningBroker, place: Place
) -> None:
    break_directory(place.directories[0])
    running.advance(minutes=2, compact=False)
    failure = running.node.failure
    poll_until(failure.done, timeout_s=120, what="the node gives up")
    start = f"Shutdown broker because the metadata log dir {place.directories[0]} has failed"
    assert failure.result().startswith(start)


def test_a_metadata_log_that_cannot_be_synced_ends_the_node(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    place.fs.dead = place.directories[0]
    assert wire.create("t", name_of_error=True) == STORAGE_ERROR
    poll_until(running.node.failure.done, timeout_s=120, what="the node gives up")


def test_a_node_goes_on_while_one_directory_is_left(
    running: RunningBroker, wire: WireClient, place: Place
) -> None:
    for directory in place.directories[1:]:
        fail(running, directory)
    assert not running.node.failure.done()
    assert set(written_topic(wire).values()) == {place.directories[0]}
    # Told where it is at once: there is no other place.
    assert partition(running, "t", 0).directories == tuple(
        running.call(lambda it: it.metadata.image.brokers[1].log_dirs)
    )


# ---- stray directories


def test_directories_of_unknown_topics_are_renamed_and_others_left(place: Place) -> None:
    with place.broker() as broker, WireClient(broker.port) as wire:
        where = written_topic(wire)
        written_topic(wire, "gone")
    with place.broker() as broker, WireClient(broker.port) as wire:
        lost = place.directories[2]
        fail(broker, lost)
        assert wire.delete("gone") == "none"
    mend_directory(lost)
    (place.directories[1] / "copied-0").mkdir()
    with place.broker() as broker, WireClient(broker.port) as wire:
        strays = sorted(
            path.name.split(".")[0] for each in place.directories for path in each.glob("*-stray")
        )
        assert strays == [
            "copied-0",
            *sorted(n.name.split(".")[0] for n in lost.glob("gone-*-stray")),
        ]
        assert len(strays) == 3
        for index, directory in where.items():
            assert Path(wire.place_of(f"t-{index}")) == directory
            assert len(wire.records("t", index)) == 1
    with place.broker() as broker:  # what is marked stays, and is not in the way
        assert len(list(lost.glob("gone-*-stray"))) == 2
