"""Publication of the metadata log by a loader: the images, and the times."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.configs.resource import ConfigChange
from cordwood.controller.controller import Controller
from cordwood.metadata.controller_requests import NewPartitions, NewTopic, QuotaChange
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.metadata.records import ApiRecord, topic_record
from cordwood.model.kafka_errors import StorageError, UnknownServerError
from cordwood.model.uuids import parse_uuid
from support.controller_under_test import ControllerUnderTest, append_to_metadata_log, requests_to

TOPIC_ID = parse_uuid("Y29yZHdvb2QtdGVzdHMtMQ")
BEGIN = ApiRecord("BeginTransactionRecord", 0, {"name": "test"})
END = ApiRecord("EndTransactionRecord", 0, {})
ABORT = ApiRecord("AbortTransactionRecord", 0, {"reason": "test"})
TOPIC = topic_record("in-transaction", TOPIC_ID)


class Seen:
    """A publisher that keeps all updates."""

    def __init__(self) -> None:
        self.updates: list[MetadataUpdate] = []

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        self.updates.append(update)

    @property
    def topics(self) -> list[list[str]]:
        return [list(each.after.topics) for each in self.updates]


class Broken:
    """A publisher with a bug."""

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        raise RuntimeError(f"as by a bug at offset {update.after.offset}")


@pytest.fixture
def place(tmp_path: Path) -> ControllerUnderTest:
    return ControllerUnderTest(tmp_path / "d")


@pytest.fixture
def controller(place: ControllerUnderTest) -> Controller:
    return place.serve()


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def loader(controller: Controller, seen: Seen) -> MetadataLoader:
    found = MetadataLoader(controller.log)
    found.install(seen)
    found.catch_up()
    return found


def test_the_first_update_has_all_that_was_committed_before(
    controller: Controller, loader: MetadataLoader, seen: Seen
) -> None:
    (first,) = seen.updates
    assert first.before is None
    assert first.after == controller.image
    loader.catch_up()
    assert len(seen.updates) == 1


def test_updates_go_from_image_to_image(
    controller: Controller, loader: MetadataLoader, seen: Seen
) -> None:
    requests_to(controller).create_topics([NewTopic(name="t"), NewTopic(name="u")])
    loader.catch_up()
    requests_to(controller).delete_topics(["t", "nope"])
    loader.catch_up()
    assert seen.topics == [[], ["t", "u"], ["u"]]
    _, second, third = seen.updates
    assert second.before is seen.updates[0].after
    assert third.before is second.after
    assert third.after.brokers is second.after.brokers


def test_one_update_covers_all_batches_that_are_committed(
    controller: Controller, loader: MetadataLoader, seen: Seen
) -> None:
    for name in "abc":
        requests_to(controller).create_topics([NewTopic(name=name)])
    loader.catch_up()
    assert seen.topics == [[], ["a", "b", "c"]]


def test_the_loaders_image_is_the_controllers(
    place: ControllerUnderTest, controller: Controller, loader: MetadataLoader, seen: Seen
) -> None:
    changes: list[Callable[[], object]] = [
        lambda: requests_to(controller).create_topics(
            [NewTopic(name="t", num_partitions=3, configs={"retention.ms": "5"})]
        ),
        lambda: requests_to(controller).create_partitions([NewPartitions(topic="t", count=40)]),
        lambda: requests_to(controller).alter_configs(
            [ConfigChange(resource_type=4, name="", values={"log.retention.ms": "5"})]
        ),
        lambda: requests_to(controller).alter_client_quotas(
            [QuotaChange(entity={"user": "u"}, ops=[("producer_byte_rate", 5.0)])]
        ),
        lambda: controller.allocate_producer_ids(1, controller.broker_epoch),
        lambda: requests_to(controller).directories_failed([]),
        lambda: requests_to(controller).delete_topics(["t"]),
    ]
    for change in changes:
        place.clock.advance(10)
        change()
        loader.catch_up()
        assert seen.updates[-1].after == controller.image


def test_a_publisher_that_is_installed_later_gets_the_last_image_first(
    controller: Controller, loader: MetadataLoader, seen: Seen
) -> None:
    later = Seen()
    loader.install(later)
    requests_to(controller).create_topics([NewTopic(name="t")])
    loader.catch_up()
    assert [each.before for each in later.updates] == [None, seen.updates[0].after]
    assert later.topics == [[], ["t"]]


def test_records_of_a_transaction_count_when_it_ends(
    controller: Controller, loader: MetadataLoader, seen: Seen
) -> None:
    for records in ([BEGIN, TOPIC], [topic_record("other", parse_uuid("AAAAAAAAAAAAAAAAAAAAIA"))]):
        controller.log.append(records, timestamp_ms=0)
        loader.catch_up()
        assert seen.topics == [[]]
    controller.log.append([END], timestamp_ms=0)
    loader.catch_up()
    assert seen.topics == [[], ["in-transaction", "other"]]


def test_records_of_a_transaction_that_is_aborted_never_count(
    controller: Controller, loader: MetadataLoader, seen: Seen
) -> None:
    for records in ([BEGIN, TOPIC], [ABORT]):
        controller.log.append(records, timestamp_ms=0)
        loader.catch_up()
    assert seen.topics == [[], []]
    assert seen.updates[-1].after.next_offset == controller.log.end_offset


def test_a_transaction_that_a_crash_left_open_is_aborted_at_the_next_start(
    place: ControllerUnderTest, controller: Controller
) -> None:
    controller.close()
    append_to_metadata_log(place.log_dirs[0], [BEGIN, TOPIC], node_id=1)
    again = place.serve()
    assert "AbortTransactionRecord" in [name for batch in place.batches() for name, _ in batch]
    seen = Seen()
    loader = MetadataLoader(again.log)
    loader.install(seen)
    loader.catch_up()
    requests_to(again).create_topics([NewTopic(name="t")])
    loader.catch_up()
    assert seen.topics == [[], ["t"]]
    assert seen.updates[-1].after == again.image


def test_an_error_in_a_publisher_keeps_no_other_from_the_update(
    controller: Controller,
    loader: MetadataLoader,
    seen: Seen,
    caplog: pytest.LogCaptureFixture,
) -> None:
    loader = MetadataLoader(controller.log)
    loader.install(Broken())
    loader.install(seen)
    loader.catch_up()
    assert len(seen.updates) == 2  # one of each loader
    assert f"up to offset {controller.image.offset}" in caplog.text
    assert "as by a bug" in caplog.text


def test_to_wait_for_an_offset_is_to_wait_until_all_publishers_have_it(
    controller: Controller, seen: Seen
) -> None:
    async def main() -> None:
        scheduled: list[tuple[Callable[[], None], asyncio.Future[None]]] = []

        def schedule(run: Callable[[], None]) -> asyncio.Future[None]:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            scheduled.append((run, done))
            return done

        loader = MetadataLoader(controller.log, schedule=schedule)
        loader.install(seen)
        loader.catch_up()
        await loader.published(controller.image.next_offset)
        requests_to(controller).create_topics([NewTopic(name="t")])
        requests_to(controller).create_topics([NewTopic(name="u")])
        ((run, done),) = scheduled  # once for both
        waiting = [
            asyncio.ensure_future(loader.published(controller.image.next_offset + beyond))
            for beyond in (0, 1)
        ]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        run()
        done.set_result(None)
        await waiting[0]
        assert seen.topics == [[], ["t", "u"]]
        assert not waiting[1].done()
        requests_to(controller).create_topics([NewTopic(name="v")])
        scheduled[1][0]()
        scheduled[1][1].set_result(None)
        await waiting[1]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "expected"),
    [(StorageError("the disk is gone"), StorageError), (OSError("bug"), UnknownServerError)],
)
def test_who_waits_for_an_offset_that_cannot_be_loaded_gets_the_error(
    controller: Controller, error: Exception, expected: type[Exception]
) -> None:
    async def main() -> None:
        def schedule(_run: Callable[[], None]) -> asyncio.Future[None]:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_exception(error)
            return done

        loader = MetadataLoader(controller.log, schedule=schedule)
        loader.catch_up()
        requests_to(controller).create_topics([NewTopic(name="t")])
        with pytest.raises(expected, match=str(error)):
            await loader.published(controller.image.next_offset)

    asyncio.run(main())


@pytest.mark.parametrize(("stopping", "expected"), [(False, ["ERROR"]), (True, [])])
def test_a_stopping_broker_reports_no_error_of_a_refused_load(
    controller: Controller, caplog: pytest.LogCaptureFixture, stopping: bool, expected: list[str]
) -> None:
    async def main() -> None:
        def schedule(_run: Callable[[], None]) -> asyncio.Future[None]:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_exception(StorageError("the executor is shut down"))
            return done

        loader = MetadataLoader(controller.log, schedule=schedule)
        loader.catch_up()
        requests_to(controller).create_topics([NewTopic(name="t")])
        if stopping:
            loader.stopping()
        with pytest.raises(StorageError):
            await loader.published(controller.image.next_offset)

    with caplog.at_level(logging.INFO, logger="cordwood.metadata.loader"):
        asyncio.run(main())
    assert [record.levelname for record in caplog.records] == expected
