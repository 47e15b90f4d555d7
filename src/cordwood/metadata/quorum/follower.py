"""Keeps an observer's log like that of the quorum's leader: a task of the event loop.

Source: org.apache.kafka.raft.KafkaRaftClient.poll, KafkaNetworkChannel (4.3.0).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from cordwood.client.errors import ClientError
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.client.transport import Transports
from cordwood.metadata.quorum.messages import (
    Identity,
    fetch_answer,
    fetch_request,
    snapshot_answer,
    snapshot_request,
)
from cordwood.metadata.quorum.observed_log import ObservedLog
from cordwood.metadata.quorum.observer import (
    AppendRecords,
    Ask,
    Effect,
    FetchAsk,
    KeepLeader,
    LeaderAndEpoch,
    MoveHighWatermark,
    QuorumObserver,
)
from cordwood.model.change_lock import ChangeLock
from cordwood.model.clock import Clock
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import InconsistentClusterIdError, KafkaError, StorageError

_log = logging.getLogger(__name__)

T = TypeVar("T")

# How long after the disk was full it is tried again, and how long in all: without the cluster's
# metadata a broker must not work on.
_FULL_DISK_S = 1.0
_FULL_DISK_MAX_S = 30.0
# How long after damaged records they are fetched again.
_DAMAGED_S = 0.1


class Run(Protocol):
    """Runs a function in slices; returns its result."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """The result of the work, when it is done."""


class QuorumFollower:
    """Fetches the metadata log; `run` is the task. All belongs to the event loop's thread."""

    def __init__(
        self,
        observer: QuorumObserver,
        log: ObservedLog,
        *,
        identity: Identity,
        between_updates: ChangeLock,
        run: Run,
        clock: Clock,
        request_timeout_ms: int = 2000,
        transports: Transports | None = None,
    ) -> None:
        """Creates an object that has sent no request.

        Args:
            observer: says what to ask; it has the leader that `log` has.
            log: kept like the leader's.
            identity: of this node.
            between_updates: held while the log is changed: that of its loader.
            run: does the log's work beside that of the event loop, in order.
            clock: for timeouts and backoff.
            request_timeout_ms: `controller.quorum.request.timeout.ms`.
            transports: of this node.
        """
        self._observer = observer
        self._log = log
        self._identity = identity
        self._between_updates = between_updates
        self._run = run
        self._clock = clock
        self._timeout_s = request_timeout_ms / 1000
        self._transports = transports
        self._connections: dict[NodeAddress, NodeConnection] = {}
        self._was_in_cluster = False

    @property
    def leader(self) -> LeaderAndEpoch:
        """The quorum's leader, as far as it is known."""
        return self._observer.leader

    @property
    def leader_address(self) -> NodeAddress | None:
        """The leader's address; None while it is not known."""
        return self._observer.leader_address

    async def run(self) -> None:
        """Fetches until it is cancelled.

        Raises:
            CorruptError: the log cannot follow that of the leader, or not be read.
            InconsistentClusterIdError: these controllers are of another cluster.
            StorageError: the disk refuses, or has been full for too long.
        """
        try:
            while True:
                ask = self._observer.next_ask(self._log.end, self._now_ms())
                if isinstance(ask, float | int):
                    await asyncio.sleep(ask / 1000)
                else:
                    await self._do(await self._step(ask))
        finally:
            self.close()

    def close(self) -> None:
        """Closes the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _now_ms(self) -> float:
        return self._clock.monotonic_s() * 1000

    async def _step(self, ask: Ask) -> list[Effect]:
        """Sends what is to be asked, and has the observer read the answer."""
        try:
            response = await self._send(ask)
        except ClientError as error:
            _log.debug("No answer from %s:%d: %s", ask.to.host, ask.to.port, error)
            self._observer.on_failure(self._now_ms())
            return []
        if isinstance(ask, FetchAsk):
            fetched = fetch_answer(response, ask.to.security_protocol)
            if fetched is not None:
                self._was_in_cluster = True
                return self._observer.on_fetched(fetched, self._now_ms())
        else:
            part = snapshot_answer(response, ask.to.security_protocol)
            if part is not None:
                return self._observer.on_snapshot_part(part, self._now_ms())
        self._refused(ask, response)
        if isinstance(ask, FetchAsk):
            self._observer.on_failure(self._now_ms())
            return []
        return self._observer.on_snapshot_refused(self._now_ms())

    async def _send(self, ask: Ask) -> Any:
        connection = self._connections.get(ask.to)
        if connection is None:
            connection = self._connections[ask.to] = NodeConnection(
                lambda: ask.to,
                client_id=f"raft-client-{self._identity.node_id}",
                timeout_s=self._timeout_s,
                transports=self._transports,
            )
        if isinstance(ask, FetchAsk):
            return await connection.call(fetch_request(ask, self._identity))
        return await connection.call(snapshot_request(ask, self._identity))

    def _refused(self, ask: Ask, response: Any) -> None:
        error = ErrorCode.of(response.error_code)
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID and not self._was_in_cluster:
            raise InconsistentClusterIdError(
                f"the controller at {ask.to.host}:{ask.to.port} is of another cluster than "
                f"{self._identity.cluster_id}, that of this node's directories"
            )
        _log.error(
            "The controller at %s:%d refused a request for the metadata log: %s",
            ask.to.host,
            ask.to.port,
            error.name,
        )

    async def _do(self, effects: Sequence[Effect]) -> None:
        if not effects:
            return
        if not any(self._changes(each) for each in effects):
            return
        for each in effects:
            if isinstance(each, KeepLeader):
                _log.info(
                    "The leader of the metadata quorum is %d, in epoch %d",
                    each.leader.leader_id,
                    each.leader.epoch,
                )
        before = self._log.end_offset
        pending = deque(effects)
        full: StorageError | None = None
        full_since_s = self._clock.monotonic_s()
        while pending:
            if full is not None:
                if self._clock.monotonic_s() - full_since_s > _FULL_DISK_MAX_S:
                    raise full
                await asyncio.sleep(_FULL_DISK_S)
            full = await self._run(lambda: self._apply(pending))
        if self._log.end_offset == before and isinstance(effects[0], AppendRecords):
            await asyncio.sleep(_DAMAGED_S)

    def _changes(self, effect: Effect) -> bool:
        """Whether an effect changes the log; a high watermark that has not moved does not."""
        if isinstance(effect, MoveHighWatermark):
            return effect.offset > self._log.end.high_watermark
        return True

    def _apply(self, pending: deque[Effect]) -> StorageError | None:
        """Does what is pending, in order; what does not fit the disk is left, with the error."""
        with self._between_updates:
            while pending:
                try:
                    self._log.apply(pending[0])
                except StorageError as error:
                    if not error.is_out_of_space:
                        raise
                    return error
                except KafkaError as error:
                    if not isinstance(pending[0], AppendRecords):
                        raise
                    # As in Kafka: what was damaged on the way is fetched again.
                    _log.error("Records of the metadata log are left out: %s", error)
                    pending.clear()
                    return None
                pending.popleft()
        return None
