"""The life of a broker in its cluster, as a state machine: registration, heartbeats, shutdown.

`next_request` says what to send to the active controller, or how long to wait; one request is in
flight at a time, and its answer, or its failure, goes back to the machine.

Source: org.apache.kafka.server.BrokerLifecycleManager (4.3.0); KIP-631, KIP-858.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from cordwood.model.error_codes import ErrorCode

_log = logging.getLogger(__name__)

NO_BROKER_EPOCH = -1
_AT_ONCE = float("-inf")
_CATCHING_UP_MS = 10
_FIRST_SHUTDOWN_MS = 50


class BrokerState(enum.IntEnum):
    """The state of a broker, as the metric `BrokerState` shows it.

    Source: org.apache.kafka.metadata.BrokerState.
    """

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class Register:
    """A BrokerRegistration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat:
    """A BrokerHeartbeat; `metadata_offset` is that of the last record that all parts have.

    `cordoned_dirs` take no new partitions (KIP-1066); None if the broker does not say.
    """

    broker_epoch: int
    metadata_offset: int
    wants_fence: bool
    wants_shutdown: bool
    offline_dirs: tuple[UUID, ...] = ()
    cordoned_dirs: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatReply:
    """The controller's answer to a heartbeat."""

    error: ErrorCode = ErrorCode.NONE
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


class BrokerLifecycle:
    """The state machine; see the module. Times are of the monotonic clock, in ms.

    Invariant: the state only grows.
    """

    def __init__(
        self,
        now_ms: float,
        *,
        heartbeat_interval_ms: int = 2000,
        registration_timeout_ms: int = 60_000,
        cordoned: Callable[[], tuple[UUID, ...] | None] = lambda: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """STARTING; nothing is sent yet.

        Args:
            now_ms: the time.
            heartbeat_interval_ms: broker.heartbeat.interval.ms.
            registration_timeout_ms: initial.broker.registration.timeout.ms.
            cordoned: the directories that take no new partitions; None if the metadata version has
                no such directories.
            on_change: called when `next_request` may have something else to say.
        """
        self._interval_ms = heartbeat_interval_ms
        self._register_by_ms = now_ms + registration_timeout_ms
        self._cordoned = cordoned
        self._on_change = on_change
        self._state = BrokerState.STARTING
        self._epoch = NO_BROKER_EPOCH
        self._has_registered = False
        self._is_registered = False
        self._is_ready = False
        self._is_in_flight = False
        self._has_waited = False
        self._due_ms = _AT_ONCE
        self._is_due_now = False
        #: The failed directories, and whether the controller knows of each.
        self._offline: dict[UUID, bool] = {}
        self._sent_offline: tuple[UUID, ...] = ()

    @property
    def state(self) -> BrokerState:
        """The state of the broker."""
        return self._state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the last registration."""
        return self._epoch

    @property
    def is_caught_up(self) -> bool:
        """Whether the broker has applied the metadata with its own registration."""
        return self._state > BrokerState.STARTING

    def has_reported(self, directory: UUID) -> bool:
        """Whether the controller knows that a directory has failed."""
        return self._offline.get(directory, False)

    def cannot_register(self, now_ms: float) -> bool:
        """Whether the time to register is over: the process must end."""
        return not self._has_registered and now_ms >= self._register_by_ms

    # ---- what this broker does

    def ready_to_unfence(self) -> None:
        """The broker can serve requests from now on."""
        self._is_ready = True
        self._soon()

    def directory_failed(self, directory: UUID) -> None:
        """Has every heartbeat name a failed directory from now on."""
        self._offline.setdefault(directory, False)
        if self._is_registered:
            self._soon()

    def cordoned_changed(self) -> None:
        """Has a heartbeat name the directories that are cordoned now."""
        if self._is_registered:
            self._soon()

    def begin_shutdown(self) -> None:
        """A controlled shutdown if the broker runs; otherwise the end at once."""
        if self._state is BrokerState.RUNNING:
            self._state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._soon()
        elif self._state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.end()

    def end(self) -> None:
        """Ends the life of the broker: nothing more is sent."""
        self._state = BrokerState.SHUTTING_DOWN
        self._on_change()

    # ---- requests and answers

    def next_request(
        self, metadata_offset: int, now_ms: float
    ) -> Register | BrokerHeartbeat | float:
        """The next request, or after how many ms to call again, unless something changes before.

        Args:
            metadata_offset: of the last record that all parts of the broker have; -1 without one.
            now_ms: the time.

        Raises:
            ValueError: a request is in flight, or the broker is SHUTTING_DOWN.
        """
        if self._is_in_flight or self._state is BrokerState.SHUTTING_DOWN:
            raise ValueError("nothing can be sent now")
        if now_ms < self._due_ms:
            return self._due_ms - now_ms
        self._is_in_flight = True
        if not self._is_registered:
            return Register()
        self._sent_offline = tuple(self._offline)
        return BrokerHeartbeat(
            broker_epoch=self._epoch,
            metadata_offset=metadata_offset,
            wants_fence=not self._is_ready,
            wants_shutdown=self._state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_dirs=self._sent_offline,
            cordoned_dirs=self._cordoned() if self.is_caught_up else None,
        )

    def on_failure(self, now_ms: float) -> None:
        """The request in flight had no answer."""
        self._is_in_flight = self._is_due_now = False
        self._due_ms = now_ms + self._interval_ms

    def on_registered(self, error: ErrorCode, broker_epoch: int, now_ms: float) -> None:
        """The answer to a BrokerRegistration."""
        if error is not ErrorCode.NONE:
            _log.info(
                "Unable to register the broker because the controller returned error %s", error.name
            )
            self.on_failure(now_ms)
            return
        self._is_in_flight = False
        self._is_registered = self._has_registered = True
        self._epoch = broker_epoch
        self._due_ms = _AT_ONCE
        _log.info("Registered with broker epoch %d", broker_epoch)

    def on_heartbeat(self, answer: BrokerHeartbeatReply, now_ms: float) -> None:
        """The answer to a BrokerHeartbeat."""
        if answer.error is not ErrorCode.NONE:
            _log.warning("A heartbeat was refused with error %s", answer.error.name)
            self.on_failure(now_ms)
            return
        self._is_in_flight = False
        self._offline.update(dict.fromkeys(self._sent_offline, True))
        wait_ms = self._interval_ms
        if self._state is BrokerState.STARTING:
            if answer.is_caught_up:
                self._state = BrokerState.RECOVERY
            wait_ms = _CATCHING_UP_MS
        elif self._state is BrokerState.RECOVERY:
            if not answer.is_fenced:
                self._state = BrokerState.RUNNING
        elif self._state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if answer.should_shut_down:
                self.end()
                return
            if not self._has_waited:
                wait_ms = _FIRST_SHUTDOWN_MS
            self._has_waited = True
        self._due_ms = now_ms + (0 if self._is_due_now else wait_ms)
        self._is_due_now = False
        self._on_change()

    def _soon(self) -> None:
        if self._is_in_flight:
            self._is_due_now = True
        else:
            self._due_ms = _AT_ONCE
        self._on_change()
