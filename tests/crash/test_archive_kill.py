"""Archives and restores that are killed: the next run ends where an undisturbed one does."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from cordwood.testing.manual_clock import ManualClock
from support.archive_killing import ARCHIVE, RESTORE, killed_at
from support.archives import archive_in, archived, contents, restored
from support.log_builder import write_log_dir
from support.random_log import Contents, random_log


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logs = [random_log(seed, Contents(batches=20), name=f"log-{seed}") for seed in range(3)]
    for log in logs:
        log.log_start_offset = None
    return write_log_dir(tmp_path_factory.mktemp("logs") / "data", logs)


def steps_of(seed: int, *, count: int, last: int) -> list[int]:
    return [random.Random(f"{seed} {number}").randint(1, last) for number in range(count)]


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 4), pytest.param(1, 100, marks=pytest.mark.nightly)]
)
def test_archiving_that_is_killed_again_and_again_ends_complete(
    source: Path, tmp_path: Path, seed: int, count: int
) -> None:
    place = tmp_path / "archive"
    (undisturbed,) = killed_at(ARCHIVE, source, tmp_path / "undisturbed", 0)
    last = int(undisturbed.removeprefix("done "))
    ended = killed_at(ARCHIVE, source, place, *steps_of(seed, count=count, last=last))
    assert "killed" in ended
    archive = archive_in(place)
    # Whatever is in force is whole.
    half = tmp_path / "half"
    assert restored(archive, half).is_complete
    found, expected = contents(half), contents(source)
    for name in found:
        if name.endswith(".log") and name in expected and found[name]:
            assert found[name] == expected[name]
    assert archived(archive, source, has_active=True).is_complete
    whole = tmp_path / "whole"
    assert restored(archive, whole).is_complete
    assert contents(whole) == expected
    archive.collect(archive.garbage(ManualClock(4_000_000_000_000)))
    named = {file.key for each in archive.manifests() for file in each.files}
    assert {each.key for each in archive.store.list("data/")} == named
    after = tmp_path / "after"
    restored(archive, after)
    assert contents(after) == expected


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 4), pytest.param(1, 100, marks=pytest.mark.nightly)]
)
def test_a_restore_that_is_killed_leaves_no_part_of_a_log(
    source: Path, tmp_path: Path, seed: int, count: int
) -> None:
    archive = archive_in(tmp_path / "archive")
    archived(archive, source, has_active=True)
    expected = contents(source)
    (undisturbed,) = killed_at(RESTORE, tmp_path / "whole", tmp_path / "archive", 0)
    last = int(undisturbed.removeprefix("done "))
    steps = steps_of(seed, count=count, last=last)
    ended = killed_at(RESTORE, tmp_path / "into-%", tmp_path / "archive", *steps)
    assert "killed" in ended
    for into in (tmp_path / f"into-{number}" for number in range(count)):
        for path in [each for each in into.iterdir() if each.is_dir()] if into.exists() else []:
            if re.fullmatch(r"log-\d\.[0-9a-f]{32}-delete", path.name):
                continue
            here = {each.name: each.read_bytes() for each in path.iterdir()}
            there = {
                name.partition("/")[2]: data
                for name, data in expected.items()
                if name.startswith(f"{path.name}/") and not name.endswith("-checkpoint")
            }
            assert here.items() >= there.items()
