"""A broker's place in its cluster, kept by a task that sends what its lifecycle says.

Source: org.apache.kafka.server.BrokerLifecycleManager (4.3.0); KIP-631.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from uuid import UUID

from cordwood.client.errors import ClientError
from cordwood.format.messages.message import R, Request
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.quorum.active_controller import ActiveController
from cordwood.metadata.quorum.lifecycle import (
    BrokerHeartbeat,
    BrokerHeartbeatReply,
    BrokerLifecycle,
    BrokerState,
    Register,
)
from cordwood.model.clock import Clock
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import RequestTimedOutError
from cordwood.protocol.data import BrokerHeartbeatRequest, BrokerRegistrationRequest

_log = logging.getLogger(__name__)


class QuorumMembership:
    """Registers a broker, and keeps it alive; all belongs to the event loop's thread."""

    def __init__(
        self,
        registration: BrokerRegistration,
        controller: ActiveController,
        *,
        cluster_id: str,
        metadata_offset: Callable[[], int],
        clock: Clock,
        cordoned: Callable[[], tuple[UUID, ...] | None] = lambda: None,
        heartbeat_interval_ms: int = 2000,
        session_timeout_ms: int = 9000,
        registration_timeout_ms: int = 60_000,
    ) -> None:
        """Creates an object that has sent no request.

        Args:
            registration: of this broker.
            controller: gets the requests.
            cluster_id: of the broker's directories.
            metadata_offset: of the last record that all parts of the broker have; -1 without one.
            clock: for intervals.
            cordoned: as `BrokerLifecycle` takes it.
            heartbeat_interval_ms: broker.heartbeat.interval.ms.
            session_timeout_ms: broker.session.timeout.ms; a request is tried for half of it.
            registration_timeout_ms: initial.broker.registration.timeout.ms.
        """
        self._registration = registration
        self._controller = controller
        self._cluster_id = cluster_id
        self._metadata_offset = metadata_offset
        self._clock = clock
        self._timeout_ms = session_timeout_ms / 2
        self._changed = asyncio.Event()
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.lifecycle = BrokerLifecycle(
            self._now_ms(),
            heartbeat_interval_ms=heartbeat_interval_ms,
            registration_timeout_ms=registration_timeout_ms,
            cordoned=cordoned,
            on_change=self._on_change,
        )

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before it."""
        return self.lifecycle.broker_epoch

    async def run(self) -> None:
        """Sends requests until the broker may end.

        Raises:
            RequestTimedOutError: the broker could not register in time.
        """
        life = self.lifecycle
        while life.state is not BrokerState.SHUTTING_DOWN:
            if life.cannot_register(self._now_ms()):
                life.end()
                raise RequestTimedOutError(
                    "Shutting down because we were unable to register with the controller quorum."
                )
            self._changed.clear()
            found = life.next_request(self._metadata_offset(), self._now_ms())
            if isinstance(found, Register):
                await self._register()
            elif isinstance(found, BrokerHeartbeat):
                await self._send(found)
            else:
                await self._wait(found)

    async def reached(self, state: BrokerState) -> None:
        """Returns when the broker is in a state, or in a later one."""
        await self._until(lambda: self.lifecycle.state >= state)

    async def directories_failed(self, directories: Collection[UUID]) -> None:
        """Returns when the controller knows of failed directories, from a heartbeat."""
        for each in directories:
            self.lifecycle.directory_failed(each)
        await self._until(lambda: all(map(self.lifecycle.has_reported, directories)))

    async def _until(self, holds: Callable[[], bool]) -> None:
        if not holds():
            done = asyncio.get_running_loop().create_future()
            self._waiting.append((holds, done))
            await done

    def _on_change(self) -> None:
        self._changed.set()
        for holds, done in self._waiting:
            if not done.done() and holds():
                done.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    # ---- what is sent

    async def _register(self) -> None:
        broker = self._registration
        request = BrokerRegistrationRequest(
            broker_id=broker.broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=broker.incarnation_id,
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in broker.endpoints
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in broker.features.items()
            ],
            rack=broker.rack,
            log_dirs=sorted(broker.log_dirs),
            previous_broker_epoch=broker.previous_broker_epoch,
        )
        answer = await self._ask(request)
        if answer is not None:
            error = ErrorCode.of(answer.error_code)
            self.lifecycle.on_registered(error, answer.broker_epoch, self._now_ms())

    async def _send(self, heartbeat: BrokerHeartbeat) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=heartbeat.broker_epoch,
            current_metadata_offset=heartbeat.metadata_offset,
            want_fence=heartbeat.wants_fence,
            want_shut_down=heartbeat.wants_shutdown,
            offline_log_dirs=list(heartbeat.offline_dirs),
            cordoned_log_dirs=heartbeat.cordoned_dirs,
        )
        answer = await self._ask(request)
        if answer is not None:
            self.lifecycle.on_heartbeat(
                BrokerHeartbeatReply(
                    error=ErrorCode.of(answer.error_code),
                    is_caught_up=answer.is_caught_up,
                    is_fenced=answer.is_fenced,
                    should_shut_down=answer.should_shut_down,
                ),
                self._now_ms(),
            )

    async def _ask(self, request: Request[R]) -> R | None:
        try:
            return await self._controller.ask(request, timeout_ms=self._timeout_ms)
        except ClientError as error:
            _log.warning("Unable to reach the controller: %s", error)
            self.lifecycle.on_failure(self._now_ms())
            return None

    # ---- waiting

    def _now_ms(self) -> float:
        return self._clock.monotonic_s() * 1000

    async def _wait(self, wait_ms: float) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return
