"""pytest fixtures: a Kafka broker in the process of the tests, with a clock that tests advance.

pytest finds them through an entry point, so an installed Cordwood needs no line in `conftest.py`:

    def test_orders_expire(cordwood_broker):
        producer = Producer({"bootstrap.servers": cordwood_broker.bootstrap_servers})

`cordwood_broker` is a new broker for each test, `cordwood_shared_broker` one for the whole session.
Override `cordwood_properties` to give both other settings than the defaults. The broker is imported
when a fixture is first used; `-p no:cordwood.testing.pytest_plugin` removes the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cordwood.testing.broker import RunningBroker
    from cordwood.testing.setting_text import SettingValue


@pytest.fixture(scope="session")
def cordwood_properties() -> Mapping[str, SettingValue]:
    """Settings of server.properties for both fixtures, as `RunningBroker` takes them; none."""
    return {}


@pytest.fixture
def cordwood_broker(
    cordwood_properties: Mapping[str, SettingValue],
) -> Iterator[RunningBroker]:
    """A running broker for this test alone."""
    from cordwood.testing.broker import RunningBroker  # noqa: PLC0415  # only where it is used

    with RunningBroker(cordwood_properties) as broker:
        yield broker


@pytest.fixture(scope="session")
def cordwood_shared_broker(
    cordwood_properties: Mapping[str, SettingValue],
) -> Iterator[RunningBroker]:
    """A running broker for all tests of the session."""
    from cordwood.testing.broker import RunningBroker  # noqa: PLC0415  # only where it is used

    with RunningBroker(cordwood_properties) as broker:
        yield broker
