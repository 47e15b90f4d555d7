"""A running broker, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.client.cluster_client import ClusterClient
from cordwood.client.settings import ClientSettings
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine


def _fail(text: str) -> None:
    pytest.fail(f"the client warned: {text}")


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    properties = {"auto.create.topics.enable": "false"}
    with RunningBroker(properties, engine=NoEngine) as running:
        yield running


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[ClusterClient]:
    settings = ClientSettings(bootstrap_servers=broker.bootstrap_servers)
    with ClusterClient(settings, warn=_fail) as found:
        yield found
