"""Partitions on their way to another log directory of this broker.

A move copies in a thread of its own, beside appends and reads. A stop interrupts it, and the next
start continues; if it cannot continue, the partition stays where it is.

Source: kafka.server.ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsManager; KIP-113.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from cordwood.cleanup.schedule.paused_changes import PausedMove
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import NotCaughtUpError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log_manager import LogManager

_log = logging.getLogger(__name__)

BeginMove = Callable[[TopicPartition, Path], PausedMove]
"""Begins the move of a partition's log to a directory; the cleaner skips the log during the move.

It is called in a thread, because it waits until the cleaner has released the log.
"""


class _Move:
    """The move of one partition; `is_given_up` cancels it, `next_target` is the next directory.

    `next_begun` is done when the next move is in progress.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.is_given_up = False
        self.next_target: Path | None = None
        self.next_begun: asyncio.Future[Any] | None = None


class DirectoryMoves:
    """All moves; every method belongs to the event loop's thread."""

    def __init__(
        self,
        logs: LogManager,
        loop: asyncio.AbstractEventLoop,
        *,
        begin_move: BeginMove,
        on_moved: Callable[[TopicPartition], None],
        threads: int,
    ) -> None:
        """Creates the object; no move is in progress.

        Args:
            logs: the logs of the broker.
            loop: the event loop whose thread owns this.
            begin_move: begins the move of one log.
            on_moved: called when a partition's log is in its new directory.
            threads: num.replica.alter.log.dirs.threads.
        """
        self._logs = logs
        self._loop = loop
        self._begin_move = begin_move
        self._on_moved = on_moved
        self._moves: dict[TopicPartition, _Move] = {}
        self._pool = ThreadPoolExecutor(threads, "replica-alter-log-dirs")
        self._stopping = threading.Event()

    def resume(self) -> None:
        """Continues the moves that the last stop interrupted."""
        logs = self._logs
        for log in logs.logs():
            partition = log.topic_partition
            if logs.get(partition, future=True) is log and logs.get(partition) is not None:
                self.begin(partition, log.log_dir)

    def begin(self, partition: TopicPartition, target: Path) -> asyncio.Future[Any]:
        """Moves a partition, also one that is being moved; a move back cancels the move.

        The future is done when the move is in progress, so that a restart continues it, or has the
        `KafkaError` for which it is not possible.
        """
        nothing: asyncio.Future[Any] = self._loop.create_future()
        nothing.set_result(None)
        current = self._moves.get(partition)
        if current is not None:
            is_same = current.target == target and not current.is_given_up
            current.is_given_up = not is_same
            current.next_target = None if is_same else target
            if is_same:
                return nothing
            if current.next_begun is None:
                current.next_begun = self._loop.create_future()
            # If the client disconnects, other callers keep the future.
            return asyncio.shield(current.next_begun)
        log = self._logs.get(partition)
        if log is None or log.log_dir == target or self._stopping.is_set():
            return nothing
        move = self._moves[partition] = _Move(target)
        begun = self._loop.run_in_executor(None, self._begin_move, partition, target)
        begun.add_done_callback(partial(self._begun, partition, move))
        return begun

    def close(self) -> None:
        """Returns when no move is being worked on; unfinished moves continue at the next start.

        Call it from another thread than the event loop's.
        """
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _begun(
        self, partition: TopicPartition, move: _Move, begun: asyncio.Future[PausedMove]
    ) -> None:
        error = begun.exception()
        if error is not None:
            _log.error("Cannot move %s to %s: %s", partition, move.target, error)
            self._end(partition, move)
        elif not self._stopping.is_set():
            done = self._loop.run_in_executor(self._pool, self._run, begun.result(), move)
            done.add_done_callback(partial(self._done, partition, move))

    def _done(self, partition: TopicPartition, move: _Move, done: asyncio.Future[bool]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            _log.error("Cannot move %s to %s", partition, move.target, exc_info=error)
        elif done.result():
            self._on_moved(partition)
        self._end(partition, move)

    def _end(self, partition: TopicPartition, move: _Move) -> None:
        del self._moves[partition]
        waiting = move.next_begun
        if move.next_target is not None:
            begun = self.begin(partition, move.next_target)
            if waiting is not None:
                begun.add_done_callback(partial(_pass_on, waiting))
        elif waiting is not None:
            waiting.set_result(None)

    def _run(self, paused: PausedMove, move: _Move) -> bool:
        """Moves the partition, in a thread of the pool; whether it was moved.

        Raises:
            CordwoodError: it cannot be.
        """
        try:
            while not self._stopping.is_set():
                if move.is_given_up:
                    paused.abandon()
                    return False
                if paused.advance() and _finished(paused):
                    return True
        except BaseException:
            with suppress(CordwoodError):  # as of a directory that has failed
                paused.abandon()
            raise
        paused.interrupt()
        return False


def _pass_on(waiting: asyncio.Future[Any], begun: asyncio.Future[Any]) -> None:
    error = begun.exception()
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)


def _finished(paused: PausedMove) -> bool:
    try:
        paused.finish()
    except NotCaughtUpError:
        return False
    return True
