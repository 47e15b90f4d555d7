"""Cleaning a log of an archive is cleaning the directory, and of two writers one is refused."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cordwood.cleanup.access.archived.archived_log import archive_at
from cordwood.cleanup.access.commit import CompactionCommitter, Engine
from cordwood.cleanup.plan.report import Status
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError, EngineError
from cordwood.model.hold import Hold
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.archives.archive import Archive
from cordwood.storage.archives.manifest import ArchiveManifest
from cordwood.storage.archives.mount import mount_archive
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldRegistry
from support.archives import archive_in, archived, contents, restored
from support.in_process_engine import CompiledEngine, clean_in_process
from support.log_builder import NOW_MS, write_log_dir
from support.random_log import Contents, random_log

PARTITION = TopicPartition("t", 0)


class Place:
    """A log directory, its archive with active segments, and where that is mounted."""

    def __init__(self, directory: Path, seed: int, **contents: Any) -> None:
        log = random_log(seed, Contents(batches=60, **contents), name=str(PARTITION))
        self.log_dir = write_log_dir(directory / "logs", [log])
        self.archive = archive_in(directory / "objects")
        archived(self.archive, self.log_dir, has_active=True)
        self.url = self.archive.url

    @property
    def root(self) -> Path:
        """The archive, as it is now."""
        return mount_archive(self.url)

    @property
    def manifest(self) -> ArchiveManifest:
        (found,) = self.archive.manifests()
        return found


def files_of(log_dir: dict[str, bytes]) -> dict[str, bytes]:
    """The files of the partition but producer snapshots, and an empty file of leader epochs."""
    return {
        name: content
        for name, content in log_dir.items()
        if name.startswith(f"{PARTITION}/")
        and not name.endswith(".snapshot")
        and content != b"0\n0\n"
    }


def config_of(rng: random.Random) -> LogConfig:
    return LogConfig(
        cleanup_policy=frozenset(rng.choice([["compact"], ["compact", "delete"], ["delete"]])),
        retention_ms=rng.choice([-1, 1, 3_600_000]),
        retention_bytes=rng.choice([-1, 0, 3000]),
        segment_bytes=rng.choice([2000, 1 << 20]),
        delete_retention_ms=rng.choice([0, 86_400_000]),
        min_cleanable_dirty_ratio=0.01,
    )


@pytest.mark.parametrize("stages_there", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_cleaned_archive_has_the_files_of_the_cleaned_directory(
    tmp_path: Path, seed: int, *, stages_there: bool
) -> None:
    place, config = Place(tmp_path, seed), config_of(random.Random(seed))
    here = clean_in_process(place.log_dir, {"t": config}, now_ms=NOW_MS)
    there = clean_in_process(
        place.root, {"t": config}, now_ms=NOW_MS, stages_in_archive=stages_there
    )
    assert not list(place.archive.store.list("staging/"))
    assert [each.status for each in there.partitions] == [each.status for each in here.partitions]
    restored(place.archive, tmp_path / "restored")
    expected, found = contents(place.log_dir), contents(tmp_path / "restored")
    assert files_of(found) == files_of(expected)
    number = place.manifest.number
    again = clean_in_process(place.root, {"t": config}, now_ms=NOW_MS)
    assert [each.status for each in again.partitions] != [Status.FAILED]
    if again.partitions[0].status is Status.UNCHANGED:
        assert place.manifest.number == number


def test_a_dry_run_puts_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, 3)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    before = sorted(each.key for each in place.archive.store.list())
    for measured in (False, True):
        clean_in_process(
            place.root, {"t": config}, now_ms=NOW_MS, dry_run=True, measured=measured, force=True
        )
    assert sorted(each.key for each in place.archive.store.list()) == before


class Interrupting(CompiledEngine):
    """Runs what it is asked before the groups, or after them."""

    def __init__(self, before: Any = None, after: Any = None) -> None:
        super().__init__()
        self._before, self._after = before, after

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        if self._before is not None:
            self._before()
        super().run(committers)
        if self._after is not None:
            self._after()


def engine_of(engine: Interrupting) -> Any:
    @contextmanager
    def start() -> Iterator[Engine]:
        yield engine

    return start


COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_later_of_two_writers_is_refused_and_nothing_of_it_is_there(
    tmp_path: Path, when: str
) -> None:
    place = Place(tmp_path, 5)
    other: list[ArchiveManifest] = []

    def write() -> None:
        mine = place.manifest
        other.append(
            ArchiveManifest(
                **{each: getattr(mine, each) for each in mine.__dataclass_fields__}
                | {"number": mine.number + 1, "run": "another"}
            )
        )
        Archive(place.archive.store).commit(other[0])

    engine = engine_of(Interrupting(**{when: write}))
    report = clean_in_process(place.root, {"t": COMPACT}, now_ms=NOW_MS, force=True, engine=engine)
    (row,) = report.partitions
    assert row.status is Status.FAILED
    assert "another writer has changed it in the archive" in row.reason
    assert place.manifest == other[0]


def test_a_run_that_breaks_off_changes_nothing_and_the_next_does_it(tmp_path: Path) -> None:
    place = Place(tmp_path, 5)
    shutil.copytree(place.log_dir, tmp_path / "copy")
    before = place.manifest

    def die() -> None:
        raise KeyboardInterrupt

    for when in ("before", "after"):
        with pytest.raises(KeyboardInterrupt):
            clean_in_process(
                place.root,
                {"t": COMPACT},
                now_ms=NOW_MS,
                force=True,
                engine=engine_of(Interrupting(**{when: die})),
            )
        assert place.manifest == before
    clean_in_process(place.root, {"t": COMPACT}, now_ms=NOW_MS, force=True)
    clean_in_process(tmp_path / "copy", {"t": COMPACT}, now_ms=NOW_MS, force=True)
    restored(place.archive, tmp_path / "restored")
    mine = contents(tmp_path / "restored")
    assert files_of(mine) == files_of(contents(tmp_path / "copy"))
    garbage = place.archive.garbage(SystemClock(), grace_ms=-60_000)
    assert garbage.keys, "the objects of the runs that broke off, and the old manifest"
    place.archive.collect(garbage)
    assert archive_at(place.root).manifests()[PARTITION] == place.manifest
    restored(place.archive, tmp_path / "restored again")
    assert contents(tmp_path / "restored again") == mine


def test_an_engine_that_fails_leaves_the_archive_as_it_was(tmp_path: Path) -> None:
    place = Place(tmp_path, 6)
    before = place.manifest

    class Failing(CompiledEngine):
        def run(self, committers: Sequence[CompactionCommitter]) -> None:
            for committer in committers:
                committer.reject(EngineError("no worker is left"))

    @contextmanager
    def start() -> Iterator[Engine]:
        yield Failing()

    report = clean_in_process(place.root, {"t": COMPACT}, now_ms=NOW_MS, force=True, engine=start)
    assert report.partitions[0].status is Status.FAILED
    assert place.manifest == before


def test_a_legal_hold_on_the_archive_keeps_the_log(tmp_path: Path) -> None:
    place = Place(tmp_path, 5)
    holds = HoldRegistry(OS)
    holds.read([place.root])
    holds.add(Hold(id="case-7", topic="t", partition=None, reason="x", by="me", created_ms=NOW_MS))
    before = place.manifest
    report = clean_in_process(place.root, {"t": COMPACT}, now_ms=NOW_MS, force=True)
    assert report.partitions[0].status is Status.HELD
    assert report.partitions[0].holds == ("case-7",)
    assert place.manifest == before


def test_an_archive_has_no_trash(tmp_path: Path) -> None:
    place = Place(tmp_path, 5)
    with pytest.raises(ConfigError, match="an archive has none"):
        clean_in_process(place.root, {"t": COMPACT}, now_ms=NOW_MS, trash=tmp_path / "trash")


def test_an_exact_dry_run_gives_the_numbers_of_the_cleaning(tmp_path: Path) -> None:
    place = Place(tmp_path, 5)
    numbers = []
    for changes in ({"dry_run": True, "measured": True}, {}):
        report = clean_in_process(place.root, {"t": COMPACT}, now_ms=NOW_MS, force=True, **changes)
        (row,) = report.partitions
        assert row.status in {Status.PLANNED, Status.CLEANED}, row.reason
        numbers.append((row.after, row.discarded))
    assert numbers[0] == numbers[1]
