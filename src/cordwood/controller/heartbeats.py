"""The brokers that are alive: the time of the last heartbeat of each, and its transitions.

None of this is in the metadata log: a controller that starts gives each unfenced broker a session.

Source: org.apache.kafka.controller.BrokerHeartbeatManager, BrokerHeartbeatTracker; KIP-631.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass

from cordwood.metadata.quorum.lifecycle import BrokerHeartbeat

_NOT_SHUTTING_DOWN = -1


class BrokerTransition(enum.Enum):
    """Transition of a broker at a heartbeat.

    Source: org.apache.kafka.controller.BrokerControlState.
    """

    SAME = enum.auto()
    FENCED = enum.auto()
    UNFENCED = enum.auto()
    CONTROLLED_SHUTDOWN = enum.auto()
    SHUTDOWN_NOW = enum.auto()


@dataclass(slots=True)
class _Known:
    """A broker; offsets are those of the last record that it has, and with which it may stop."""

    fenced: bool
    metadata_offset: int = -1
    shutdown_offset: int = _NOT_SHUTTING_DOWN

    @property
    def is_shutting_down(self) -> bool:
        return self.shutdown_offset != _NOT_SHUTTING_DOWN

    @property
    def is_active(self) -> bool:
        return not self.fenced and not self.is_shutting_down


class Heartbeats:
    """Sessions of brokers, by id and epoch; times are in ms of one monotonic clock."""

    def __init__(self, session_timeout_ms: float) -> None:
        """Nobody is known.

        Args:
            session_timeout_ms: broker.session.timeout.ms.
        """
        self._timeout_ms = session_timeout_ms
        self._heard_ms: dict[tuple[int, int], float] = {}
        self._brokers: dict[int, _Known] = {}

    def check_invariants(self) -> None:
        """Checks that no broker that is fenced is in a controlled shutdown."""
        for broker_id, known in self._brokers.items():
            assert not (known.fenced and known.is_shutting_down), (broker_id, known)

    @property
    def brokers(self) -> Collection[int]:
        """The ids of the brokers that are known."""
        return self._brokers.keys()

    def hear(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """A heartbeat has arrived."""
        self._heard_ms[broker_id, broker_epoch] = now_ms

    def has_session(self, broker_id: int, broker_epoch: int, now_ms: float) -> bool:
        """Whether a broker was heard within its session."""
        heard_ms = self._heard_ms.get((broker_id, broker_epoch))
        return heard_ms is not None and heard_ms + self._timeout_ms >= now_ms

    def take_expired(self, now_ms: float) -> tuple[int, int] | None:
        """The id and epoch of one broker whose session has ended; it has none from now on."""
        for key, heard_ms in self._heard_ms.items():
            if heard_ms + self._timeout_ms < now_ms:
                del self._heard_ms[key]
                return key
        return None

    def register(self, broker_id: int, *, fenced: bool) -> None:
        """A registration, or a change of one, is in the log.

        Unless it fences or unfences the broker, its offset counts only from its next heartbeat.
        """
        known = self._brokers.setdefault(broker_id, _Known(fenced))
        if known.fenced == fenced:
            known.metadata_offset = -1
        self._touch(known, fenced=fenced)

    def forget(self, broker_id: int) -> None:
        """Forgets a broker, which is registered again."""
        self._brokers.pop(broker_id, None)

    def keep_only(self, registered: Container[int]) -> None:
        """Forgets brokers that are not registered any more."""
        for broker_id in [each for each in self._brokers if each not in registered]:
            del self._brokers[broker_id]

    def answered(self, broker_id: int, *, fenced: bool, metadata_offset: int) -> None:
        """A heartbeat has taken effect."""
        known = self._brokers[broker_id]
        known.metadata_offset = metadata_offset
        self._touch(known, fenced=fenced)

    @staticmethod
    def _touch(known: _Known, *, fenced: bool) -> None:
        known.fenced = fenced
        if fenced:
            known.shutdown_offset = _NOT_SHUTTING_DOWN

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """A controlled shutdown is in the log, whose last record has this offset."""
        known = self._brokers[broker_id]
        if not known.is_shutting_down:
            known.shutdown_offset = offset

    def next_state(
        self,
        broker_id: int,
        heartbeat: BrokerHeartbeat,
        *,
        registered_at: int,
        leads: Callable[[], bool],
    ) -> BrokerTransition:
        """The transition that a heartbeat causes in a registered broker.

        Args:
            broker_id: of the broker.
            heartbeat: that of the broker's epoch.
            registered_at: the offset of the record of its registration.
            leads: whether it leads a partition.
        """
        known = self._brokers[broker_id]
        if known.is_shutting_down:
            if leads() or known.shutdown_offset > self._lowest_active_offset():
                return BrokerTransition.SAME
            return BrokerTransition.SHUTDOWN_NOW
        if known.fenced:
            if heartbeat.wants_shutdown:
                return BrokerTransition.SHUTDOWN_NOW
            is_caught_up = heartbeat.metadata_offset >= registered_at
            return (
                BrokerTransition.UNFENCED
                if is_caught_up and not heartbeat.wants_fence
                else BrokerTransition.SAME
            )
        if heartbeat.wants_shutdown:
            can_stop = heartbeat.wants_fence or not leads()
            return (
                BrokerTransition.SHUTDOWN_NOW if can_stop else BrokerTransition.CONTROLLED_SHUTDOWN
            )
        return BrokerTransition.FENCED if heartbeat.wants_fence else BrokerTransition.SAME

    def is_fenced(self, broker_id: int) -> bool:
        """Whether a broker was fenced after its last heartbeat."""
        return self._brokers[broker_id].fenced

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a broker is in a controlled shutdown."""
        return self._brokers[broker_id].is_shutting_down

    def _lowest_active_offset(self) -> float:
        """The offset up to which all active brokers know what has changed."""
        active = (each.metadata_offset for each in self._brokers.values() if each.is_active)
        return min(active, default=float("inf"))
