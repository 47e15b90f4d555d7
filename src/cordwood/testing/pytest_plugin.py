"""pytest fixtures: a Kafka broker in the process of the tests, or a cluster of processes.

Tests advance the clocks of both.

pytest finds them through an entry point, so an installed Cordwood needs no line in `conftest.py`:

    def test_orders_expire(cordwood_broker):
        producer = Producer({"bootstrap.servers": cordwood_broker.bootstrap_servers})

`cordwood_broker` is a new broker for each test, `cordwood_shared_broker` one for the whole session,
`cordwood_cluster` a new cluster of three brokers for each test. Override `cordwood_properties` to
give all of them other settings than the defaults. The mark `cordwood_cluster` has arguments of
`Cluster` for one test: `@pytest.mark.cordwood_cluster(brokers=1)`. The broker is imported when a
fixture is first used; `-p no:cordwood.testing.pytest_plugin` removes the fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cordwood.testing.broker import RunningBroker
    from cordwood.testing.cluster import Cluster
    from cordwood.testing.setting_text import SettingValue

_MARK = "cordwood_cluster"


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(brokers=3, properties=None, kafka_brokers=0, kafka_home=None): arguments of "
        "cordwood.testing.cluster.Cluster for the fixture of that name; properties are added to "
        "cordwood_properties",
    )


@pytest.fixture(scope="session")
def cordwood_properties() -> Mapping[str, SettingValue]:
    """Settings of server.properties for all fixtures, as `RunningBroker` takes them; none."""
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


@pytest.fixture
def cordwood_cluster(
    request: pytest.FixtureRequest, cordwood_properties: Mapping[str, SettingValue]
) -> Iterator[Cluster]:
    """A running cluster of processes for this test alone: a controller and three brokers."""
    from cordwood.testing.cluster import Cluster  # noqa: PLC0415  # only where it is used

    mark = request.node.get_closest_marker(_MARK)
    options = {} if mark is None else dict(mark.kwargs)
    properties = {**cordwood_properties, **options.pop("properties", {})}
    with Cluster(properties=properties, **options) as cluster:
        yield cluster
