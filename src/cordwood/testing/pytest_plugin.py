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

`pytest --cordwood` is for a suite that reads the address of its Kafka from the environment: one
broker runs before the first `conftest.py` is imported, and until the end of the session. `--kafka`
is the same option, unless the suite or another plugin has one of that name.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from cordwood.node.node import EngineFactory
    from cordwood.testing.broker import RunningBroker
    from cordwood.testing.cluster import Cluster
    from cordwood.testing.setting_text import SettingValue

T = TypeVar("T")

_MARK: Final = "cordwood_cluster"
_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"


#: Names the process that has started the broker of the session, for workers of pytest-xdist.
_STARTED_BY: Final = "CORDWOOD_PYTEST_SESSION"

#: The options, by what follows `--cordwood` or `--kafka` in their names.
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "": {
        "dest": "cordwood",
        "action": "store_true",
        "help": f"start one broker for the session, and set {_VARIABLE} to its address",
    },
    "-env": {
        "dest": "cordwood_env",
        "metavar": "NAME",
        "action": "append",
        "help": "set this environment variable instead; may be given several times",
    },
    "-property": {
        "dest": "cordwood_property",
        "metavar": "NAME=VALUE",
        "action": "append",
        "help": "a setting of server.properties for that broker; may be given several times",
    },
}


class _SessionBroker:
    """The broker of `--cordwood`, and the variables that name it."""

    def __init__(self, broker: RunningBroker, variables: Sequence[str]) -> None:
        self.broker = broker
        self.variables = variables
        # Of Cordwood, a run without a broker imports this module alone.
        from cordwood.model.environment import environment_variables  # noqa: PLC0415

        given = dict.fromkeys(variables, broker.bootstrap_servers) | {_STARTED_BY: str(os.getpid())}
        self._environment = ExitStack()
        self._environment.enter_context(environment_variables(given))

    def stop(self) -> None:
        """Stops the broker; the environment is as before. Once."""
        self._environment.close()
        self.broker.stop()


_SESSION: Final = pytest.StashKey[_SessionBroker]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--cordwood` and what belongs to it."""
    group = parser.getgroup("cordwood", "a Kafka broker for the tests")
    for suffix, attributes in _OPTIONS.items():
        group.addoption(f"--cordwood{suffix}", **attributes)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Iterator[None]:
    """Starts the broker before a `conftest.py` is imported; then adds `--kafka` if it is free.

    An option `--kafka` of a `conftest.py` is known only when that has been imported. So a broker
    that was started for the short name is stopped where the project has one of its own.
    """
    given = early_config.known_args_namespace
    short = _short_names_in(args)
    is_short = short.cordwood and not given.cordwood
    if given.cordwood or (is_short and not _may_be_taken(early_config, parser)):
        options = argparse.Namespace(
            help=given.help or given.version,
            cordwood_env=[*(given.cordwood_env or []), *(short.cordwood_env or [])],
            cordwood_property=[*(given.cordwood_property or []), *(short.cordwood_property or [])],
        )
        _start(early_config, options)
    yield
    is_taken = not _is_free(parser, "--kafka")
    for suffix, attributes in _OPTIONS.items():
        if _is_free(parser, f"--kafka{suffix}"):
            parser.getgroup("cordwood").addoption(f"--kafka{suffix}", **attributes)
    session = early_config.stash.get(_SESSION, None)
    if is_taken and is_short and session is not None:
        del early_config.stash[_SESSION]
        session.stop()


def _short_names_in(args: Sequence[str]) -> argparse.Namespace:
    """The values of `--kafka` and related options, before pytest has parsed them."""
    short = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for suffix, attributes in _OPTIONS.items():
        short.add_argument(f"--kafka{suffix}", **attributes)
    try:
        return short.parse_known_args(args)[0]
    except argparse.ArgumentError:  # pytest finds it, too
        return short.parse_args([])


def _is_free(parser: pytest.Parser, option: str) -> bool:
    try:
        return option in parser.parse_known_and_unknown_args([option])[1]
    except pytest.UsageError:  # an option that takes a value
        return False


def _may_be_taken(config: pytest.Config, parser: pytest.Parser) -> bool:
    """Whether `--kafka` is an option of another plugin, or a `conftest.py` speaks of it."""
    if not _is_free(parser, "--kafka"):
        return True
    begin = config.invocation_params.dir
    named = [begin / each.partition("::")[0] for each in config.known_args_namespace.file_or_dir]
    places = {config.rootpath, begin}
    for path in named:
        places |= {path, *path.parents}
    return any(
        re.search(r"""["']--kafka["']""", path.read_text(encoding="utf-8", errors="replace"))
        for place in places
        for path in (place / "conftest.py", *place.glob("test*/conftest.py"))
        if path.is_file()
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark, and starts the broker where that was not possible before."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(brokers=3, properties=None, kafka_brokers=0, kafka_home=None): arguments of "
        "cordwood.testing.cluster.Cluster for the fixture of that name; properties are added to "
        "cordwood_properties",
    )
    if config.option.cordwood:
        _start(config, config.option)


def _is_worker() -> bool:
    """Whether this is a worker of pytest-xdist whose session has the broker in its environment."""
    return "PYTEST_XDIST_WORKER" in os.environ and os.environ.get(_STARTED_BY) == f"{os.getppid()}"


def _start(config: pytest.Config, options: argparse.Namespace) -> None:
    if _SESSION in config.stash or options.help or _is_worker():
        return
    broker = _started(options.cordwood_property or [])
    session = _SessionBroker(broker, options.cordwood_env or [_VARIABLE])
    config.stash[_SESSION] = session
    config.add_cleanup(session.stop)


def _started(properties: Sequence[str]) -> RunningBroker:
    from cordwood.model.errors import CordwoodError  # noqa: PLC0415  # only where it is used
    from cordwood.testing.broker import RunningBroker  # noqa: PLC0415

    wrong = [each for each in properties if "=" not in each]
    if wrong:
        raise pytest.UsageError(f"--cordwood-property {wrong[0]}: NAME=VALUE is expected")
    try:
        return RunningBroker(dict(each.split("=", 1) for each in properties)).start()
    except (CordwoodError, OSError) as error:
        raise pytest.UsageError(f"--cordwood: {error}") from None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says where the broker of `--cordwood` is."""
    session = config.stash.get(_SESSION, None)
    if session is None:
        return None
    return f"kafka: {', '.join(session.variables)}={session.broker.bootstrap_servers} (Cordwood)"


@contextmanager
def _running(name: str, make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """The value that a fixture yields; a start that fails is one line in the output."""
    from cordwood.model.errors import CordwoodError  # noqa: PLC0415  # only where it is used

    failure = ""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(make())
        except (CordwoodError, OSError) as error:
            failure = f"{name}: {error}"
        if failure:  # said here, or pytest would show the error above it, too
            pytest.fail(failure, pytrace=False)
        yield running


@pytest.fixture(scope="session")
def cordwood_properties() -> Mapping[str, SettingValue]:
    """Settings of server.properties for all fixtures, as `RunningBroker` takes them; none."""
    return {}


@pytest.fixture(scope="session")
def cordwood_engine() -> EngineFactory | None:
    """The engine factory for the fixtures' brokers; that of `RunningBroker` if None."""
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
    """A running broker for all tests of the session: that of `--cordwood`, if it is given."""
    from cordwood.testing.broker import RunningBroker  # noqa: PLC0415  # only where it is used

    session = pytestconfig.stash.get(_SESSION, None)
    if session is not None:
        yield session.broker
        return
    if pytestconfig.option.cordwood and _is_worker():
        pytest.fail(
            "cordwood_shared_broker: with --cordwood the broker, and so its clock, is in the "
            "process that has started this worker; use -n 0",
            pytrace=False,
        )
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
    if mark is not None and mark.args:
        pytest.fail(
            f"cordwood_cluster: the mark takes arguments by name, such as brokers=1, not "
            f"{', '.join(map(repr, mark.args))}",
            pytrace=False,
        )
    options = {} if mark is None else dict(mark.kwargs)
    properties = {**cordwood_properties, **options.pop("properties", {})}
    with _running("cordwood_cluster", lambda: Cluster(properties=properties, **options)) as cluster:
        yield cluster
