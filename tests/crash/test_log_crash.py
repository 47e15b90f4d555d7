"""Power is lost at every operation of the file system; each time the logs are what they must.

`support.log_crash` says what is done, what is taken for a crash, and what is checked.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cordwood.storage.log.log_flusher import LogFlusher
from cordwood.storage.log.truncation import truncate_to
from cordwood.storage.log_manager import LogManager
from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment import segment_recovery
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.transaction_index import TransactionIndex
from cordwood.testing.simulated_filesystem import SimulatedFileSystem
from support.log_crash import CrashFailure, CrashPlan, CrashRun

IMAGES_SMALL, IMAGES_NIGHTLY = 700, 10_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Silences thousands of warnings of damage."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def crashed(seeds: Iterator[int], *, steps: int, images: int, enough: int) -> Counter[str]:
    """Runs workloads until so many images were judged; how often each kind of step was taken."""
    done: Counter[str] = Counter()
    operations = judged = 0
    while judged < enough:
        report = CrashRun(CrashPlan(seed=next(seeds), steps=steps, images=images)).run()
        operations += report.operations
        judged += report.images
        done.update(report.steps)
    print(f"{operations} operations, {judged} crash images, of steps {dict(done)}")
    return done


def test_whatever_operation_power_is_lost_at_the_logs_are_what_they_must() -> None:
    done = crashed(iter(range(1000)), steps=30, images=3, enough=IMAGES_SMALL)
    assert done["append"] > 5


@pytest.mark.nightly
def test_whatever_operation_power_is_lost_at_the_logs_are_what_they_must_at_length() -> None:
    seeds = iter(random.Random().sample(range(1 << 30), 1000))
    done = crashed(seeds, steps=60, images=5, enough=IMAGES_NIGHTLY)
    assert {name.strip("_") for name in done} >= {"clean", "truncate", "move", "lose_power"}


def test_the_images_of_an_operation_can_be_judged_alone() -> None:
    plan = CrashPlan(seed=1, steps=10, images=3)
    whole = CrashRun(plan).run()
    alone = CrashRun(plan, only=whole.operations // 2).run()
    assert (alone.operations, alone.steps) == (whole.operations, whole.steps)
    assert 1 <= alone.images <= 3


# ---- it finds what is wrong


def _does_nothing(*_: Any, **__: Any) -> None:
    """Stands for a step that somebody has forgotten."""


def _forgets_recovery_points(manager: LogManager, offsets: Any) -> None:
    for partition, offset in offsets.items():
        truncate_to(manager.require(partition), offset)


def _cuts_without_sync(file: Any, size_bytes: int) -> None:
    file.truncate(size_bytes)


def _believes_every_crc(walk: segment_recovery.SegmentWalk, *_: Any) -> None:
    assert walk.position >= 0


FORGOTTEN: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "a flush that does not sync": (LogSegment, "flush_log", _does_nothing),
    "a flush that does not sync names": (SimulatedFileSystem, "sync_directory", _does_nothing),
    "a truncation that may come undone": (LogSegment, "_cut", staticmethod(_cuts_without_sync)),
    "a recovery that checks no CRC": (
        segment_recovery.SegmentWalk,
        "_check_crc",
        _believes_every_crc,
    ),
    "aborted transactions that are not noted": (TransactionIndex, "append", _does_nothing),
    "producers that are forgotten": (ProducerStateManager, "load_entry", _does_nothing),
    "a roll that flushes nothing": (LogFlusher, "flush_rolled", _does_nothing),
}


@pytest.mark.nightly
@pytest.mark.rotated
@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_step_that_is_forgotten_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead = FORGOTTEN[what]
    monkeypatch.setattr(where, name, instead)
    with pytest.raises(CrashFailure, match="seed="):
        crashed(itertools.count(), steps=60, images=4, enough=20_000)
