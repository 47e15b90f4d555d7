"""Snapshots: when they are written, what is in them, and which go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cordwood.configs.resource import ConfigChange
from cordwood.controller.controller import Controller
from cordwood.format.metadata_records import encode_metadata_record, with_defaults
from cordwood.format.record import Record
from cordwood.format.record_batch import build_batch
from cordwood.metadata.controller_requests import NewTopic, QuotaChange
from cordwood.metadata.delta import ImageDelta
from cordwood.metadata.image import MetadataImage
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.records import ApiRecord, image_records
from cordwood.metadata.replay import read_metadata_image
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from support.controller_under_test import ControllerUnderTest, batches_in, names_of, requests_to
from support.golden import Golden

HOUR_MS = 3_600_000
ACL_ID = UUID(int=257)


@pytest.fixture
def place(tmp_path: Path) -> ControllerUnderTest:
    return ControllerUnderTest(tmp_path / "d")


class Snapshots:
    """The snapshots of a controller's node, which a loader feeds."""

    def __init__(self, controller: Controller) -> None:
        self._loader = MetadataLoader(controller.log)
        self._generator = SnapshotGenerator(
            controller.log, settings=controller.settings, context=controller.context
        )
        self._loader.install(self._generator)

    def write(self) -> Path:
        self._loader.catch_up()
        return self._generator.write()

    def run_if_due(self) -> bool:
        self._loader.catch_up()
        return self._generator.run_if_due()

    def leave_for_next_start(self) -> None:
        self._loader.catch_up()
        self._generator.leave_for_next_start()


def filled(place: ControllerUnderTest) -> Controller:
    """A controller with something of everything that it can make itself."""
    controller = place.serve()
    requests_to(controller).create_topics(
        [NewTopic(name="t", num_partitions=3, configs={"retention.ms": "5"}), NewTopic(name="u")]
    )
    requests_to(controller).alter_configs(
        [ConfigChange(resource_type=4, name="1", values={"a": "b"})]
    )
    requests_to(controller).alter_client_quotas(
        [QuotaChange(entity={"user": None}, ops=[("producer_byte_rate", 5.0)])]
    )
    controller.allocate_producer_ids(1, controller.broker_epoch)
    return controller


def bare(image: MetadataImage) -> MetadataImage:
    """The image without the place in the log that it was taken at."""
    return replace(image, next_offset=0, epoch=0, timestamp_ms=0, may_have_uncommitted_suffix=True)


def rebuilt(image: MetadataImage) -> MetadataImage:
    """The image that the records of an image give."""
    delta = ImageDelta()
    for record in image_records(image):
        delta.apply(record.name, with_defaults(record.name, record.fields))
    return bare(delta.image(next_offset=0, epoch=0))


def without_log(place: ControllerUnderTest) -> MetadataImage:
    """The image that the newest snapshot alone gives."""
    for path in place.directory.glob("*.log"):
        path.unlink()
    return read_metadata_image(place.directory)


def test_a_snapshot_holds_all_that_is_known(place: ControllerUnderTest) -> None:
    controller = filled(place)
    path = Snapshots(controller).write()
    assert path.name == f"{controller.image.next_offset:020}-0000000001.checkpoint"
    assert path.stat().st_mode & 0o777 == 0o400
    batches = batches_in(path.read_bytes())
    assert names_of(batches[0]) == ["SNAPSHOT_HEADER", "KRAFT_VERSION", "KRAFT_VOTERS"]
    assert names_of(batches[-1]) == ["SNAPSHOT_FOOTER"]
    assert batches[1][0] == (
        "FeatureLevelRecord",
        {"name": "metadata.version", "featureLevel": 30},
    )
    controller.abandon()
    found = without_log(place)
    assert bare(found) == bare(controller.image)
    assert (found.next_offset, found.epoch) == (controller.image.next_offset, 1)
    assert found.timestamp_ms == controller.image.timestamp_ms


def test_a_controller_goes_on_from_a_snapshot_alone(place: ControllerUnderTest) -> None:
    controller = filled(place)
    Snapshots(controller).write()
    offset = controller.image.next_offset
    controller.abandon()
    for path in place.directory.iterdir():
        if path.suffix != ".checkpoint":
            path.unlink()
    again = place.serve()
    assert set(again.image.topics) == {"t", "u"}
    assert requests_to(again).describe_quorum().leader_epoch == 2
    assert [path.name for path in place.directory.glob("*.log")] == [f"{offset:020}.log"]
    assert set(read_metadata_image(place.directory).topics) == {"t", "u"}


def test_what_only_a_real_kafka_records_is_not_lost(place: ControllerUnderTest) -> None:
    controller = filled(place)
    controller.abandon()
    foreign = [
        ApiRecord(
            "AccessControlEntryRecord",
            0,
            {
                "id": ACL_ID,
                "resourceType": 2,
                "resourceName": "t",
                "patternType": 3,
                "principal": "User:u",
                "host": "*",
                "operation": 3,
                "permissionType": 3,
            },
        ),
        ApiRecord(
            "UserScramCredentialRecord",
            0,
            {
                "name": "u",
                "mechanism": 1,
                "salt": b"1",
                "storedKey": b"2",
                "serverKey": b"3",
                "iterations": 4096,
            },
        ),
        ApiRecord(
            "DelegationTokenRecord",
            0,
            {
                "owner": "User:u",
                "requester": "User:v",
                "renewers": ["User:w"],
                "issueTimestamp": 1,
                "maxTimestamp": 3,
                "expirationTimestamp": 2,
                "tokenId": "id",
            },
        ),
        ApiRecord("FeatureLevelRecord", 0, {"name": "share.version", "featureLevel": 0}),
    ]
    base = controller.image.next_offset
    values = [encode_metadata_record(*record) for record in foreign]
    with (place.directory / f"{0:020}.log").open("ab") as log:
        log.write(
            build_batch(
                [Record(base + number, 0, None, value) for number, value in enumerate(values)],
                base_offset=base,
                partition_leader_epoch=1,
            )
        )
    again = place.serve()
    Snapshots(again).write()
    image = again.image
    again.abandon()
    found = without_log(place)
    assert bare(found) == bare(image)
    parts = (found.acls, found.scram_credentials, found.delegation_tokens)
    kept = [fields for part in parts for fields in part.values()]
    assert kept == [record.fields for record in foreign[:3]]
    assert "share.version" not in found.features


@pytest.mark.parametrize("which", ["before", "after-2"])
def test_of_a_real_kafkas_image_nothing_is_lost(golden_a: Golden, which: str) -> None:
    image = read_metadata_image(golden_a.root / which / "__cluster_metadata-0")
    assert len(image.topics) > 10
    assert rebuilt(image) == bare(image)


def test_one_is_due_after_an_hour(place: ControllerUnderTest) -> None:
    snapshots = Snapshots(place.serve())
    assert not snapshots.run_if_due()
    place.clock.advance(HOUR_MS - 1)
    assert not snapshots.run_if_due()
    place.clock.advance(1)
    assert snapshots.run_if_due()
    assert len(place.snapshots()) == 1


def test_without_anything_new_none_is_due(place: ControllerUnderTest) -> None:
    controller = place.serve()
    snapshots = Snapshots(controller)
    place.clock.advance(HOUR_MS)
    assert snapshots.run_if_due()
    place.clock.advance(2 * HOUR_MS)
    assert not snapshots.run_if_due()
    requests_to(controller).create_topics([NewTopic(name="t")])
    assert snapshots.run_if_due()


def test_one_is_due_after_so_many_bytes(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d", snapshot_bytes=4000)
    controller = place.serve()
    snapshots = Snapshots(controller)
    assert not snapshots.run_if_due()
    requests_to(controller).create_topics([NewTopic(name="t", num_partitions=50)])
    assert snapshots.run_if_due()
    assert not snapshots.run_if_due()


def test_bytes_of_the_last_run_count(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d", snapshot_bytes=4000)
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t", num_partitions=40)])
    controller.abandon()
    assert Snapshots(place.serve()).run_if_due()


def test_a_clean_stop_leaves_one_where_the_next_start_would_read_much(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d", snapshot_bytes=200_000)
    controller = place.serve()
    controller = place.restarted(controller)
    snapshots = Snapshots(controller)
    snapshots.leave_for_next_start()
    assert not place.snapshots()
    requests_to(controller).create_topics([NewTopic(name="t", num_partitions=200)])
    controller.shut_down_broker()
    snapshots.leave_for_next_start()
    controller.close()
    assert len(place.snapshots()) == 1
    assert bare(without_log(place)) == bare(controller.image)


def grown(place: ControllerUnderTest, controller: Controller, rounds: int) -> Snapshots:
    """Writes segments and snapshots."""
    snapshots = Snapshots(controller)
    for number in range(rounds):
        requests_to(controller).create_topics([NewTopic(name=f"t{number}", num_partitions=20)])
        place.clock.advance(HOUR_MS)
        snapshots.run_if_due()
    return snapshots


def settings(**others: Any) -> dict[str, Any]:
    return {"segment_bytes": 10_000, "retention_bytes": -1, "retention_ms": -1, **others}


def test_old_snapshots_and_the_log_below_them_go_by_size(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d", **settings(retention_bytes=30_000))
    controller = place.serve()
    grown(place, controller, 8)
    kept = place.snapshots()
    assert 1 <= len(kept) < 8
    first = min(int(path.stem) for path in place.directory.glob("*.log"))
    assert 0 < first <= int(kept[0].partition("-")[0])
    assert set(read_metadata_image(place.directory).topics) == {f"t{n}" for n in range(8)}
    again = place.restarted(controller)
    assert set(again.image.topics) == {f"t{n}" for n in range(8)}


def test_old_snapshots_go_by_age_but_never_the_last(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d", **settings(retention_ms=5 * HOUR_MS))
    controller = place.serve()
    snapshots = grown(place, controller, 4)
    assert len(place.snapshots()) == 4
    place.clock.advance(100 * HOUR_MS)
    snapshots.run_if_due()
    assert len(place.snapshots()) == 1
    assert len(read_metadata_image(place.directory).topics) == 4


def test_what_a_crash_left_of_a_snapshot_is_removed(place: ControllerUnderTest) -> None:
    controller = place.serve()
    controller.close()
    for suffix in (".part", ".deleted"):
        (place.directory / f"{99:020}-0000000001.checkpoint{suffix}").write_bytes(b"x")
    place.serve()
    assert not list(place.directory.glob("*.part"))
    assert not list(place.directory.glob("*.checkpoint.deleted"))
