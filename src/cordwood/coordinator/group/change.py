"""The effects of one event, collected while it is handled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar

from cordwood.coordinator.effects import (
    Answer,
    CancelTimer,
    Effects,
    ReplyTo,
    SetTimer,
    StartTask,
    TransactionalProducer,
)
from cordwood.coordinator.group.classic.group import ClassicGroup
from cordwood.coordinator.group.counters import Count, Counts
from cordwood.coordinator.group.events import GroupEvent
from cordwood.coordinator.group.shard import CoordinatorRecord, GroupShard
from cordwood.model.audit import AuditEvent, audit
from cordwood.model.kafka_errors import KafkaError

A = TypeVar("A")

_AUDIT_LOG: Final = ReplyTo[AuditEvent](audit)


class Change:
    """The change that an event makes to the state, and its effects."""

    def __init__(self, shard: GroupShard, now_ms: int, counts: Counts) -> None:
        """`counts` are those of the coordinator, which the change adds to when it is applied."""
        self.shard = shard
        self.now_ms = now_ms
        self._totals = counts
        self._counts: dict[Count, int] = {}
        self.on_failure: Callable[[KafkaError], GroupEvent] | None = None
        self.keeps_state = False
        self.is_atomic = True
        self.producer: TransactionalProducer | None = None
        self._copies: dict[str, ClassicGroup] = {}
        self._records: list[CoordinatorRecord] = []
        self._answers: list[Answer] = []
        self._notes: list[Answer] = []
        self._timers: list[SetTimer | CancelTimer] = []
        self._tasks: list[StartTask] = []

    # ---- the state

    def group(self, group_id: str) -> ClassicGroup | None:
        """A group that may be changed; None if there is no such classic group."""
        found = self._copies.get(group_id)
        if found is None:
            known = self.shard.classic_group(group_id)
            if known is not None:
                found = self._put(known.copy())
        return found

    def new_group(self, group_id: str) -> ClassicGroup:
        """An empty group without members."""
        return self._put(ClassicGroup(group_id, state_timestamp_ms=self.now_ms))

    def _put(self, group: ClassicGroup) -> ClassicGroup:
        self._copies[group.group_id] = group
        self.shard.put(group)
        return group

    # ---- effects

    def discard(self) -> None:
        """Drops the records, timers and tasks: the request is refused."""
        self._records.clear()
        self._notes.clear()
        self._timers.clear()
        self._tasks.clear()
        self._counts.clear()

    def write(self, record: CoordinatorRecord) -> None:
        """Appends a record, and replays it."""
        self._records.append(record)

    def write_all(self, records: Sequence[CoordinatorRecord]) -> None:
        """Appends records, and replays them."""
        self._records.extend(records)

    def count(self, what: Count, by: int = 1) -> None:
        """Counts something that happens if the records are appended."""
        self._counts[what] = self._counts.get(what, 0) + by

    def answer(self, reply_to: ReplyTo[A], value: A) -> None:
        """Answers a request when all records that the answer depends on are committed."""
        self._answers.append(Answer(reply_to, value))

    def note(self, event: AuditEvent) -> None:
        """Has an event noted in the audit log when the records are committed."""
        self._notes.append(Answer(_AUDIT_LOG, event))

    def set_timer(
        self,
        key: Hashable,
        delay_ms: int,
        event: GroupEvent,
        *,
        if_absent: bool = False,
        retry_ms: int | None = None,
    ) -> None:
        """Has an event happen after `delay_ms`, instead of the one set before for the key.

        With `if_absent` the one set before happens, if there is one. If the records of the event
        cannot be appended, it happens again after `retry_ms`.
        """
        self._timers.append(SetTimer(key, delay_ms, event, if_absent, retry_ms))

    def cancel_timer(self, key: Hashable) -> None:
        """Has the event of a timer not happen."""
        self._timers.append(CancelTimer(key))

    def start_task(self, key: Hashable, run: Callable[[int], GroupEvent]) -> None:
        """Has `run` do long work with the time, and its event happen, unless it is under way."""
        self._tasks.append(StartTask(key, run))

    def effects(self) -> Effects[CoordinatorRecord]:
        """All effects of the event."""
        return Effects(
            records=self._records,
            answers=self._answers,
            timers=self._timers,
            tasks=self._tasks,
            on_failure=self.on_failure,
            keeps_state=self.keeps_state,
            is_atomic=self.is_atomic,
            when_committed=self._notes,
            producer=self.producer,
            on_applied=self._apply_counts if self._counts else None,
        )

    def _apply_counts(self) -> None:
        for what, by in self._counts.items():
            self._totals[what] += by
