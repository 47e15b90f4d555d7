"""Replicated partitions of a broker: it fetches from leaders, and proposes ISRs.

Source: kafka.server.ReplicaFetcherManager, AbstractFetcherManager (4.3.0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from cordwood.broker.replication.fetch_session import FetchLimits, ReplicaFetchSession
from cordwood.broker.replication.fetcher import Followed, ReplicaFetcher
from cordwood.broker.replication.isr_changes import IsrChanges
from cordwood.broker.replication.leadership import IsrProposal
from cordwood.broker.replication.throttles import ReplicationThrottle
from cordwood.client.node_connection import NodeAddress, NodeConnection
from cordwood.client.transport import Transports
from cordwood.metadata.cache import MetadataCache
from cordwood.model.security_protocol import SecurityProtocol
from cordwood.model.topic_partition import TopicIdPartition
from cordwood.serving.node_thread import NodeThread


class ImageBrokers:
    """The brokers of the newest image, as `ClusterBrokers`."""

    def __init__(self, metadata: MetadataCache) -> None:
        """`metadata` has the image."""
        self._metadata = metadata

    def epoch_of(self, broker_id: int) -> int | None:
        """The epoch of a broker; None if it is unknown or fenced."""
        found = self._metadata.image.brokers.get(broker_id)
        return None if found is None or found.fenced else found.epoch

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a broker is in a controlled shutdown."""
        found = self._metadata.image.brokers.get(broker_id)
        return found is not None and found.in_controlled_shutdown

    def address_of(self, broker_id: int, listener: str) -> NodeAddress | None:
        """The address of a broker's listener; None if it is not registered with one."""
        found = self._metadata.image.brokers.get(broker_id)
        endpoint = None if found is None else found.endpoint(listener)
        return (
            None
            if endpoint is None
            else NodeAddress(
                endpoint.host, endpoint.port, SecurityProtocol(endpoint.security_protocol)
            )
        )


class FollowerSettings(NamedTuple):
    """`replica.fetch.*`: times in ms; `listener` is inter.broker.listener.name."""

    listener: str
    limits: FetchLimits
    backoff_ms: int
    socket_timeout_ms: int
    transports: Transports | None = None


class _Fetching:
    """A fetcher and its task, which begins and ends in a later turn of the event loop."""

    def __init__(self, fetcher: ReplicaFetcher, thread: NodeThread) -> None:
        self.fetcher = fetcher
        self._thread = thread
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False
        thread.call_soon(self._begin)

    def _begin(self) -> None:
        if not self._has_ended:
            self._task = asyncio.get_running_loop().create_task(self.fetcher.run())

    def end_soon(self) -> None:
        """Cancels the fetcher's task in a later turn of the event loop."""
        self._thread.call_soon(self._cancel)

    async def end(self) -> None:
        """Returns when it has ended."""
        self._cancel()
        if self._task is not None:
            # An error of the task has been logged.
            await asyncio.gather(self._task, return_exceptions=True)

    def _cancel(self) -> None:
        self._has_ended = True
        if self._task is not None:
            self._task.cancel()


class Replication:
    """The fetchers, one for each leader broker, and the proposals of ISRs.

    `follow`, `unfollow` and `propose` may be called on the event loop's thread, and in slices.
    """

    def __init__(
        self,
        isr_changes: IsrChanges,
        brokers: ImageBrokers,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        settings: FollowerSettings,
        thread: NodeThread,
        run: Callable[[Callable[[], None]], Awaitable[None]],
        changed: Callable[[TopicIdPartition], None],
        throttle: ReplicationThrottle,
        full: Callable[[TopicIdPartition], None],
    ) -> None:
        """Fetches nothing yet.

        Args:
            isr_changes: sends proposals.
            brokers: says where the leaders are.
            node_id: of this broker.
            broker_epoch: of its registration.
            settings: of fetches.
            thread: the event loop's.
            run: does work in slices.
            changed: called when the log of a followed partition has more, or more of it is
                committed.
            throttle: of this broker as a follower.
            full: called when the log of a followed partition does not fit the disk.
        """
        self._full = full
        self._throttle = throttle
        self._isr_changes = isr_changes
        self._brokers = brokers
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._thread = thread
        self._run = run
        self._changed = changed
        self._fetching: dict[int, _Fetching] = {}
        self._is_closed = False

    @property
    def partitions(self) -> list[TopicIdPartition]:
        """The partitions that are fetched."""
        return [key for each in self._fetching.values() for key in each.fetcher.partitions]

    def check_invariants(self) -> None:
        """Checks that each partition is fetched from one leader, which is its own."""
        assert len(self.partitions) == len(set(self.partitions)), self.partitions
        for leader_id, each in self._fetching.items():
            for key in each.fetcher.partitions:
                followed = each.fetcher.followed(key)
                assert followed is not None, key
                assert followed.following.leader_id == leader_id, (key, leader_id)
                followed.following.check_invariants()

    @property
    def backoff_ms(self) -> int:
        """replica.fetch.backoff.ms."""
        return self._settings.backoff_ms

    def propose(self, key: TopicIdPartition, proposal: IsrProposal) -> None:
        """Proposes an ISR to the controller; the answer goes to the receiver of `isr_changes`."""
        self._thread.call_soon(lambda: self._isr_changes.propose(key, proposal))

    def follow(self, key: TopicIdPartition, followed: Followed) -> None:
        """Fetches a partition from its leader, and from no other.

        Nothing changes if it is fetched in that leader epoch already.

        Raises:
            KafkaError: its log cannot be cut off.
        """
        leader_id = followed.following.leader_id
        if self._is_closed or self._is_following(key, followed):
            return
        self.unfollow(key)
        fetching = self._fetching.get(leader_id)
        if fetching is None:
            fetching = self._fetching[leader_id] = self._start(leader_id)
        fetching.fetcher.follow(key, followed)

    def _is_following(self, key: TopicIdPartition, wanted: Followed) -> bool:
        fetching = self._fetching.get(wanted.following.leader_id)
        known = None if fetching is None else fetching.fetcher.followed(key)
        return (
            known is not None
            and known.following.leader_epoch == wanted.following.leader_epoch
            and known.log.log is wanted.log.log
        )

    def unfollow(self, key: TopicIdPartition) -> None:
        """Stops fetching a partition; an answer that is in flight is ignored."""
        for each in self._fetching.values():
            each.fetcher.unfollow(key)

    def log_changed(self, key: TopicIdPartition) -> None:
        """The log of a partition has changed otherwise than by what was fetched."""
        for each in self._fetching.values():
            each.fetcher.log_changed(key)

    def unfollow_closed(self) -> None:
        """Stops fetching partitions whose logs are closed: their directory has failed."""
        for each in self._fetching.values():
            for key in list(each.fetcher.partitions):
                followed = each.fetcher.followed(key)
                if followed is not None and followed.log.log.is_closed:
                    each.fetcher.unfollow(key)

    def stop_idle(self) -> None:
        """Ends the fetchers that have no partition.

        Source: AbstractFetcherManager.shutdownIdleFetcherThreads.
        """
        idle = [key for key, each in self._fetching.items() if not each.fetcher.partitions]
        for key in idle:
            self._fetching.pop(key).end_soon()

    async def close(self) -> None:
        """Ends all."""
        self._is_closed = True
        fetching, self._fetching = self._fetching, {}
        for each in fetching.values():
            await each.end()
        await self._isr_changes.close()

    def _start(self, leader_id: int) -> _Fetching:
        settings = self._settings
        wait_ms = settings.limits.wait_max_ms
        connection = NodeConnection(
            lambda: self._brokers.address_of(leader_id, settings.listener),
            client_id=f"broker-{self._node_id}-fetcher-0",
            timeout_s=max(settings.socket_timeout_ms, wait_ms) / 1000,
            transports=settings.transports,
        )
        fetcher = ReplicaFetcher(
            connection,
            ReplicaFetchSession(self._node_id, settings.limits),
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch,
            run=self._run,
            call_soon=self._thread.call_soon,
            clock=self._thread.clock,
            changed=self._changed,
            backoff_ms=settings.backoff_ms,
            throttle=self._throttle,
            full=self._full,
        )
        return _Fetching(fetcher, self._thread)
