"""A follower's fetch reads the partitions of its session in which something may have changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cordwood.broker.broker import Broker
from cordwood.broker.partition import Partition
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.error_codes import ErrorCode
from cordwood.testing.broker import RunningBroker
from support.another_replica import OTHER, has_another_replica
from support.ask import ask
from support.no_engine import NoEngine

TOPIC = "t"
COUNT = 300
"""More than are read in one turn of the event loop."""
BATCH = build_batch([Record(0, 1, b"k", b"v")], base_offset=0)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker(engine=NoEngine) as broker:
        topic = {"name": TOPIC, "num_partitions": COUNT, "replication_factor": 1}
        ask(broker, "create_topics", {"topics": [topic], "timeout_ms": 60_000})
        yield broker


@pytest.fixture
def session(running: RunningBroker) -> Session:
    """A session of a follower that has all of every partition, and knows that it is committed."""

    def replicate(it: Broker) -> None:
        for partition in it.replicas.led_partitions():
            has_another_replica(partition, value=True)

    running.call(replicate)
    found = Session(running)
    assert found.fetch(found.ends()) == set(range(COUNT))
    found.fetch({})
    assert found.due == 0
    return found


class Session:
    """The requests of one follower."""

    def __init__(self, running: RunningBroker) -> None:
        self.running = running
        self.topic_id = running.call(lambda it: it.metadata.image.topics[TOPIC].topic_id)
        self.broker_epoch = 1
        self.answers: dict[int, Any] = {}
        self._id = self._epoch = 0

    @property
    def due(self) -> int:
        """The number of partitions that the next fetch reads."""
        return self.running.call(lambda it: it.replicas.fetch_sessions.due_count(self._id))

    def ends(self) -> dict[int, int]:
        """The end of each partition."""
        return self.running.call(
            lambda it: {
                each.index: each.log.log_end_offset for each in it.replicas.led_partitions()
            }
        )

    def fetch(
        self, offsets: dict[int, int], *, forgotten: tuple[int, ...] = (), wait_ms: int = 0
    ) -> set[int]:
        """The partitions of the answer to a request that has these."""
        partitions = [
            {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            | {"current_leader_epoch": 0, "last_fetched_epoch": -1, "log_start_offset": 0}
            for index, offset in offsets.items()
        ]
        topics = [{"topic_id": self.topic_id, "partitions": partitions}] if partitions else []
        gone = [{"topic_id": self.topic_id, "partitions": list(forgotten)}] if forgotten else []
        fields = {
            "replica_state": {"replica_id": OTHER, "replica_epoch": self.broker_epoch},
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "session_id": self._id,
            "session_epoch": self._epoch,
            "topics": topics,
            "forgotten_topics_data": gone,
        }
        answer = ask(self.running, "fetch", fields)
        assert answer.error_code == ErrorCode.NONE
        self._id = answer.session_id
        self._epoch += 1
        self.answers = {
            each.partition_index: each for topic in answer.responses for each in topic.partitions
        }
        return set(self.answers)

    def on(self, index: int, run: Callable[[Partition], object]) -> None:
        """Does something with a partition, on the broker's thread."""
        self.running.call(lambda it: run(it.replicas.partition(TOPIC, index)))

    def append(self, index: int) -> None:
        self.on(index, lambda it: it.append(BATCH))


def test_what_has_grown_is_read_until_the_follower_knows_that_it_is_committed(
    session: Session,
) -> None:
    end = session.ends()[7]
    session.append(7)
    assert session.due == 1
    assert session.fetch({}) == {7}
    assert len(session.answers[7].records) == len(BATCH)
    assert session.fetch({}) == {7}, "what is not taken is sent again"
    session.fetch({7: end + 1})
    assert session.due == 1, "the high watermark has moved by this fetch"
    assert session.fetch({}) == {7}
    assert (session.answers[7].high_watermark, session.due) == (end + 1, 0)
    assert session.fetch({}) == set()


def test_a_fetch_that_waits_ends_when_any_partition_grows(session: Session) -> None:
    answered = threading.Thread(target=session.fetch, args=({},), kwargs={"wait_ms": 60_000})
    answered.start()
    waiting = lambda it: it.replicas.delayed.replica_fetch.delayed_count  # noqa: E731
    while not session.running.call(waiting):
        pass
    session.append(COUNT - 1)
    answered.join(60)
    assert set(session.answers) == {COUNT - 1}
    assert not session.running.call(waiting)


def test_a_partition_that_changes_otherwise_is_read(session: Session) -> None:
    session.append(3)
    session.fetch({})
    session.fetch({3: session.ends()[3]})
    session.fetch({})
    assert session.due == 0
    end = session.ends()[3]
    session.on(3, lambda it: it.log.maybe_increment_log_start_offset(end, "test"))
    assert session.fetch({}) == {3}
    assert (session.answers[3].log_start_offset, session.due) == (end, 0)
    session.on(4, lambda it: it.lead(1, it.leadership))
    assert session.fetch({}) == {4}
    assert session.answers[4].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert session.fetch({}) == {4}, "an error is said each time"
    session.on(4, lambda it: it.lead(0, it.leadership))


def test_other_partitions_and_forgotten_ones(session: Session) -> None:
    session.append(5)
    session.append(6)
    assert session.fetch({}, forgotten=(5, 8)) == {6}
    session.append(8)
    assert session.fetch({}) == {6}
    ends = session.ends()
    session.fetch({6: ends[6], 8: ends[8] - 1})
    assert set(session.answers) == {8}


def test_a_follower_that_is_registered_anew_is_read_whole(session: Session) -> None:
    session.broker_epoch = 2
    session.fetch({})
    states = session.running.call(
        lambda it: {
            each.leadership.followers[OTHER].broker_epoch
            for each in it.replicas.led_partitions()
            if each.leadership is not None
        }
    )
    assert (states, session.due) == ({2}, 0)


def test_a_session_that_ends_is_not_told(session: Session) -> None:
    other = Session(session.running)
    other.fetch({1: session.ends()[1]})
    sessions = lambda it: len(it.replicas.fetch_sessions.changed(other.topic_id, 1))  # noqa: E731
    assert session.running.call(sessions) >= 2
    before = session.running.call(sessions)
    other.fetch({}, forgotten=(1,))
    assert session.running.call(sessions) == before - 1


def test_the_sessions_of_an_earlier_life_end(session: Session) -> None:
    later = Session(session.running)
    later.broker_epoch = 7
    later.fetch({1: later.ends()[1]})

    def of_partition(it: Broker) -> list[int]:
        found = it.replicas.fetch_sessions.changed(later.topic_id, 1)
        return [each.follower.broker_epoch for each in found if each.follower is not None]

    assert session.running.call(of_partition) == [7]
    again = Session(session.running)
    again.broker_epoch = 7
    again.fetch({1: again.ends()[1]})
    assert session.running.call(of_partition) == [7, 7], "a broker may have several fetchers"
