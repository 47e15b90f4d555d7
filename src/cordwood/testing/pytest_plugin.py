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

`pytest --kafka` is for a suite that reads the address of its Kafka from the environment: one broker
runs before the first test module is imported, and until the end of the session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from cordwood.node.node import EngineFactory
    from cordwood.testing.broker import RunningBroker
    from cordwood.testing.cluster import Cluster
    from cordwood.testing.setting_text import SettingValue

T = TypeVar("T")

_MARK: Final = "cordwood_cluster"
_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"


class _SessionBroker:
    """The broker of `--kafka`, and the variables that name it."""

    def __init__(self, broker: RunningBroker, variables: list[str]) -> None:
        self.broker = broker
        self.variables = variables
        self._before = {name: os.environ.get(name) for name in variables}
        os.environ.update(dict.fromkeys(variables, broker.bootstrap_servers))

    def stop(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self.broker.stop()


_SESSION: Final = pytest.StashKey[_SessionBroker]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--kafka` and what belongs to it."""
    group = parser.getgroup("cordwood", "a Kafka broker for the tests")
    group.addoption(
        "--kafka",
        action="store_true",
        help=f"start one broker for the session, and set {_VARIABLE} to its address",
    )
    group.addoption(
        "--kafka-env",
        metavar="NAME",
        action="append",
        help="set this environment variable instead; may be given several times",
    )
    group.addoption(
        "--kafka-property",
        metavar="NAME=VALUE",
        action="append",
        help="a setting of server.properties for that broker; may be given several times",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark, and starts the broker of `--kafka`."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(brokers=3, properties=None, kafka_brokers=0, kafka_home=None): arguments of "
        "cordwood.testing.cluster.Cluster for the fixture of that name; properties are added to "
        "cordwood_properties",
    )
    # A worker of pytest-xdist has the environment of the process that has started the broker.
    is_worker = hasattr(config, "workerinput")
    if config.getoption("kafka") and not is_worker and not config.option.help:
        broker = _started(config.getoption("kafka_property") or [])
        variables = config.getoption("kafka_env") or [_VARIABLE]
        config.stash[_SESSION] = _SessionBroker(broker, variables)


def _started(properties: list[str]) -> RunningBroker:
    from cordwood.model.errors import CordwoodError  # noqa: PLC0415  # only where it is used
    from cordwood.testing.broker import RunningBroker  # noqa: PLC0415

    wrong = [each for each in properties if "=" not in each]
    if wrong:
        raise pytest.UsageError(f"--kafka-property {wrong[0]}: NAME=VALUE is expected")
    try:
        return RunningBroker(dict(each.split("=", 1) for each in properties)).start()
    except (CordwoodError, OSError) as error:
        raise pytest.UsageError(f"--kafka: {error}") from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stops the broker of `--kafka`; the environment is as before."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        del config.stash[_SESSION]
        session.stop()


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says where the broker of `--kafka` is."""
    session = config.stash.get(_SESSION, None)
    if session is None:
        return None
    return f"kafka: {', '.join(session.variables)}={session.broker.bootstrap_servers} (Cordwood)"


@contextmanager
def _running(name: str, make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """What a fixture yields; a start that fails is one line in the output."""
    from cordwood.model.errors import CordwoodError  # noqa: PLC0415  # only where it is used

    with ExitStack() as stack:
        try:
            running = stack.enter_context(make())
        except (CordwoodError, OSError) as error:
            pytest.fail(f"{name}: {error}", pytrace=False)
        yield running


@pytest.fixture(scope="session")
def cordwood_properties() -> Mapping[str, SettingValue]:
    """Settings of server.properties for all fixtures, as `RunningBroker` takes them; none."""
    return {}


@pytest.fixture(scope="session")
def cordwood_engine() -> EngineFactory | None:
    """What the brokers of the fixtures compact with; that of `RunningBroker` if None."""
    return None


@pytest.fixture
def cordwood_broker(
    cordwood_properties: Mapping[str, SettingValue], cordwood_engine: EngineFactory | None
) -> Iterator[RunningBroker]:
    """A running broker for this test alone."""
    from cordwood.testing.broker import RunningBroker  # noqa: PLC0415  # only where it is used

    with _running(
        "cordwood_broker", lambda: RunningBroker(cordwood_properties, engine=cordwood_engine)
    ) as broker:
        yield broker


@pytest.fixture(scope="session")
def cordwood_shared_broker(
    pytestconfig: pytest.Config,
    cordwood_properties: Mapping[str, SettingValue],
    cordwood_engine: EngineFactory | None,
) -> Iterator[RunningBroker]:
    """A running broker for all tests of the session: that of `--kafka`, if it is given."""
    from cordwood.testing.broker import RunningBroker  # noqa: PLC0415  # only where it is used

    session = pytestconfig.stash.get(_SESSION, None)
    if session is not None:
        yield session.broker
        return
    with _running(
        "cordwood_shared_broker",
        lambda: RunningBroker(cordwood_properties, engine=cordwood_engine),
    ) as broker:
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
    with _running("cordwood_cluster", lambda: Cluster(properties=properties, **options)) as cluster:
        yield cluster
