"""Fetches the partitions that this broker follows from one leader: a task of the event loop.

Source: kafka.server.AbstractFetcherThread, ReplicaFetcherThread, RemoteLeaderEndPoint (4.3.0).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from cordwood.broker.replication.fetch_session import Answered, ReplicaFetchSession
from cordwood.broker.replication.following import (
    AskOffsets,
    Effect,
    FetchPosition,
    PartitionFollowing,
)
from cordwood.broker.replication.replica_log import ReplicaLog
from cordwood.broker.replication.throttles import ReplicationThrottle
from cordwood.client.errors import ClientError
from cordwood.client.node_connection import NodeConnection
from cordwood.model.clock import Clock
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import KafkaError, StorageError
from cordwood.model.offsets import OFFSET_MAX
from cordwood.model.pauses import in_steps
from cordwood.model.topic_partition import TopicIdPartition
from cordwood.protocol.data import (
    ListOffsetsRequest,
    ListOffsetsResponse,
)

_log = logging.getLogger(__name__)

_EARLIEST, _LATEST = -2, -1

Run = Callable[[Callable[[], None]], Awaitable[None]]


class Followed(NamedTuple):
    """A partition that is followed; `topic` is its topic's name, which ListOffsets needs."""

    topic: str
    following: PartitionFollowing
    log: ReplicaLog


class _Step(NamedTuple):
    """The effects to apply to a partition."""

    key: TopicIdPartition
    followed: Followed
    effects: Sequence[Effect]

    @property
    def name(self) -> str:
        """The name of the partition."""
        return f"{self.followed.topic}-{self.key.partition}"


class ReplicaFetcher:
    """Follows one leader broker; all belongs to the event loop's thread."""

    def __init__(
        self,
        leader: NodeConnection,
        session: ReplicaFetchSession,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        run: Run,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Clock,
        changed: Callable[[TopicIdPartition], None] = lambda _: None,
        backoff_ms: float = 1000,
        throttle: ReplicationThrottle | None = None,
        full: Callable[[TopicIdPartition], None] = lambda _: None,
    ) -> None:
        """Follows no partition yet.

        Args:
            leader: the broker.
            session: of fetches from it.
            broker_id: of this broker.
            broker_epoch: of this broker's registration.
            run: does the logs' work beside that of the event loop, in order; `follow` and
                `unfollow` may be called in that, too.
            call_soon: calls something on the event loop's thread.
            clock: for backoff.
            changed: called when a partition's log has more, or more of it is committed.
            backoff_ms: replica.fetch.backoff.ms.
            throttle: of this broker as a follower; None without one.
            full: called when a partition's log does not fit the disk.
        """
        self._full = full
        self._throttle = throttle
        self._leader = leader
        self._session = session
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._run = run
        self._call_soon = call_soon
        self._clock = clock
        self._changed = changed
        self._backoff_ms = backoff_ms
        self._followed: dict[TopicIdPartition, Followed] = {}
        #: Whose positions may be others than those that the session has; a dict for its order.
        self._moved: dict[TopicIdPartition, None] = {}
        #: Those that end at an offset from which nothing can be fetched, which was logged.
        self._unfetchable: set[TopicIdPartition] = set()
        self._has_partitions = asyncio.Event()

    @property
    def partitions(self) -> Collection[TopicIdPartition]:
        """The partitions that are followed."""
        return self._followed.keys()

    def followed(self, key: TopicIdPartition) -> Followed | None:
        """A partition that is followed; None if it is not."""
        return self._followed.get(key)

    def follow(self, key: TopicIdPartition, followed: Followed) -> None:
        """Fetches a partition from now on, in the epoch that its state machine has.

        Raises:
            KafkaError: the log cannot be cut off.
        """
        for effect in followed.following.begin(followed.log):
            followed.log.apply(effect)
        self._followed[key] = followed
        self._unfetchable.discard(key)
        self._moved[key] = None
        self._call_soon(self._has_partitions.set)

    def unfollow(self, key: TopicIdPartition) -> None:
        """Stops fetching a partition; an answer that is in flight is ignored."""
        if self._followed.pop(key, None) is not None:
            self._unfetchable.discard(key)
            self._moved[key] = None

    def log_changed(self, key: TopicIdPartition) -> None:
        """The log of a partition has changed otherwise than by what was fetched."""
        if key in self._followed:
            self._moved[key] = None

    async def run(self) -> None:
        """Fetches until it is cancelled."""
        try:
            while True:
                await self._has_partitions.wait()
                try:
                    await self._fetch()
                except Exception:  # the other partitions, and the next answer, are fetched
                    _log.exception("Error while fetching from a leader")
                    self._session.begin_again()
                    await asyncio.sleep(self._backoff_ms / 1000)
        finally:
            self._leader.close()

    # ---- one request

    def _now_ms(self) -> float:
        return self._clock.monotonic_s() * 1000

    def _look(self) -> float:
        """Updates the session's positions; returns for how many ms nothing else can be fetched."""
        wait_ms = self._backoff_ms
        if self._throttle is not None and self._throttle.has_partitions:
            self._moved.update(dict.fromkeys(self._followed))
        for key in list(self._moved):
            position = self._position(key)
            if isinstance(position, FetchPosition):
                self._session.fetch_from(key, position)
            else:
                self._session.omit(key)
                if position is not None:  # it is looked at again
                    wait_ms = min(wait_ms, position)
                    continue
            del self._moved[key]
        return wait_ms

    def _position(self, key: TopicIdPartition) -> FetchPosition | float | None:
        """The result of `PartitionFollowing.next_fetch`; None if a partition is not followed."""
        followed = self._followed.get(key)
        if followed is None:
            return None
        if self._is_held_back(key, followed):
            return self._backoff_ms
        position = followed.following.next_fetch(followed.log, self._now_ms())
        if isinstance(position, FetchPosition) and not 0 <= position.offset <= OFFSET_MAX:
            # A request with it could not be written, and no partition would be fetched.
            if key not in self._unfetchable:
                self._unfetchable.add(key)
                _log.error(
                    "Cannot follow %s-%d: its log ends at offset %d, which no record can have",
                    followed.topic,
                    key.partition,
                    position.offset,
                )
            return None
        return position

    def _is_held_back(self, key: TopicIdPartition, followed: Followed) -> bool:
        """Source: RemoteLeaderEndPoint.shouldFollowerThrottle."""
        return (
            self._throttle is not None
            and self._throttle.holds_back(followed.topic, key.partition)
            and not followed.following.is_in_sync(followed.log)
        )

    async def _fetch(self) -> None:
        wait_ms = self._look()
        if not self._session:
            if not self._followed:
                self._has_partitions.clear()
                return
            await asyncio.sleep(wait_ms / 1000)
            return
        try:
            response = await self._leader.call(self._session.request(self._broker_epoch()))
        except ClientError as error:
            _log.info("No answer to a fetch of %d partitions: %s", len(self._session), error)
            self._session.begin_again()
            await asyncio.sleep(self._backoff_ms / 1000)
            return
        await self._take(self._session.answered(response))

    async def _take(self, found: Answered) -> None:
        """Takes the answers for partitions, and applies their effects."""
        steps: list[_Step] = []
        asking: list[tuple[TopicIdPartition, Followed]] = []
        for key, (position, answer) in found.items():
            followed = self._followed.get(key)
            if followed is None:
                continue
            self._moved[key] = None
            try:
                effects = followed.following.on_fetched(
                    position, answer, followed.log, self._now_ms()
                )
            except Exception:  # the answers for other partitions count all the same
                _log.exception("Cannot follow %s-%d", followed.topic, key.partition)
                followed.following.on_failure(self._now_ms())
                continue
            if self._throttle is not None and self._throttle.counts(followed.topic, key.partition):
                self._throttle.record(len(answer.records))
            if any(isinstance(each, AskOffsets) for each in effects):
                asking.append((key, followed))
            elif effects:
                steps.append(_Step(key, followed, effects))
        try:
            await self._do(steps)
            while asking:
                await self._ask_offsets(*asking[-1])
                asking.pop()
        finally:
            # Those that were not asked for, since something else has failed, are fetched again.
            for _, followed in asking:
                followed.following.on_failure(self._now_ms())

    async def _do(self, steps: Sequence[_Step]) -> None:
        """Applies effects to the logs, in one piece of work beside the event loop's."""
        if not steps:
            return
        changed: list[TopicIdPartition] = []
        full: list[_Step] = []

        def run() -> None:
            for step in in_steps(steps, every=4):
                try:
                    self._apply(step)
                except CordwoodError as error:
                    # That a disk is full is reported once for its directory, and this often.
                    is_full = isinstance(error, StorageError) and error.is_out_of_space
                    level = logging.DEBUG if is_full else logging.ERROR
                    _log.log(level, "Cannot follow %s: %s", step.name, error)
                    step.followed.following.on_failure(self._now_ms())
                    if is_full:
                        full.append(step)
                except Exception:
                    _log.exception("Cannot follow %s", step.name)
                    step.followed.following.on_failure(self._now_ms())
                else:
                    changed.append(step.key)

        await self._run(run)
        for step in full:
            if self._is_current(step):
                self._full(step.key)
        for key in changed:
            self._changed(key)

    def _apply(self, step: _Step) -> None:
        for effect in step.effects:
            if self._is_current(step):
                step.followed.log.apply(effect, lambda: self._is_current(step))

    def _is_current(self, step: _Step) -> bool:
        """Whether the partition has not got another leader since."""
        return self._followed.get(step.key) is step.followed

    async def _ask_offsets(self, key: TopicIdPartition, followed: Followed) -> None:
        """Source: RemoteLeaderEndPoint.fetchOffset."""
        found = []
        try:
            for timestamp in (_EARLIEST, _LATEST):
                answer = await self._leader.call(self._offset_request(key, followed, timestamp))
                found.append(_offset_of(answer))
        except (ClientError, KafkaError) as error:
            _log.info(
                "Cannot ask where %s-%d starts and ends: %s", followed.topic, key.partition, error
            )
            followed.following.on_failure(self._now_ms())
            return
        effects = followed.following.on_offsets(found[0], found[1], followed.log, self._now_ms())
        await self._do([_Step(key, followed, effects)])

    def _offset_request(
        self, key: TopicIdPartition, followed: Followed, timestamp: int
    ) -> ListOffsetsRequest:
        partition = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=key.partition,
            current_leader_epoch=followed.following.leader_epoch,
            timestamp=timestamp,
        )
        return ListOffsetsRequest(
            replica_id=self._broker_id,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(name=followed.topic, partitions=[partition])
            ],
        )


def _offset_of(answer: ListOffsetsResponse) -> int:
    partition = answer.topics[0].partitions[0]
    if partition.error_code:
        error = KafkaError(ErrorCode.of(partition.error_code).message)
        error.code = partition.error_code
        raise error
    return partition.offset
