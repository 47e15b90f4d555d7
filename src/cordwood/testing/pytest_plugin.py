"""Fixtures: a Kafka broker in the process of the tests, with a clock that can be moved.

    # conftest.py
    pytest_plugins = ["cordwood.testing.pytest_plugin"]

`cordwood_broker` is new for each test, `cordwood_shared_broker` one for all of a session;
`cordwood_properties` may be overridden to give both other settings than Kafka's defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from cordwood.testing.broker import RunningBroker


@pytest.fixture(scope="session")
def cordwood_properties() -> Mapping[str, str]:
    """Of server.properties; none are Kafka's defaults."""
    return {}


@pytest.fixture
def cordwood_broker(cordwood_properties: Mapping[str, str]) -> Iterator[RunningBroker]:
    """A broker of this test's own."""
    with RunningBroker(cordwood_properties) as broker:
        yield broker


@pytest.fixture(scope="session")
def cordwood_shared_broker(cordwood_properties: Mapping[str, str]) -> Iterator[RunningBroker]:
    """A broker for all tests of a session."""
    with RunningBroker(cordwood_properties) as broker:
        yield broker
