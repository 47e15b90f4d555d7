"""The channel to a controller in the same process: what it answers, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.controller.controller import Controller
from cordwood.controller.local_channel import LocalControllerChannel
from cordwood.metadata.controller_channel import ControllerChannel
from cordwood.metadata.controller_requests import (
    BrokerRegistration,
    CreatedTopic,
    NewTopic,
    QuotaChange,
)
from cordwood.metadata.image import Endpoint
from cordwood.model.kafka_errors import BrokerIdNotRegisteredError, KafkaError
from support.controller_under_test import ControllerUnderTest, published_at_once, run_at_once


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return ControllerUnderTest(tmp_path / "d").serve()


def test_an_answer_comes_when_the_change_is_published(controller: Controller) -> None:
    async def main() -> None:
        reached = asyncio.Event()
        offsets: list[int] = []

        async def published(offset: int) -> None:
            offsets.append(offset)
            await reached.wait()

        channel: ControllerChannel = LocalControllerChannel(
            controller, run=run_at_once, published=published
        )
        asked = asyncio.ensure_future(channel.create_topics([NewTopic(name="t")]))
        while not offsets:
            await asyncio.sleep(0)
        assert list(controller.image.topics) == ["t"]
        assert offsets == [controller.log.end_offset]
        assert not asked.done()
        reached.set()
        (made,) = await asked
        assert isinstance(made, CreatedTopic)

    asyncio.run(main())


def test_a_refusal_is_the_controllers(controller: Controller) -> None:
    async def main() -> None:
        channel = LocalControllerChannel(controller, run=run_at_once, published=published_at_once)
        with pytest.raises(BrokerIdNotRegisteredError):
            await channel.unregister_broker(77)

    asyncio.run(main())


def test_hosts_of_quotas_are_looked_up(controller: Controller) -> None:
    async def main() -> None:
        channel = LocalControllerChannel(controller, run=run_at_once, published=published_at_once)
        changes = [
            QuotaChange(entity={"ip": name}, ops=[("connection_creation_rate", 1.0)])
            for name in ("localhost", "not an ip")
        ]
        known, unknown = await channel.alter_client_quotas(changes)
        assert known is None
        assert isinstance(unknown, KafkaError)
        assert list(controller.image.client_quotas) == [frozenset({("ip", "localhost")})]

    asyncio.run(main())


def test_a_broker_registers_serves_and_is_shut_down(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d")
    controller = place.activated()
    assert not controller.image.brokers
    registration = BrokerRegistration(
        broker_id=1,
        incarnation_id=UUID(int=5),
        endpoints=(Endpoint(name="PLAINTEXT", host="localhost", port=9092),),
        log_dirs=tuple(place.ids),
    )

    async def main() -> list[tuple[bool, bool]]:
        channel = LocalControllerChannel(controller, run=run_at_once, published=published_at_once)
        states = []
        epoch = await channel.register_broker(registration)
        for act in (None, channel.unfence_broker, channel.shut_down_broker):
            if act is not None:
                await act()
            broker = controller.image.brokers[1]
            assert (broker.epoch, broker.incarnation_id) == (epoch, UUID(int=5))
            states.append((broker.fenced, broker.in_controlled_shutdown))
        return states

    assert asyncio.run(main()) == [(True, False), (False, False), (True, True)]


def test_a_broker_that_has_not_registered_again_is_not_shut_down(tmp_path: Path) -> None:
    place = ControllerUnderTest(tmp_path / "d")
    place.serve().abandon()
    controller = place.activated()
    end_offset = controller.log.end_offset
    controller.close()
    assert controller.log.end_offset == end_offset
    again = place.serve()
    assert not again.image.brokers[1].fenced
