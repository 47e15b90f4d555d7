"""Effects of an event on a coordinator: records, answers, timers and tasks.

The state machine performs none of them. The runtime appends the records, replays them, sets the
timers, starts the tasks, and sends the answers when the records are committed.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorResult, CoordinatorTimer,
CoordinatorExecutor; the `Ready` of etcd-io/raft.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from cordwood.model.kafka_errors import KafkaError

A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
R = TypeVar("R")


Reply = Callable[[A], object]
"""Receives the answer to a request, immediately or later."""


class ReplyTo(Generic[A_contra]):
    """The destination of the answer to a request.

    A state machine keeps it and names it in its effects; only the runtime calls it.
    """

    __slots__ = ("_refusal", "_send")

    def __init__(
        self,
        send: Callable[[A_contra], object],
        refusal: Callable[[KafkaError], A_contra] | None = None,
    ) -> None:
        """`refusal` makes the answer of an error; without it, errors are not answered."""
        self._send = send
        self._refusal = refusal

    def send(self, answer: A_contra) -> None:
        """Answers the request."""
        self._send(answer)

    def refuse(self, error: KafkaError) -> None:
        """Answers the request with an error."""
        if self._refusal is not None:
            self._send(self._refusal(error))


class Answer(NamedTuple):
    """An answer that is due when the records of its event are committed."""

    reply_to: ReplyTo[Any]
    value: object


class SetTimer(NamedTuple):
    """A timer event that is due after `delay_ms`.

    It replaces the timer with the same key, or with `if_absent` is not set if there is one. If the
    records of its event cannot be appended, it is due again after `retry_ms`; None: it is not.
    """

    key: Hashable
    delay_ms: int
    event: object
    if_absent: bool = False
    retry_ms: int | None = None


class CancelTimer(NamedTuple):
    """A timer that is not needed any more."""

    key: Hashable


class StartTask(NamedTuple):
    """Work that may take long, such as a search in all topics; `run` returns the next event.

    `run` takes the time and runs in slices, between which other events are handled; it must not
    use the state. A task whose key is that of a task that has not ended is not started.
    """

    key: Hashable
    run: Callable[[int], object]


class TransactionalProducer(NamedTuple):
    """The producer of a transaction that records are part of.

    `verification_guard` is what the log has given for the first batch of a transaction (KIP-890).
    """

    producer_id: int
    producer_epoch: int
    verification_guard: object | None = None


class Effects(NamedTuple, Generic[R]):
    """The consequences of an event.

    If the records of an atomic event cannot be appended, its changes of the state are reverted and
    its other effects are dropped. Then `on_failure` gives the event that handles the error;
    without it, the request of the event is refused. With `keeps_state`, the state stays as the
    event has changed it, and its effects take place, although the records are not in the log.

    If `is_atomic` is False, the records are tombstones that are appended in as many batches as
    their size requires; the batches that were appended before a failure stay.

    `answers_wait` is False if the event has no records and its answers depend on nothing but
    committed state: then they are sent at once. `write_timeout_ms` is how long answers wait for the
    commit, in place of the runtime's own. Those of `when_committed` wait without a limit: they are
    for the coordinator itself, and are dropped if the partition is unloaded before.

    The records are part of a transaction if there is a `producer`.

    `on_applied` is called when the event has taken effect.
    """

    records: Sequence[R] = ()
    answers: Sequence[Answer] = ()
    timers: Sequence[SetTimer | CancelTimer] = ()
    tasks: Sequence[StartTask] = ()
    on_failure: Callable[[KafkaError], object] | None = None
    keeps_state: bool = False
    is_atomic: bool = True
    answers_wait: bool = True
    write_timeout_ms: int | None = None
    when_committed: Sequence[Answer] = ()
    producer: TransactionalProducer | None = None
    on_applied: Callable[[], object] | None = None
