"""The fetches of a follower from one leader: of what has changed, and of what no throttle holds."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from cordwood.broker.replication.fetch_session import ReplicaFetchSession
from cordwood.broker.replication.fetcher import Followed, ReplicaFetcher, Run
from cordwood.broker.replication.following import AppendRecords, Effect, PartitionFollowing
from cordwood.broker.replication.replica_log import ReplicaLog
from cordwood.broker.replication.throttles import FOLLOWER, ByteRate, ReplicationThrottle
from cordwood.client.node_connection import NodeConnection
from cordwood.model.topic_partition import TopicIdPartition
from cordwood.protocol.data import FetchRequest
from cordwood.testing.manual_clock import ManualClock
from support.stored_log import StoredLog, batch_of

TOPIC_ID = UUID(int=7)
THROTTLED, FREE = TopicIdPartition(TOPIC_ID, 0), TopicIdPartition(TOPIC_ID, 1)
RECORDS = b"0123456789"
LEADERS_END = 100


class Log:
    """A log in which every byte is a record."""

    last_epoch = 1
    gap_offset = None
    high_watermark = 0

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.log_start_offset = 0

    def apply(self, effect: Effect, _is_wanted: object) -> None:
        if isinstance(effect, AppendRecords):
            self.log_end_offset += len(effect.records)


class Leader:
    """Has ten more records in each answer, up to its end; with or without a session."""

    def __init__(self, *, session_id: int = 0) -> None:
        self.asked: list[set[int]] = []
        self._session_id = session_id

    async def call(self, request: FetchRequest) -> Any:
        await asyncio.sleep(0)
        asked = {
            each.partition: each.fetch_offset
            for topic in request.topics
            for each in topic.partitions
        }
        self.asked.append(set(asked))
        partitions = [
            SimpleNamespace(
                partition_index=index,
                error_code=0,
                high_watermark=LEADERS_END,
                log_start_offset=0,
                diverging_epoch=SimpleNamespace(epoch=-1, end_offset=-1),
                records=RECORDS if offset < LEADERS_END else b"",
            )
            for index, offset in asked.items()
        ]
        topic = SimpleNamespace(topic_id=TOPIC_ID, partitions=partitions)
        return SimpleNamespace(error_code=0, session_id=self._session_id, responses=[topic])

    def close(self) -> None:
        pass


class CountedFollowing(PartitionFollowing):
    """Counts how often its position is looked at."""

    looks = 0

    def next_fetch(self, log: Any, now_ms: float) -> Any:
        self.looks += 1
        return super().next_fetch(log, now_ms)


async def at_once(work: Any) -> None:
    work()


def fetcher_from(
    leader: Leader,
    clock: ManualClock,
    throttle: ReplicationThrottle | None = None,
    run: Run = at_once,
) -> ReplicaFetcher:
    """A fetcher on this event loop, which does the logs' work by `run`."""
    return ReplicaFetcher(
        cast("NodeConnection", leader),
        ReplicaFetchSession(1),
        broker_id=1,
        broker_epoch=lambda: 1,
        run=run,
        call_soon=asyncio.get_running_loop().call_soon,
        clock=clock,
        throttle=throttle,
    )


def test_only_positions_that_may_have_changed_are_looked_at() -> None:
    leader = Leader(session_id=5)
    logs = {THROTTLED: Log(), FREE: Log()}
    logs[THROTTLED].log_end_offset = LEADERS_END

    async def scenario() -> None:
        fetcher = fetcher_from(leader, ManualClock())
        following = {key: CountedFollowing(2, 1) for key in logs}
        for key, log in logs.items():
            fetcher.follow(key, Followed("t", following[key], cast("ReplicaLog", log)))
        task = asyncio.create_task(fetcher.run())
        while logs[FREE].log_end_offset < LEADERS_END or len(leader.asked) < 20:
            await asyncio.sleep(0)
        assert leader.asked[:20] == [{0, 1}] + [{1}] * 10 + [set()] * 9
        assert following[THROTTLED].looks == 2, "before its first fetch, and after its answer"
        looked = following[FREE].looks
        logs[FREE].log_start_offset = 50
        fetcher.log_changed(FREE)
        fetcher.unfollow(THROTTLED)
        leader.asked.clear()
        while len(leader.asked) < 3:
            await asyncio.sleep(0)
        assert {1} in leader.asked, "the leader has to know where the log begins"
        assert following[FREE].looks <= looked + 2
        task.cancel()

    asyncio.run(scenario())


def test_a_replica_that_is_not_in_sync_waits_while_the_rate_is_used_up() -> None:
    clock = ManualClock()
    throttle = ReplicationThrottle(FOLLOWER, ByteRate(clock.monotonic_s, windows=11, window_s=1))
    throttle.update_replicas({"t": {"follower.replication.throttled.replicas": "0:1"}}, 1)
    leader = Leader()
    logs = {THROTTLED: Log(), FREE: Log()}

    async def scenario() -> None:
        fetcher = fetcher_from(leader, clock, throttle)
        for key, log in logs.items():
            fetcher.follow(key, Followed("t", PartitionFollowing(2, 1), cast("ReplicaLog", log)))
        task = asyncio.create_task(fetcher.run())

        async def fetches(count: int) -> list[set[int]]:
            leader.asked.clear()
            while len(leader.asked) < count:
                await asyncio.sleep(0)
            return leader.asked[:count]

        assert await fetches(3) == [{0, 1}] * 3, "no rate is set"
        throttle.update_rate([{"follower.replication.throttled.rate": "5"}])
        assert (await fetches(5))[1:] == [{1}] * 4
        clock.advance(11_000)
        assert {0, 1} in await fetches(3), "the rate is that of the last seconds"
        throttle.update_rate([])
        while logs[THROTTLED].log_end_offset < LEADERS_END:
            await asyncio.sleep(0)
        throttle.record(1_000_000)
        throttle.update_rate([{"follower.replication.throttled.rate": "5"}])
        assert (await fetches(5))[1:] == [{0, 1}] * 4, "what is in sync does not wait"
        task.cancel()

    asyncio.run(scenario())


def test_a_replica_that_was_held_back_is_fetched_when_no_replica_is_throttled_any_more() -> None:
    clock = ManualClock()
    throttle = ReplicationThrottle(FOLLOWER, ByteRate(clock.monotonic_s, windows=11, window_s=1))
    throttle.update_replicas({"t": {"follower.replication.throttled.replicas": "0:1"}}, 1)
    throttle.update_rate([{"follower.replication.throttled.rate": "5"}])
    throttle.record(1_000_000)
    leader = Leader(session_id=5)
    logs = {THROTTLED: Log(), FREE: Log()}

    async def scenario() -> None:
        fetcher = fetcher_from(leader, clock, throttle)
        for key, log in logs.items():
            fetcher.follow(key, Followed("t", PartitionFollowing(2, 1), cast("ReplicaLog", log)))
        task = asyncio.create_task(fetcher.run())
        while len(leader.asked) < 3:
            await asyncio.sleep(0)
        assert not any(0 in each for each in leader.asked)
        throttle.update_replicas({}, 1)
        while logs[THROTTLED].log_end_offset < LEADERS_END:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(scenario())


def test_an_answer_of_the_leader_epoch_before_is_not_applied() -> None:
    clock, log, leader = ManualClock(), Log(), Leader()
    ends: list[int] = []

    async def scenario() -> None:
        async def run(work: Any) -> None:
            """The next epoch begins when an answer is there, before the log's work is done."""
            if not ends:
                fetcher.unfollow(FREE)
                fetcher.follow(
                    FREE, Followed("t", PartitionFollowing(2, 2), cast("ReplicaLog", log))
                )
            work()
            ends.append(log.log_end_offset)

        fetcher = fetcher_from(leader, clock, run=run)
        fetcher.follow(FREE, Followed("t", PartitionFollowing(2, 1), cast("ReplicaLog", log)))
        task = asyncio.create_task(fetcher.run())
        while len(ends) < 2:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(scenario())
    assert ends[:2] == [0, len(RECORDS)], "that of the epoch before, and that of the new one"


class LeaderWithBadBatch(Leader):
    """Sends a batch at the last offset that there is for one partition, good ones for the other."""

    async def call(self, request: FetchRequest) -> Any:
        answer = await super().call(request)
        for topic in request.topics:
            for asked, told in zip(topic.partitions, answer.responses[0].partitions, strict=True):
                offset = asked.fetch_offset
                struct.pack(">q", offset)  # as the request's bytes have it
                is_bad = asked.partition == THROTTLED.partition
                told.records = batch_of(b"v", base_offset=2**63 - 1 if is_bad else offset)
        return answer


def test_a_batch_at_the_last_offset_that_there_is_stops_its_own_partition_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = {key: StoredLog(tmp_path, name=f"t-{key.partition}").open() for key in (THROTTLED, FREE)}
    leader = LeaderWithBadBatch()

    async def scenario() -> None:
        fetcher = fetcher_from(leader, ManualClock())
        for key, log in logs.items():
            replica = ReplicaLog(log, truncate=lambda *_: None, start_at=lambda *_: None)
            fetcher.follow(key, Followed("t", PartitionFollowing(2, 1), replica))
        task = asyncio.create_task(fetcher.run())
        while logs[FREE].log_end_offset < 10:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert logs[THROTTLED].log_end_offset == 0
    assert "Cannot follow t-0: A batch for t-0 ends at offset 9223372036854775807" in caplog.text


@pytest.mark.parametrize("end", [2**63, -1])
def test_a_log_that_ends_where_no_offset_is_keeps_no_other_partition_from_being_fetched(
    caplog: pytest.LogCaptureFixture, end: int
) -> None:
    logs = {THROTTLED: Log(), FREE: Log()}
    logs[THROTTLED].log_end_offset = end
    leader = Leader()
    clock = ManualClock()
    throttle = ReplicationThrottle(FOLLOWER, ByteRate(clock.monotonic_s, windows=11, window_s=1))
    throttle.update_replicas({"t": {"follower.replication.throttled.replicas": "1:1"}}, 1)

    async def scenario() -> None:
        fetcher = fetcher_from(leader, clock, throttle)
        for key, log in logs.items():
            fetcher.follow(key, Followed("t", PartitionFollowing(2, 1), cast("ReplicaLog", log)))
        task = asyncio.create_task(fetcher.run())
        while logs[FREE].log_end_offset < LEADERS_END:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert not any(THROTTLED.partition in each for each in leader.asked)
    said = f"Cannot follow t-0: its log ends at offset {end}, which no record can have"
    assert [each.getMessage() for each in caplog.records].count(said) == 1, "of all its fetches"
