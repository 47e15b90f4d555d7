"""Kafka Streams on the classic protocol: a word count whose instances and broker come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

from support.kafka import RealKafka, poll_until
from support.served import ServedBroker
from support.stock_clients.availability import nothing_missing
from support.stock_clients.base import READ_SECONDS_MAX
from support.stock_clients.feed import Feed
from support.stock_clients.neutral import Neutral
from support.stock_clients.program import streams_command
from support.stock_clients.streams import StreamsInstance
from support.wire import Plain, Wire

PROGRAM: Final = "WordCount"
GROUP: Final = "word-count"
PARTITIONS: Final = 2
REPARTITION: Final = f"{GROUP}-words-repartition"
CHANGELOGS: Final = (f"{GROUP}-counts-changelog", f"{GROUP}-lines-changelog")
#: How many lines are fed and processed in each part of the test.
STEP: Final = 100
#: What a broker that has just started says of groups.
NOT_YET: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


class Table:
    """The newest value of each key of a topic with one partition."""

    def __init__(self, neutral: Neutral, topic: str) -> None:
        self.topic = topic
        self._neutral = neutral
        self._values: dict[str, str] = {}
        self._read = 0

    def now(self) -> Mapping[str, str]:
        """The table up to the present end of the topic."""
        end = self._neutral.end_offset(self.topic)
        for record in self._neutral.read(self.topic, end - self._read, start=self._read):
            assert record.key is not None
            assert record.value is not None
            self._values[record.key.decode()] = record.value.decode()
        self._read = end
        return self._values


class Run:
    """The word count at one broker: what it reads and writes, and its group."""

    def __init__(self, neutral: Neutral, home: Path) -> None:
        self.neutral = neutral
        self._home = home
        lines = neutral.topic(partitions=PARTITIONS)
        self.counts, self.lines = (Table(neutral, neutral.topic()) for _ in range(2))
        self.topics = lines, self.counts.topic, self.lines.topic
        self.feed = Feed(neutral.bootstrap_servers, lines)

    def instance(self, name: str) -> StreamsInstance:
        """A new one, with no files of another."""
        servers = self.neutral.bootstrap_servers
        return StreamsInstance(
            servers, GROUP, self.topics, program=PROGRAM, name=name, home=self._home
        )

    def restart(self, server: ServedBroker | RealKafka) -> None:
        """Restarts the broker."""
        server.stop()
        server.start()
        # librdkafka's admin client does not connect to its coordinator again.
        self.neutral = Neutral(server.bootstrap_servers)

    def line_sets(self) -> dict[str, set[int]]:
        """The numbers of the lines with each word, as the word count has written them."""
        return {word: set(map(int, seen.split())) for word, seen in self.lines.now().items()}

    def wait_for_a_step(self) -> None:
        """Waits until lines that are fed from now on are in the result."""
        wanted = self.feed.fed + STEP
        poll_until(
            lambda: any(max(seen) >= wanted for seen in self.line_sets().values()),
            timeout_s=READ_SECONDS_MAX,
            what=f"line {wanted} is processed",
        )

    def wait_for_members(self, instances: Sequence[StreamsInstance]) -> None:
        """Waits until these, and no others, share the tasks that have states."""

        def shared() -> bool:
            described = self.neutral.admin.describe_consumer_groups([GROUP])[GROUP]
            try:
                group = described.result(READ_SECONDS_MAX)
            except KafkaException as error:
                if error.args[0].code() not in NOT_YET:
                    raise
                return False
            holders = sorted(
                member.client_id.removesuffix("-StreamThread-1-consumer")
                for member in group.members
                for place in member.assignment.topic_partitions
                if place.topic == REPARTITION
            )
            is_stable = group.state == ConsumerGroupState.STABLE
            return is_stable and holders == sorted(each.name for each in instances)

        poll_until(shared, timeout_s=READ_SECONDS_MAX, what="the instances share the tasks")


@pytest.fixture
def run(stock_broker: str, neutral: Neutral, tmp_path: Path) -> Run:
    with nothing_missing():
        streams_command(PROGRAM)
    return Run(neutral, tmp_path)


def listed_group(port: int) -> Plain:
    """The broker's list entry and description of the word count's group."""
    with Wire(port) as wire:
        listed = wire.ask("list_groups", 5, {"states_filter": [], "types_filter": []})
        [found] = [each for each in listed["groups"] if each["group_id"] == GROUP]
        described = wire.ask("describe_groups", 5, {"groups": [GROUP]})["groups"][0]
    return {**found, "protocol": described["protocol_data"]}


def assert_internal_topics(neutral: Neutral) -> None:
    """Streams has made them, with settings of its own."""
    partitions, configs = neutral.client.describe_topic(REPARTITION)
    assert (partitions, configs["cleanup.policy"]) == (PARTITIONS, "delete")
    assert configs["retention.ms"] == "-1"
    for topic in CHANGELOGS:
        partitions, configs = neutral.client.describe_topic(topic)
        assert (partitions, configs["cleanup.policy"]) == (PARTITIONS, "compact")


def test_a_word_count_survives_the_kill_of_an_instance_and_a_restart_of_the_broker(
    run: Run, stock_server: ServedBroker | RealKafka
) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(run.instance(name)) for name in ("first", "second"))
        with run.feed.running():
            run.wait_for_members([first, second])
            run.wait_for_a_step()
            assert_internal_topics(run.neutral)
            first.kill()
            third = stack.enter_context(run.instance("third"))
            run.wait_for_members([second, third])
            run.wait_for_a_step()
            run.restart(stock_server)
            run.wait_for_a_step()
        poll_until(
            lambda: run.line_sets() == run.feed.lines,
            timeout_s=READ_SECONDS_MAX,
            what="all lines are processed",
        )
        run.wait_for_members([second, third])
        found = listed_group(stock_server.port)
        second.stop()
        third.stop()
    assert (found["group_type"], found["group_state"]) == ("classic", "Stable")
    assert (found["protocol_type"], found["protocol"]) == ("consumer", "stream")
    counts = {word: int(count) for word, count in run.counts.now().items()}
    # A line that was processed again, after the kill, was counted again.
    assert all(counts[word] >= len(lines) for word, lines in run.feed.lines.items())
    for topic in (run.topics[0], REPARTITION):
        for partition in range(PARTITIONS):
            committed = run.neutral.committed(GROUP, topic, partition)
            assert committed == run.neutral.end_offset(topic, partition)
    # Streams deletes what it has processed from the topic between.
    assert run.neutral.start_offset(REPARTITION) > 0
