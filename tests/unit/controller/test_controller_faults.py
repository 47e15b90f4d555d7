"""A disk that is full, fails, or loses power: what was answered for stays, the rest never was."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from cordwood.configs.resource import ConfigChange
from cordwood.controller.controller import Controller
from cordwood.format.metadata_records import encode_metadata_record
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.metadata.controller_requests import CreatedTopic, NewTopic
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import KafkaError, StorageError
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.controller_under_test import ControllerUnderTest, requests_to

DIRECTORY = Path("/data/d")
IMAGES = 6


class PowerLost(BaseException):
    """The machine is off."""


def simulated(**settings: Any) -> ControllerUnderTest:
    clock = ManualClock()
    fs = SimulatedFileSystem(clock)
    fs.make_directory(DIRECTORY)
    fs.sync_directory(DIRECTORY.parent)
    fs.sync_directory(DIRECTORY.parent.parent)
    return ControllerUnderTest(DIRECTORY, fs=fs, clock=clock, **settings)


def disk_of(place: ControllerUnderTest) -> SimulatedFileSystem:
    assert isinstance(place.fs, SimulatedFileSystem)
    return place.fs


def reopened(place: ControllerUnderTest, fs: SimulatedFileSystem) -> Controller:
    """The controller that starts on a disk after a crash."""
    return place.serve(fs=fs)


class Seen:
    """A publisher that keeps all updates."""

    def __init__(self) -> None:
        self.updates: list[MetadataUpdate] = []

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        self.updates.append(update)


def test_without_room_nothing_changes_and_with_room_it_goes_on() -> None:
    place = simulated()
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t")])
    fs = disk_of(place)
    before = controller.image
    loader, seen = MetadataLoader(controller.log), Seen()
    loader.install(seen)
    loader.catch_up()
    fs.capacity_bytes = 0
    with pytest.raises(StorageError, match="full"):
        requests_to(controller).create_topics([NewTopic(name="u")])
    with pytest.raises(StorageError, match="full"):
        requests_to(controller).delete_topics(["t"])
    assert controller.image is before
    loader.catch_up()
    assert len(seen.updates) == 1
    fs.capacity_bytes = None
    (made,) = requests_to(controller).create_topics([NewTopic(name="u")])
    assert isinstance(made, CreatedTopic)
    controller.abandon()
    assert set(reopened(place, fs.process_crash()).image.topics) == {"t", "u"}


def test_a_snapshot_that_finds_no_room_leaves_nothing() -> None:
    place = simulated()
    controller = place.serve()
    snapshots = SnapshotGenerator(
        controller.log, settings=controller.settings, context=controller.context
    )
    loader = MetadataLoader(controller.log)
    loader.install(snapshots)
    fs = disk_of(place)
    before = fs.names_in(place.directory)
    fs.capacity_bytes = 0
    with pytest.raises(StorageError, match="full"):
        snapshots.write()
    assert fs.names_in(place.directory) == before
    fs.capacity_bytes = None
    loader.catch_up()
    snapshots.write()
    assert len(place.snapshots()) == 1


def test_after_a_failed_sync_nothing_is_taken_any_more() -> None:
    place = simulated()
    controller = place.serve()
    fs = disk_of(place)
    before = controller.image

    def fail(operation: FileOperation) -> OSError | None:
        return OSError(errno.EIO, "broken") if operation.kind is FileOperationKind.SYNC else None

    fs.fail = fail
    with pytest.raises(StorageError):
        requests_to(controller).create_topics([NewTopic(name="u")])
    fs.fail = None
    with pytest.raises(StorageError):
        requests_to(controller).create_topics([NewTopic(name="v")])
    assert controller.image is before


def work(controller: Controller, done: list[str]) -> None:
    """Makes and deletes topics, and notes what it was told is done."""
    snapshots = SnapshotGenerator(
        controller.log, settings=controller.settings, context=controller.context
    )
    loader = MetadataLoader(controller.log)
    loader.install(snapshots)

    def told(results: list[CreatedTopic | KafkaError] | list[KafkaError | None]) -> None:
        assert not any(isinstance(each, KafkaError) for each in results), results

    for number in range(3):
        name = f"t{number}"
        told(requests_to(controller).create_topics([NewTopic(name=name, num_partitions=3)]))
        done.append(f"+{name}")
        told(
            requests_to(controller).alter_configs(
                [ConfigChange(resource_type=2, name=name, values={"retention.ms": "5"})]
            )
        )
        done.append(f"={name}")
        loader.catch_up()
        snapshots.write()
        if number:
            told(requests_to(controller).delete_topics([f"t{number - 1}"]))
            done.append(f"-t{number - 1}")


STEPS = ["+t0", "=t0", "+t1", "=t1", "-t0", "+t2", "=t2", "-t1"]


def state_after(steps: list[str]) -> dict[str, bool]:
    """The topics there are after these steps, and whether they have their setting."""
    topics: dict[str, bool] = {}
    for step in steps:
        if step[0] == "-":
            del topics[step[1:]]
        else:
            topics[step[1:]] = step[0] == "="
    return topics


def test_the_work_is_what_the_steps_say() -> None:
    done: list[str] = []
    controller = simulated().serve()
    work(controller, done)
    assert done == STEPS
    assert set(controller.image.topics) == set(state_after(STEPS)) == {"t2"}


@pytest.mark.parametrize("segment_bytes", [1 << 30, 600])
def test_a_power_loss_at_any_moment_takes_nothing_that_was_done(segment_bytes: int) -> None:
    moments = 0
    at = 0
    while True:
        place = simulated(segment_bytes=segment_bytes)
        fs = disk_of(place)
        controller = place.serve()
        begun = fs.operations
        done: list[str] = []
        moment = at

        def on_operation(
            _: FileOperation, fs: SimulatedFileSystem = fs, until: int = moment
        ) -> None:
            if fs.operations - begun > until:  # noqa: B023
                raise PowerLost

        fs.on_operation = on_operation
        try:
            work(controller, done)
        except PowerLost:
            fs.on_operation = None
        else:
            break
        allowed = [state_after(STEPS[: len(done)]), state_after(STEPS[: len(done) + 1])]
        for image in fs.crash_images(IMAGES, random.Random(at)):
            again = reopened(place, image)
            found = {name: bool(again.image.topic_config(name)) for name in again.image.topics}
            assert found in allowed, (at, done)
            assert all(
                each.leader == 1
                for topic in again.image.topics.values()
                for each in topic.partitions.values()
            )
            (made,) = requests_to(again).create_topics([NewTopic(name="after")])
            assert isinstance(made, CreatedTopic)
            again.abandon()
            moments += 1
        at += 1
    assert moments > 20


def test_a_power_loss_during_the_first_start_is_made_good() -> None:
    at = 0
    while True:
        place = simulated()
        fs = disk_of(place)
        begun = fs.operations
        until = at

        def on_operation(
            _: FileOperation, fs: SimulatedFileSystem = fs, until: int = until, begun: int = begun
        ) -> None:
            if fs.operations - begun > until:
                raise PowerLost

        fs.on_operation = on_operation
        try:
            place.serve()
        except PowerLost:
            fs.on_operation = None
        else:
            break
        for image in fs.crash_images(IMAGES, random.Random(at)):
            again = reopened(place, image)
            assert again.image.features["metadata.version"] == 30
            assert again.log.kraft_version == 1
            again.abandon()
        at += 1
    assert at > 10


def with_record(place: ControllerUnderTest, value: bytes | None) -> tuple[Path, int, int]:
    """Appends a record to a stopped metadata log: its file, position and offset."""
    controller = place.serve()
    controller.close()
    path = place.directory / "00000000000000000000.log"
    data = place.fs.read_bytes(path)
    *_, (_, last) = iter_batches(data)
    assert isinstance(last, RecordBatch)
    offset = last.header.next_offset
    batch = build_batch(
        [Record(offset, 1, None, value)],
        base_offset=offset,
        partition_leader_epoch=last.header.partition_leader_epoch,
    )
    path.write_bytes(data + batch)
    return path, len(data), offset


def long_quota() -> bytes:
    """A ClientQuotaRecord with a user name that no broker reads."""
    fields = {
        "entity": [{"entityType": "user", "entityName": "u"}],
        "key": "k",
        "value": 1.0,
        "remove": False,
    }
    good = encode_metadata_record("ClientQuotaRecord", 0, fields)
    return good.replace(b"\x02u", b"\xc1\xb8\x02" + b"u" * 40_000, 1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (long_quota(), "ClientQuotaRecord at offset {} .* entityName had invalid length 40000"),
        (b"\x01\x63\x00", "record of unknown type 99 at offset {}"),
        (b"\x01\x02\x09\x00", "TopicRecord at offset {} .* of version 9"),
        (b"\x01\x02\x00\x05ab", "TopicRecord at offset {} "),
        (b"\x07\x02\x00", "record in a frame of version 7 at offset {}"),
        (None, "record without a type at offset {}"),
    ],
    ids=["long string", "unknown type", "unknown version", "cut off", "frame", "null"],
)
def test_a_damaged_record_is_reported_with_its_place_its_type_and_what_to_do(
    tmp_path: Path, value: bytes | None, words: str
) -> None:
    place = ControllerUnderTest(tmp_path / "d")
    path, position, offset = with_record(place, value)
    before = path.read_bytes()
    with pytest.raises(CorruptError, match=words.format(offset)) as caught:
        place.open()
    assert (caught.value.path, caught.value.position) == (str(path), position)
    assert f"truncate -s {position} {path}" in str(caught.value)
    assert path.read_bytes() == before
    os.truncate(path, position)  # what it says to do
    place.serve().close()
