"""A start that is told to stop while it loads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cordwood.configs.server_properties import BrokerSettings
from cordwood.node.node import Node
from cordwood.storage.loaded_log_directory import Silent
from cordwood.surfaces.cli.load_progress import StoppableLoading, StoppedLoadingError
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import Wire


async def start_and_stop(settings: BrokerSettings, loaded: list[str]) -> None:
    class Noted(Silent):
        def advance(self, log_dir: Path, name: str) -> None:
            loaded.append(name)

    node = Node(settings, engine=NoEngine)
    await node.start(StoppableLoading(Noted(), lambda: len(loaded) >= 2))


def test_a_start_that_is_told_to_stop_ends_before_all_logs_are_loaded(tmp_path: Path) -> None:
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as running, Wire(running.port) as wire:
        asked = {"name": "t", "num_partitions": 5, "replication_factor": 1}
        wire.ask("create_topics", 5, {"timeout_ms": 5000, "topics": [asked]})
        settings = running.settings
    loaded: list[str] = []
    with pytest.raises(StoppedLoadingError):
        asyncio.run(start_and_stop(settings, loaded))
    assert len(loaded) == 2
    assert not (tmp_path / ".lock").exists()
    assert (tmp_path / ".kafka_cleanshutdown").exists(), "it was clean, and nothing was written"
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as again:
        assert len(again.broker.replicas.logs.logs()) == 5
