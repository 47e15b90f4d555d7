"""Fixtures of all tests: log directories to work on, a real Kafka, Hypothesis profiles."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from cordwood.model.held_signals import STOP_SIGNALS
from support import kafka_programs
from support.class_archive import ASKED_BY as QUICK_START_ASKED_BY
from support.golden import Golden
from support.kafka import copy_log_dir
from support.new_environment import build_plain_wheel
from support.nights import EVERY_NIGHT, left_out_at
from support.object_storage.server import ObjectStorageServer, server_or_skip
from support.tiers import COLLECTED, MARKS_OF_COMPAT, may_run_in_compat, place_of, tier_of

GOLDEN = Path(__file__).parent / "golden" / "golden-a.tar.xz"

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=500,  # other ones each night
    print_blob=True,
    phases=list(Phase),
    suppress_health_check=list(HealthCheck),
)


_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 6 << 30


def _is_roomy(directory: Path) -> bool:
    """Whether the temporary files of all tests fit a file system in memory."""
    try:
        room = os.statvfs(directory)
        facts = dict(line.split()[:2] for line in Path("/proc/meminfo").read_text().splitlines())
    except OSError:
        return False
    free = min(room.f_bavail * room.f_frsize, int(facts.get("MemAvailable:", "0")) << 10)
    return os.access(directory, os.W_OK) and free > _ROOM_BYTES


def _wants_nightly(config: pytest.Config) -> bool:
    expression: str = config.option.markexpr
    return re.search(r"(?<!not )\bnightly\b", expression) is not None


def pytest_configure(config: pytest.Config) -> None:
    # A shell without job control has its background jobs ignore SIGINT, nohup SIGHUP; so would the
    # programs that tests start and send these to.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.setdefault(QUICK_START_ASKED_BY, "1")
    if _is_roomy(_MEMORY):
        # Tests sync files all the time, and remove them: on a disk most of them wait for that.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    chosen = "nightly" if _wants_nightly(config) else "ci"
    settings.load_profile(os.environ.get("CORDWOOD_HYPOTHESIS_PROFILE", chosen))


def _is_rotated(item: pytest.Item) -> bool:
    return item.get_closest_marker("rotated") is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Has `make compat` load no file of which it runs nothing: each worker loads all of them."""
    if config.option.markexpr != MARKS_OF_COMPAT or collection_path.suffix != ".py":
        return None
    file = collection_path.relative_to(config.rootpath).as_posix()
    return None if may_run_in_compat(file) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Gives each test its tier before `-m` selects, and puts the longest files first after that."""
    tiers = config.stash[COLLECTED] = {
        item.nodeid: tier_of(item.nodeid, is_nightly=item.get_closest_marker("nightly") is not None)
        for item in items
    }
    for item in items:
        if tiers[item.nodeid] in {"both", "compat"}:
            item.add_marker(tiers[item.nodeid])
        # Without `-m` the nightly tests are left out: they have to be asked for.
        if tiers[item.nodeid] == "nightly" and not config.option.markexpr:
            item.add_marker(pytest.mark.skip(reason="nightly: run `make nightly`"))
    yield
    night = os.environ.get("CORDWOOD_NIGHT", EVERY_NIGHT)
    left_out = set(left_out_at(night, [item.nodeid for item in items if _is_rotated(item)]))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]
    items.sort(key=lambda item: place_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Hides from the garbage collector what stays: a million objects, a second for each look."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests measured for a reader: seconds, sizes."""
    for report in terminalreporter.getreports("passed"):
        for name, figure in report.user_properties:
            if name == "figure":
                terminalreporter.write_line(str(figure))


@pytest.fixture(autouse=True)
def stop_signals() -> Iterator[None]:
    """Fails a test that leaves a signal ignored: programs started later would ignore it."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    left = {number for number in STOP_SIGNALS if signal.getsignal(number) is signal.SIG_IGN}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert all(before[number] is signal.SIG_IGN for number in left)


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The jars of a real Kafka 4.3. Without Java or Maven: a skip, or under CI=true a failure."""
    return _jars_of(kafka_programs.KAFKA_4_3)


@pytest.fixture(scope="session")
def kafka_4_4_jars() -> Path:
    """The jars of a real Kafka 4.4, as `kafka_jars`."""
    return _jars_of(kafka_programs.KAFKA_4_4)


def _jars_of(version: str) -> Path:
    try:
        return kafka_programs.kafka_jars(version)
    except kafka_programs.KafkaUnavailableError as error:
        reason = f"NO REAL KAFKA {version}, NOTHING COMPARED WITH IT: {error}"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def object_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorageServer]:
    """An S3 server that runs. Without Go: a skip, or under CI=true a failure."""
    with server_or_skip(tmp_path_factory.mktemp("object-storage")) as server:
        yield server


@pytest.fixture(scope="session")
def golden_a(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The log directories that ship with the tests; copy one before changing it."""
    return Golden.unpack(GOLDEN, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def plain_wheel_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel that runs on every Python, built from these sources."""
    target = tmp_path_factory.mktemp("dist")
    build_plain_wheel(target)
    return target


@pytest.fixture(scope="session")
def log_of_a_shop(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, int], None]:
    """Makes the log directory that a page begins with: once for each retention, then copied.

    It takes the path, and the days that `clicks` is kept.
    """
    # A broker and a client are loaded by the few tests that need them.
    from support.page_logs import make_log  # noqa: PLC0415

    made: dict[int, Path] = {}

    def make(path: Path, days: int) -> None:
        if days not in made:
            made[days] = tmp_path_factory.mktemp("shop") / "data"
            make_log(made[days], clicks_kept_days=days)
        shutil.copytree(made[days], path)

    return make


@pytest.fixture
def no_gc_callbacks() -> Iterator[None]:
    """Removes GC callbacks: a signal's error would be lost in Hypothesis's."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """Copies a log directory, modification times included, to where the test may change it."""

    def copy(source: Path) -> Path:
        number = sum(1 for _ in tmp_path.glob("copy-*"))
        return copy_log_dir(source, tmp_path / f"copy-{number}" / source.name)

    return copy
