"""Delayed operations, completed once: when their condition holds, or when their timeout expires.

An operation waits under the keys on which its condition depends, such as partitions. Code that
changes one of these calls `check`. A purgatory belongs to one thread.

Source: org.apache.kafka.server.purgatory.DelayedOperationPurgatory, DelayedOperation.
Differs: `check` passes on by how much a key has grown, so an operation need not inspect all its
keys for each append; an operation leaves all watch lists when it completes, so nothing is purged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from cordwood.model.timers import CallLater, Timer

K = TypeVar("K", bound=Hashable)


class DelayedOperation(Protocol):
    """An operation that waits in a purgatory."""

    def try_complete(self, grown_bytes: int | None, /) -> bool:
        """Completes the operation if its condition holds; returns whether it did.

        Args:
            grown_bytes: by how many bytes one of its keys has grown; 0 for any other change of a
                key, None when the operation starts to watch its keys, which may have changed
                before.
        """

    def on_complete(self) -> None:
        """Completes the operation once: its condition holds, or its time is up."""

    def on_expiration(self) -> None:
        """Notes the expiration, before `on_complete`."""


class Delayed(Generic[K]):
    """An operation that has been put into a purgatory."""

    def __init__(self, purgatory: Purgatory[K], operation: DelayedOperation) -> None:
        self._purgatory = purgatory
        self._operation = operation
        self._timer: Timer | None = None
        self.keys: list[K] = []
        self.is_completed = False

    def start_timer(self, timer: Timer) -> None:
        """Keeps the timer of the operation's timeout."""
        self._timer = timer

    def check(self, grown_bytes: int | None) -> bool:
        """Completes the operation if its condition holds; whether it is completed."""
        if not self.is_completed and self._operation.try_complete(grown_bytes):
            self.complete()
        return self.is_completed

    def complete(self) -> bool:
        """Completes the operation; False if it was completed before."""
        if not self._leave():
            return False
        self._operation.on_complete()
        return True

    def cancel(self) -> None:
        """Removes the operation without completing it: its client has disconnected."""
        self._leave()

    def expire(self) -> None:
        """Completes the operation because its time is up."""
        if self._leave():
            self._purgatory.expired_count += 1
            self._operation.on_expiration()
            self._operation.on_complete()

    def _leave(self) -> bool:
        if self.is_completed:
            return False
        self.is_completed = True
        if self._timer is not None:
            self._timer.cancel()
        self._purgatory.remove(self)
        return True


class Purgatory(Generic[K]):
    """The operations that wait for the same kind of thing.

    Invariant: an operation is in the watch lists of its keys until it is completed, and not longer;
    no watch list is empty.
    """

    def __init__(self, call_later_ms: CallLater) -> None:
        """`call_later_ms` schedules the timeouts."""
        self._call_later_ms = call_later_ms
        # A dict for its order: operations complete in the order in which they began to wait.
        self._watched: dict[K, dict[Delayed[K], None]] = {}
        self.delayed_count = 0
        self.expired_count = 0

    def check_invariants(self) -> None:
        """Checks the watch lists against the keys of the operations that wait."""
        waiting: set[Delayed[K]] = set()
        for key, watched in self._watched.items():
            assert watched, key
            for delayed in watched:
                assert key in delayed.keys, (key, delayed.keys)
                assert not delayed.is_completed, key
            waiting.update(watched)
        # One that is put in at present may have no key yet.
        assert len(waiting) <= self.delayed_count, (len(waiting), self.delayed_count)

    @property
    def watched_count(self) -> int:
        """The number of watched operations, each counted once for each of its keys."""
        return sum(map(len, self._watched.values()))

    def watched_by(self, key: K) -> int:
        """The number of operations that wait under a key."""
        return len(self._watched.get(key, ()))

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[K], timeout_ms: int
    ) -> Delayed[K]:
        """Completes an operation now if its condition holds; otherwise it waits under the keys.

        `keys` may be produced in slices, between which the first of them may already be checked.
        """
        delayed = Delayed(self, operation)
        self.delayed_count += 1
        # Before the first key is watched: the time may be up during a pause.
        delayed.start_timer(self._call_later_ms(timeout_ms, delayed.expire))
        for key in keys:
            if delayed.is_completed:
                break
            watched = self._watched.setdefault(key, {})
            if delayed not in watched:
                watched[delayed] = None
                delayed.keys.append(key)
        # After the last key is watched: no change is missed.
        delayed.check(None)
        return delayed

    def check(self, key: K, grown_bytes: int = 0) -> int:
        """Completes the operations under a key whose condition holds; returns how many."""
        watched = self._watched.get(key)
        if watched is None:
            return 0
        return sum(delayed.check(grown_bytes) for delayed in list(watched))

    def remove(self, delayed: Delayed[K]) -> None:
        """Takes an operation out of its watch lists."""
        self.delayed_count -= 1
        for key in delayed.keys:
            watched = self._watched[key]
            del watched[delayed]
            if not watched:
                del self._watched[key]
        delayed.keys.clear()
