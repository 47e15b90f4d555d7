"""The legal holds of log directories: written to all, in force while one has it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.format.file_names import HOLDS_FILE
from cordwood.model.audit import AUDIT_LOGGER, EVENT_ATTRIBUTE, HoldReleased
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.model.hold import Hold
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import UNREADABLE, HoldRegistry
from cordwood.testing.simulated_filesystem import SimulatedFileSystem

T0, T1, U0 = (TopicPartition.parse(name) for name in ("t-0", "t-1", "u-0"))


def hold(name: str, topic: str = "t", partition: int | None = None) -> Hold:
    return Hold(
        id=name, topic=topic, partition=partition, reason=f"case {name}", by="me", created_ms=1
    )


def directories(root: Path, count: int = 2) -> list[Path]:
    found = [root / f"logs-{number}" for number in range(count)]
    for each in found:
        each.mkdir(exist_ok=True)
    return found


def opened(paths: list[Path], offline: set[Path] | None = None) -> HoldRegistry:
    registry = HoldRegistry(OS, lambda path: offline is not None and path in offline)
    registry.read(paths)
    return registry


def test_holds_cover_a_topic_or_a_partition_and_outlast_the_process(tmp_path: Path) -> None:
    first, second = directories(tmp_path)
    registry = opened([first, second])
    registry.add(hold("a"))
    registry.add(hold("b", partition=1))
    for each in (registry, opened([first]), opened([second])):
        assert each.ids(T0, first) == ("a",)
        assert each.ids(T1, second) == ("a", "b")
        assert each.ids(U0, first) == ()
        assert each.ids_of_topic("t") == ("a", "b")
    registry.release("a", by="ada")
    for each in (registry, opened([first]), opened([second])):
        assert each.ids(T0, first) == ()
        assert each.ids(T1, first) == ("b",)


def test_an_id_is_given_once_and_only_what_is_there_is_released(tmp_path: Path) -> None:
    registry = opened(directories(tmp_path))
    registry.add(hold("a"))
    for again in (hold("a"), hold("a", "u")):
        with pytest.raises(ConfigError, match="--id a: there is a hold with this id already, on t"):
            registry.add(again)
    with pytest.raises(ConfigError, match="--id b: there is no such hold; there are: a"):
        registry.release("b", by="ada")


def test_a_release_is_in_the_audit_log_and_one_that_was_refused_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", AUDIT_LOGGER)
    registry = opened(directories(tmp_path))
    added = hold("a")
    registry.add(added)
    for hold_id, by in (("b", "ada"), ("a", "two\nlines")):
        with pytest.raises(ConfigError):
            registry.release(hold_id, by=by)
    assert caplog.records == []
    registry.release("a", by="ada")
    (record,) = caplog.records
    event = getattr(record, EVENT_ATTRIBUTE)
    assert isinstance(event, HoldReleased)
    assert (event.hold, event.target, event.released_by) == ("a", "t", "ada")
    assert (event.reason, event.added_by) == (added.reason, added.by)
    assert event.added_ms == added.created_ms


def test_a_hold_that_some_directories_lack_is_completed_or_spread(tmp_path: Path) -> None:
    first, second = directories(tmp_path)
    opened([first]).add(hold("a"))
    both = opened([first, second])
    both.add(hold("a"))
    assert (second / HOLDS_FILE).read_bytes() == (first / HOLDS_FILE).read_bytes()
    opened([second]).release("a", by="ada")
    again = opened([first, second])
    assert again.ids(T0, second) == ("a",)
    again.spread()
    assert opened([second]).ids(T0, second) == ("a",)


def test_an_unreadable_file_holds_all_of_its_directory_and_stops_changes(tmp_path: Path) -> None:
    first, second = directories(tmp_path)
    opened([first, second]).add(hold("a"))
    whole = (first / HOLDS_FILE).read_bytes()
    (first / HOLDS_FILE).write_bytes(whole[:-9])
    registry = opened([first, second])
    assert registry.ids(U0, first) == (UNREADABLE,)
    assert registry.ids(U0, second) == ()
    assert registry.ids(T0, second) == ("a",)
    assert str(first / HOLDS_FILE) in registry.damage()[first]
    for change in (lambda: registry.add(hold("b")), lambda: registry.release("a", by="ada")):
        with pytest.raises(CordwoodError, match=r"not a file of legal holds .* Put back a copy"):
            change()
    registry.spread()
    assert (first / HOLDS_FILE).read_bytes() == whole[:-9]
    (first / HOLDS_FILE).write_bytes(whole)
    registry.add(hold("b"))
    assert (registry.ids(U0, first), registry.damage()) == ((), {})


def test_a_directory_in_place_of_the_file_is_an_error_too(tmp_path: Path) -> None:
    (log_dir,) = directories(tmp_path, 1)
    (log_dir / HOLDS_FILE).mkdir()
    assert opened([log_dir]).ids(T0, log_dir) == (UNREADABLE,)


def test_a_directory_that_is_offline_is_left_alone_and_counts(tmp_path: Path) -> None:
    first, second = directories(tmp_path)
    offline: set[Path] = set()
    registry = opened([first, second], offline)
    registry.add(hold("a"))
    offline.add(second)
    registry.add(hold("b"))
    registry.release("a", by="ada")
    assert registry.ids(T0, first) == ("b", "a")
    assert opened([second]).ids(T0, second) == ("a",)


def test_a_hold_that_was_added_survives_a_power_loss() -> None:
    fs, log_dir = SimulatedFileSystem(), Path("/logs")
    fs.make_directory_durably(log_dir)

    def found() -> set[tuple[str, ...]]:
        """The ids after a power loss now, by what else may have become of the disk."""
        seen = set()
        for image in fs.crash_images(20, random.Random(1)):
            after = HoldRegistry(image)
            after.read([log_dir])
            seen.add(after.ids(T0, log_dir))
        return seen

    registry = HoldRegistry(fs)
    registry.read([log_dir])
    registry.add(hold("a"))
    assert found() == {("a",)}
    registry.add(hold("b"))
    assert found() == {("a", "b")}
    registry.release("a", by="ada")
    assert found() == {("b",)}
