"""A broker in this process, one for all tests of a module, without compaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import Wire


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker({"num.partitions": "2"}, engine=NoEngine) as broker:
        yield broker


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[Wire]:
    with Wire(running.port) as connection:
        yield connection
