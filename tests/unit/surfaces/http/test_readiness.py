"""Readiness of a broker."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from cordwood.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from cordwood.metadata.persistent_map import PersistentMap
from cordwood.surfaces.http.readiness import why_not_ready

REGISTRATION = BrokerImage(
    broker_id=1,
    epoch=5,
    incarnation_id=uuid.UUID(int=1),
    rack=None,
    fenced=False,
    in_controlled_shutdown=False,
    log_dirs=(),
    endpoints=(),
)


def image(
    *partitions: tuple[tuple[int, ...], tuple[int, ...]],
    registration: BrokerImage | None = REGISTRATION,
) -> MetadataImage:
    """One topic with partitions of so many (replicas, ISR)."""
    found = {
        number: PartitionImage(
            replicas=replicas, isr=isr, leader=isr[0], leader_epoch=0, partition_epoch=0
        )
        for number, (replicas, isr) in enumerate(partitions)
    }
    topic = TopicImage(name="orders", topic_id=uuid.UUID(int=7), partitions=found)
    return MetadataImage(
        topics=PersistentMap({"orders": topic}),
        brokers=PersistentMap({} if registration is None else {1: registration}),
    )


@pytest.mark.parametrize(
    "found",
    [
        image(),
        image(((1, 2, 3), (3, 1, 2))),
        image(((1, 2, 3), (1,)), ((2, 3), (2,))),
    ],
    ids=["no replica", "all in sync", "others are not in sync"],
)
def test_a_broker_is_ready_when_its_own_replicas_are_in_sync(found: MetadataImage) -> None:
    assert why_not_ready(found, 1) == ""


def test_replicas_that_are_not_in_sync_are_counted_and_named() -> None:
    found = image(*[((1, 2), (2,))] * 7, ((1, 2), (1, 2)))
    assert why_not_ready(found, 1) == (
        "7 of the 8 replicas of broker 1 are not in sync: "
        "orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more"
    )


@pytest.mark.parametrize(
    "registration",
    [
        None,
        replace(REGISTRATION, fenced=True),
        replace(REGISTRATION, in_controlled_shutdown=True),
    ],
)
def test_a_broker_that_may_not_lead_is_not_ready(registration: BrokerImage | None) -> None:
    found = image(((1,), (1,)), registration=registration)
    assert why_not_ready(found, 1) == "broker 1 is fenced, or being shut down"
