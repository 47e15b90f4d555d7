"""Requests of brokers on other nodes to the controller, and its periodic work.

Source: org.apache.kafka.controller.ClusterControlManager, ReplicationControlManager,
QuorumController.processBrokerHeartbeat, PeriodicTaskControlManager (4.3.0); KIP-631, KIP-841,
KIP-858, KIP-966.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from cordwood.controller import partitions, registration
from cordwood.controller.controller import Controller
from cordwood.controller.heartbeats import BrokerTransition, Heartbeats
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.feature_levels import KRAFT_VERSION
from cordwood.metadata.image import BrokerImage
from cordwood.metadata.quorum.lifecycle import BrokerHeartbeat, BrokerHeartbeatReply
from cordwood.metadata.records import ApiRecord, Records
from cordwood.model.change_lock import ChangeLock, one_at_a_time
from cordwood.model.kafka_errors import DuplicateBrokerRegistrationError, StaleBrokerEpochError
from cordwood.model.pauses import in_steps

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Source: QuorumController.MAX_ELECTIONS_PER_IMBALANCE.
_ELECTIONS_MAX: Final = 1_000


class ClusterControl:
    """The brokers of a cluster, as its controller sees them."""

    def __init__(
        self,
        controller: Controller,
        *,
        session_timeout_ms: float,
        monotonic_ms: Callable[[], float],
        local_broker: int | None = None,
    ) -> None:
        """Gives each broker of the metadata that is not fenced a session.

        Args:
            controller: active.
            session_timeout_ms: broker.session.timeout.ms.
            monotonic_ms: a clock that no one moves: sessions end in real time.
            local_broker: the id of the broker in the controller's process, if there is one: it
                sends no heartbeats.
        """
        self._controller = controller
        self._monotonic_ms = monotonic_ms
        self._local_broker = local_broker
        self._heartbeats = Heartbeats(session_timeout_ms)
        #: The offset of each broker's registration; for brokers of an earlier start, the log's end.
        self._registered_at: dict[int, int] = {}
        for broker in controller.image.brokers.values():
            if broker.broker_id == local_broker:
                continue  # nobody waits until it has read what its own process has written
            self._registered_at[broker.broker_id] = controller.image.offset
            self._heartbeats.register(broker.broker_id, fenced=broker.fenced)
            if not broker.fenced:
                self._heartbeats.hear(broker.broker_id, broker.epoch, monotonic_ms())

    @property
    def between_changes(self) -> ChangeLock:
        """The controller's lock, held during each change."""
        return self._controller.between_changes

    def check_invariants(self) -> None:
        """Checks the brokers, between two changes: each has the offset of its registration."""
        self._heartbeats.check_invariants()
        unregistered = set(self._heartbeats.brokers) - self._registered_at.keys()
        assert not unregistered, unregistered
        end_offset = self._controller.image.offset
        for broker_id, offset in self._registered_at.items():
            assert broker_id != self._local_broker, broker_id
            assert offset <= end_offset, (broker_id, offset, end_offset)

    # ---- the life of a broker

    @one_at_a_time
    def register(self, broker: BrokerRegistration) -> int:
        """Registers a broker, which is fenced until it has caught up; returns its epoch.

        Raises:
            DuplicateBrokerRegistrationError: a broker with its id is alive.
            InvalidRegistrationError: its directories or features are not those of a broker.
            InvalidRequestError: a listener, or a range of feature levels, is not possible.
            UnsupportedRequestError: it does not support a level of the cluster.
            StorageError: the disk returned an error.
        """
        controller, broker_id = self._controller, broker.broker_id
        old = controller.image.brokers.get(broker_id)
        is_new = old is None or old.incarnation_id != broker.incarnation_id
        if old is not None and is_new and self._is_alive(old):
            raise DuplicateBrokerRegistrationError(
                "Another broker is registered with that broker id. If the broker was recently "
                "restarted this should self-resolve once the heartbeat manager expires the "
                "broker's session."
            )
        view = controller.view()
        levels = {**controller.image.features, KRAFT_VERSION: controller.log.kraft_version}
        registration.require_features(levels, broker.features)
        records = registration.registering_remote(view, broker, controller.log.end_offset)
        controller.commit(records)
        registered = controller.image.brokers[broker_id]
        self._registered_at[broker_id] = controller.image.offset
        self._heartbeats.forget(broker_id)
        self._heartbeats.register(broker_id, fenced=registered.fenced)
        _log.info(
            "Broker %d is registered with epoch %d, %s",
            broker_id,
            registered.epoch,
            "as a new incarnation" if is_new else "as the incarnation that it was",
        )
        return registered.epoch

    def _is_alive(self, broker: BrokerImage) -> bool:
        return broker.broker_id == self._local_broker or self._heartbeats.has_session(
            broker.broker_id, broker.epoch, self._monotonic_ms()
        )

    def hear(self, broker_id: int, broker_epoch: int) -> None:
        """A heartbeat has arrived, which will be taken later."""
        if broker_id != self._local_broker:
            self._heartbeats.hear(broker_id, broker_epoch, self._monotonic_ms())

    @one_at_a_time
    def heartbeat(self, broker_id: int, heartbeat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        """Takes a heartbeat, and fences, unfences or shuts down its broker.

        Raises:
            StaleBrokerEpochError: the broker is not registered, or with another epoch.
            StorageError: the disk returned an error; the broker stays as it was.
        """
        if broker_id == self._local_broker:
            raise StaleBrokerEpochError(f"Broker {broker_id} is in the process of the controller")
        self.hear(broker_id, heartbeat.broker_epoch)
        broker = self.require_epoch(broker_id, heartbeat.broker_epoch)
        controller, heartbeats = self._controller, self._heartbeats
        heartbeats.keep_only(controller.image.brokers)
        registered_at = self._registered_at[broker_id]
        found = heartbeats.next_state(
            broker_id, heartbeat, registered_at=registered_at, leads=lambda: self._leads(broker_id)
        )
        records = self._records_of(broker, found)
        if records:
            _log.info("Broker %d: %s", broker_id, found.name.lower().replace("_", " "))
            controller.commit(records)
        is_fenced = heartbeats.is_fenced(broker_id)
        if found is not BrokerTransition.SAME:
            is_fenced = found in {BrokerTransition.FENCED, BrokerTransition.SHUTDOWN_NOW}
        heartbeats.answered(broker_id, fenced=is_fenced, metadata_offset=heartbeat.metadata_offset)
        is_changed = self._take_directories(broker_id, heartbeat)
        if records or is_changed:
            heartbeats.register(broker_id, fenced=is_fenced)
        if found is BrokerTransition.CONTROLLED_SHUTDOWN:
            heartbeats.begin_shutdown(broker_id, controller.image.offset)
        return BrokerHeartbeatReply(
            is_caught_up=heartbeat.metadata_offset >= registered_at,
            is_fenced=is_fenced,
            should_shut_down=found is BrokerTransition.SHUTDOWN_NOW,
        )

    def _records_of(self, broker: BrokerImage, found: BrokerTransition) -> Records:
        view = self._controller.view()
        match found:
            case BrokerTransition.FENCED | BrokerTransition.SHUTDOWN_NOW:
                return registration.fencing(view, broker)
            case BrokerTransition.UNFENCED:
                return registration.unfencing(view, broker)
            case BrokerTransition.CONTROLLED_SHUTDOWN:
                return registration.shutting_down(view, broker)
        return []

    def _take_directories(self, broker_id: int, heartbeat: BrokerHeartbeat) -> bool:
        """Records directories that have failed, and those that take no new partitions, if any."""
        controller = self._controller
        before = controller.image.offset
        if heartbeat.offline_dirs:
            controller.commit(
                registration.directories_failed(
                    controller.view(),
                    controller.image.brokers[broker_id],
                    heartbeat.offline_dirs,
                )
            )
        if heartbeat.cordoned_dirs is not None:
            controller.commit(
                registration.cordoning(
                    controller.view(),
                    controller.image.brokers[broker_id],
                    heartbeat.cordoned_dirs,
                )
            )
        return controller.image.offset != before

    def _leads(self, broker_id: int) -> bool:
        return any(
            partition.leader == broker_id
            for topic in in_steps(self._controller.image.topics.values(), every=16)
            for partition in topic.partitions.values()
        )

    def require_epoch(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        """The registration of a broker that sent a request.

        Raises:
            StaleBrokerEpochError: there is none of this epoch.
        """
        broker = self._controller.image.brokers.get(broker_id)
        if broker is None:
            raise StaleBrokerEpochError(f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise StaleBrokerEpochError(
                f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
            )
        return broker

    @one_at_a_time
    def change_for(self, broker_id: int, broker_epoch: int, change: Callable[[Controller], T]) -> T:
        """Has the controller make a change that a broker requests; returns its result.

        Raises:
            StaleBrokerEpochError: the broker is not registered with this epoch.
            KafkaError: as `change`.
        """
        self.require_epoch(broker_id, broker_epoch)
        return change(self._controller)

    # ---- what time brings

    @one_at_a_time
    def fence_expired(self) -> None:
        """Fences the brokers whose sessions have ended, one after the other.

        Raises:
            StorageError: the disk returned an error; the broker is fenced in a later call.
        """
        controller = self._controller
        while (expired := self._heartbeats.take_expired(self._monotonic_ms())) is not None:
            broker_id, epoch = expired
            broker = controller.image.brokers.get(broker_id)
            if broker is None or broker.epoch != epoch or broker.fenced:
                continue
            _log.warning(
                "Fencing broker %d at epoch %d because its session has timed out.", *expired
            )
            try:
                controller.commit(registration.fencing(controller.view(), broker))
            except BaseException:
                self._heartbeats.hear(broker_id, epoch, float("-inf"))
                raise
            self._heartbeats.register(broker_id, fenced=True)

    @one_at_a_time
    def elect_preferred_leaders(self) -> None:
        """Moves leaders to the preferred replicas that are in sync (auto.leader.rebalance.enable).

        Raises:
            StorageError: the disk returned an error.
        """
        self._elect(partitions.preferred_leaders)

    @one_at_a_time
    def elect_unclean_leaders(self) -> None:
        """Elects leaders for partitions that have none, where unclean elections are allowed.

        Raises:
            StorageError: the disk returned an error.
        """
        self._elect(partitions.unclean_leaders)

    def _elect(self, elections: Callable[..., Records]) -> None:
        while True:
            records = elections(self._controller.view(), _ELECTIONS_MAX)
            self._controller.commit(records)
            if len(records) < _ELECTIONS_MAX:
                return

    @one_at_a_time
    def write_no_op(self) -> None:
        """Writes a record without effect, by which followers learn that they are not cut off.

        Raises:
            StorageError: the disk returned an error.
        """
        self._controller.commit([ApiRecord("NoOpRecord", 0, {})])
