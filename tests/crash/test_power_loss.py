"""Durability of answered changes of metadata: each lasts through a power loss, at once."""

from __future__ import annotations

import random
from pathlib import Path

from cordwood.testing.broker import RunningBroker
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.no_engine import NoEngine
from support.wire_client import WireClient

LOGS = Path("/new/logs")
_IMAGES = 6


def running(fs: SimulatedFileSystem) -> RunningBroker:
    return RunningBroker(log_dir=LOGS, engine=NoEngine, fs=fs)


def names(wire: WireClient) -> set[str]:
    return {each["name"] for each in wire.ask("metadata", 9, {"topics": None})["topics"]}


def test_topics_that_were_created_are_there_after_a_power_loss() -> None:
    fs = SimulatedFileSystem()
    rng = random.Random(1)  # repeats itself
    moments: list[tuple[set[str], SimulatedFileSystem]] = []
    with running(fs) as broker, WireClient(broker.port) as wire:
        for created in ({"a"}, {"a", "b"}):
            wire.create(max(created), 2)
            moments += [(created, image) for image in fs.crash_images(_IMAGES, rng)]
    assert len(moments) == 2 * _IMAGES
    for created, image in moments:
        with running(image) as broker, WireClient(broker.port) as wire:
            assert names(wire) == created
