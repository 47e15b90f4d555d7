"""The states of partitions for cleaning: in progress, aborted, paused.

A partition has no state, or one of three:

    none ── begin ──► InProgress ── end ──► none
                         │ abort_and_pause
                         ▼
                      Aborted ── end ──► Paused(1) ── resume_cleaning ──► none
    none ── abort_and_pause ──► Paused(1) ── abort_and_pause ──► Paused(2) ── resume_cleaning ──►
        Paused(1)

Source: org.apache.kafka.storage.internals.log.LogCleanerManager, LogCleaningState.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition

_WAIT_S = 0.1


class LogCleaningAbortedError(CordwoodError):
    """The cleaning of a log must stop: other code needs the log.

    Source: org.apache.kafka.storage.internals.log.LogCleaningAbortedException.
    """


class CleaningStateError(CordwoodError):
    """A change of a partition's state that its present one does not allow."""


@dataclass(frozen=True, slots=True)
class InProgress:
    """State of a partition that a thread compacts, or deletes old segments of."""

    thread: threading.Thread

    def __str__(self) -> str:
        return "LogCleaningInProgress"


@dataclass(frozen=True, slots=True)
class Aborted:
    """State of a partition whose cleaning, by a thread, has to stop."""

    thread: threading.Thread

    def __str__(self) -> str:
        return "LogCleaningAborted"


@dataclass(frozen=True, slots=True)
class Paused:
    """State of a partition that is not cleaned before `count` calls of `resume_cleaning`."""

    count: int

    def __str__(self) -> str:
        return f"LogCleaningPaused({self.count})"


CleaningState = InProgress | Aborted | Paused


class CleaningStates:
    """The states of all partitions.

    `lock` guards them, and what its owner changes together with them.
    """

    def __init__(self) -> None:
        """All partitions are free."""
        self.lock = threading.RLock()
        self._let_go = threading.Condition(self.lock)
        self._states: dict[TopicPartition, CleaningState] = {}

    def of(self, partition: TopicPartition) -> CleaningState | None:
        """A partition's state; None where nothing keeps it from being cleaned. Waits for nobody."""
        return self._states.get(partition)

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions without a state are in progress from now on, by this thread."""
        with self.lock:
            for partition in partitions:
                assert partition not in self._states, f"{partition} is {self._states[partition]}"
                self._states[partition] = InProgress(threading.current_thread())

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions without a state are paused from now on."""
        with self.lock:
            for partition in partitions:
                assert partition not in self._states, f"{partition} is {self._states[partition]}"
                self._states[partition] = Paused(1)

    def abort_cleaning(self, partition: TopicPartition) -> None:
        """Stops the cleaning of a partition, if one is under way, and returns when it has stopped.

        Raises:
            CleaningStateError: this thread cleans it itself.
        """
        with self.lock:
            self.abort_and_pause(partition)
            self.resume_cleaning([partition])

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """Aborts a cleaning, and excludes the log from cleaning until `resume_cleaning`.

        Differs: Kafka refuses what another caller is stopping; here that is waited for.

        Raises:
            CleaningStateError: this thread cleans it itself.
        """
        with self.lock:
            state = self._states.get(partition)
            if (
                isinstance(state, (InProgress, Aborted))
                and state.thread is threading.current_thread()
            ):
                raise CleaningStateError(
                    f"Compaction for partition {partition} cannot be aborted and paused since it "
                    f"is in {state} state."
                )
            while isinstance(state, Aborted):
                self._let_go.wait(_WAIT_S)
                state = self._states.get(partition)
            if isinstance(state, InProgress):
                self._states[partition] = Aborted(state.thread)
            else:
                self._states[partition] = Paused(state.count + 1 if state is not None else 1)
            while not isinstance(self._states.get(partition), Paused):
                self._let_go.wait(_WAIT_S)

    def resume_cleaning(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes one pause of each.

        Raises:
            CleaningStateError: one is not paused.
        """
        with self.lock:
            for partition in partitions:
                state = self._states.get(partition)
                if state is None:
                    raise CleaningStateError(
                        f"Compaction for partition {partition} cannot be resumed since it is not "
                        "paused."
                    )
                if not isinstance(state, Paused):
                    raise CleaningStateError(
                        f"Compaction for partition {partition} cannot be resumed since it is in "
                        f"{state} state."
                    )
                if state.count == 1:
                    del self._states[partition]
                else:
                    self._states[partition] = Paused(state.count - 1)

    def in_progress(self, partition: TopicPartition) -> InProgress | Aborted:
        """The state of a partition that is being cleaned.

        Raises:
            CleaningStateError: it is not.
        """
        state = self._states.get(partition)
        if state is None:
            raise CleaningStateError(f"State for partition {partition} should exist.")
        if isinstance(state, Paused):
            raise CleaningStateError(
                f"In-progress partition {partition} cannot be in {state} state."
            )
        return state

    def done(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends the cleaning, or the retention, of partitions; an aborted one is then paused.

        Raises:
            CleaningStateError: one was not in progress.
        """
        with self.lock:
            for partition in partitions:
                if isinstance(self.in_progress(partition), InProgress):
                    del self._states[partition]
                else:
                    self._states[partition] = Paused(1)
                    self._let_go.notify_all()

    def check_invariants(self) -> None:
        """Asserts that each pause counts at least once."""
        with self.lock:
            for partition, state in self._states.items():
                is_counted = not isinstance(state, Paused) or state.count > 0
                assert is_counted, f"{partition} is paused {state} times"
