"""Makes the archive of Spark's classes: a virtual machine runs a compaction and a query, and ends.

It takes as much processor time as a few cold starts, once; see `class_archive`.

usage: python -m cordwood.cleanup.engine.spark.archive_maker
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cordwood.cleanup.engine.run_directory import RunDirectory
from cordwood.cleanup.engine.spark import class_archive
from cordwood.cleanup.engine.spark.machine import Machine, local_command
from cordwood.cleanup.engine.spark.runner import Block, RddRunner, Row
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS

#: Archives of other environments are kept, the most recently used of them.
_KEPT: Final = 4
_SECONDS_MAX: Final = 600
_QUERY: Final = (
    "SELECT id % 3 AS rest, count(*), max(id), first(CAST(id AS string)) FROM numbers "
    "WHERE id >= 10 AND id NOT IN (5, 6) GROUP BY 1 ORDER BY 1"
)
_NICE: Final = 19


def start_if_missing() -> None:
    """Starts making the archive in the background, at the lowest priority, if there is none."""
    try:
        command = local_command()
        cache = class_archive.cache_directory()
        if cache is None or class_archive.find(command) is not None:
            return
        if _failure(cache, command).exists():
            return
        os.makedirs(cache, mode=0o700, exist_ok=True)
        subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, CordwoodError):
        return  # every start is as slow as this one was


def make() -> Path | None:
    """Makes the archive; returns its path, or None if there is one, or another process makes it.

    Raises:
        EngineError: Spark does not start.
        OSError: the cache cannot be written.
    """
    cache, command = class_archive.cache_directory(), local_command()
    if cache is None or class_archive.find(command) is not None:
        return None
    os.makedirs(cache, mode=0o700, exist_ok=True)
    with (cache / "spark-classes.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        for left in cache.glob("spark-classes-*.partial"):
            OS.remove(left)
        failure = _failure(cache, command)
        # Removed at the end: what fails once is not tried again in the background.
        OS.create(failure).close()
        path = class_archive.path_in(cache, command)
        partial = path.with_suffix(".partial")
        with RunDirectory() as run:
            machine = Machine(run.path, locks=[run.lock])
            try:
                machine.launch(archive_at_exit=partial)
                _train(machine.context("local[2]"))
                machine.exit()
            finally:
                machine.stop()
        OS.rename(partial, path)
        OS.remove(failure)
        _remove_old(cache)
    return path


def _failure(cache: Path, command: class_archive.Command) -> Path:
    return class_archive.path_in(cache, command).with_suffix(".failed")


def _train(context: Any) -> None:
    """Runs what a compaction runs, tasks, and a merge of what they give by shard; and a query."""
    runner = RddRunner(context)
    for _ in range(2):
        runner.run(4, lambda task: [Row(task, 0, b"row")])
        runner.merge(
            4,
            lambda task: [Block(task % 3 - 1, task, 0, 0, b"block")],
            2,
            lambda blocks: [Row(block.chunk, block.kind, block.payload) for block in blocks],
        )

    _train_queries(runner.session())


def _train_queries(session: Any) -> None:
    """Plans and runs what most queries of logs have: views, filters, groups, an order, Arrow."""
    numbers = session.range(0, 1000, 1, 4)
    empty = session.createDataFrame(session.sparkContext.emptyRDD(), numbers.schema)
    for each in (empty, numbers):
        each.createOrReplaceTempView("numbers")
        frame = session.sql(_QUERY)
        frame.mapInArrow(lambda batches: batches, frame.schema).collect()
        frame.limit(10).toArrow()


def _remove_old(cache: Path) -> None:
    found = sorted(cache.glob("spark-classes-*.jsa"), key=lambda path: -path.stat().st_atime_ns)
    for path in found[_KEPT:]:
        with suppress(OSError):
            OS.remove(path)


def main() -> None:
    """Makes the archive, in bounded time."""
    signal.alarm(_SECONDS_MAX)
    os.nice(_NICE)
    make()


if __name__ == "__main__":
    main()
