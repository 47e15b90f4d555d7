"""Answers that wait until the records they depend on are committed.

Source: org.apache.kafka.deferred.DeferredEventQueue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.coordinator.effects import Answer
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.timers import Timer


@dataclass(eq=False, slots=True)
class DeferredAnswers:
    """The answers of one event, due when the high watermark is `offset` or higher."""

    offset: int
    answers: Sequence[Answer]
    timeout: Timer | None = None

    def send(self) -> None:
        """Sends the answers."""
        self._stop()
        for reply_to, value in self.answers:
            reply_to.send(value)

    def refuse(self, error: KafkaError) -> None:
        """Answers with an error instead."""
        self._stop()
        for reply_to, _ in self.answers:
            reply_to.refuse(error)

    def _stop(self) -> None:
        if self.timeout is not None:
            self.timeout.cancel()


class DeferredAnswerQueue:
    """Deferred answers in the order of their offsets."""

    def __init__(self) -> None:
        self._queue: deque[DeferredAnswers] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that answers wait for; None if none wait."""
        return self._queue[0].offset if self._queue else None

    def check_invariants(self) -> None:
        """Checks that the answers are in the order of their offsets."""
        offsets = [each.offset for each in self._queue]
        assert offsets == sorted(offsets), offsets

    def add(self, deferred: DeferredAnswers) -> None:
        """Adds answers that depend on an offset not lower than those of earlier ones."""
        assert not self._queue or self._queue[-1].offset <= deferred.offset
        self._queue.append(deferred)

    def take(self, high_watermark: int) -> list[DeferredAnswers]:
        """Removes the answers that are due."""
        due = []
        while self._queue and self._queue[0].offset <= high_watermark:
            due.append(self._queue.popleft())
        return due

    def take_all(self) -> list[DeferredAnswers]:
        """Removes all."""
        all_of_them = list(self._queue)
        self._queue.clear()
        return all_of_them

    def remove(self, deferred: DeferredAnswers) -> None:
        """Removes answers whose time is up."""
        self._queue.remove(deferred)
