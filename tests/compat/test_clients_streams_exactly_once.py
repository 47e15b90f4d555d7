"""Kafka Streams with exactly-once: counts and a join, whose instances and broker are killed.

The states' changelogs are compacted while the application runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from support.kafka import RealKafka, poll_until, read_checkpoint
from support.served import ServedBroker
from support.stock_clients.availability import nothing_missing
from support.stock_clients.base import READ_SECONDS_MAX
from support.stock_clients.feed import WORDS, Feed, Feeder
from support.stock_clients.neutral import Neutral
from support.stock_clients.program import streams_command
from support.stock_clients.streams import StreamsInstance

PROGRAM: Final = "RankedCount"
PARTITIONS: Final = 2
#: How many lines are fed and processed between two kills.
STEP: Final = 100
#: Between two ranks.
PAUSE_S: Final = 0.05
#: How long a reader that has had the end of a partition waits for more.
QUIET_S: Final = 0.5
#: How long it reads before it is asked whether that is enough.
AT_ONCE_S: Final = 2.0
_JOINED_S_MAX: Final = 600
SETTINGS: Final[Mapping[str, str]] = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "100",
    # Changelogs are compacted early and often.
    "topic.min.cleanable.dirty.ratio": "0.01",
    "topic.segment.ms": "1000",
    # The transaction of an instance that was killed.
    "producer.transaction.timeout.ms": "10000",
}


@pytest.fixture(scope="module")
def stock_properties(stock_properties: Mapping[str, str]) -> Mapping[str, str]:
    return {
        **stock_properties,
        "log.cleaner.backoff.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }


class Ranks(Feeder):
    """New ranks of words, one after another; each word has one when it begins."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        # The partitioner of Java's clients: the topics that are joined are partitioned alike.
        super().__init__(bootstrap_servers, topic, PAUSE_S, {"partitioner": "murmur2_random"})
        self.newest: dict[str, str] = {}
        self._number = 0
        for word in WORDS:
            self._rank(word)

    def feed(self) -> None:
        self._number += 1
        self._rank(WORDS[self._number % len(WORDS)])

    def _rank(self, word: str) -> None:
        self.newest[word] = f"rank-{self._number}"
        self._write(word, self.newest[word])


class Output:
    """Content of a topic with one partition for a reader of committed records."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._values: dict[str, list[str]] = {}
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "no group",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def now(self) -> Mapping[str, list[str]]:
        """All values of each key in order: all there are, or what came within some time."""
        until = time.monotonic() + AT_ONCE_S
        while time.monotonic() < until and self._reads():
            pass
        return self._values

    def whole(self) -> Mapping[str, list[str]]:
        """All values of each key in order, when nothing more is written."""
        while self._reads():
            pass
        return self._values

    def _reads(self) -> bool:
        """Reads a record; False at the end."""
        message = self._consumer.poll(QUIET_S)
        if message is None:
            return False
        error = message.error()
        if error is None:
            values = self._values.setdefault(message.key().decode(), [])
            values.append(message.value().decode())
        return error is None or error.code() != KafkaError._PARTITION_EOF


class Run:
    """The application at one broker: what it reads and writes."""

    def __init__(self, server: ServedBroker | RealKafka, group: str, home: Path) -> None:
        self.server, self.group, self._home = server, group, home
        servers = server.bootstrap_servers
        neutral = Neutral(servers)
        lines, ranks = (neutral.topic(partitions=PARTITIONS) for _ in range(2))
        counts, ranked = (neutral.topic() for _ in range(2))
        self._topics = lines, ranks, counts, ranked
        self.feed, self.ranks = Feed(servers, lines), Ranks(servers, ranks)
        self.counts, self.ranked = Output(servers, counts), Output(servers, ranked)

    def instance(self, name: str) -> StreamsInstance:
        """A new one, with no files of another."""
        return StreamsInstance(
            self.server.bootstrap_servers,
            self.group,
            self._topics,
            program=PROGRAM,
            name=name,
            home=self._home,
            settings=SETTINGS,
        )

    def wait_for_a_step(self) -> None:
        """Waits until words that are fed from now on are in the committed counts."""
        self._wait_for_counts(sum(map(len, self.feed.lines.values())) + STEP)

    def _wait_for_counts(self, wanted: int) -> None:
        poll_until(
            lambda: sum(map(len, self.counts.now().values())) >= wanted,
            timeout_s=READ_SECONDS_MAX,
            what=f"{wanted} words are counted",
        )

    def cleaned(self) -> int:
        """The offsets up to which the changelogs of counts are compacted, summed up."""
        directory = (
            self.server.log_dirs[0] if isinstance(self.server, RealKafka) else self.server.log_dir
        )
        checkpoint = read_checkpoint(directory / "cleaner-offset-checkpoint")
        changelog = f"{self.group}-counts-changelog-"
        return sum(offset for place, offset in checkpoint.items() if place.startswith(changelog))

    def wait_for_the_cleaner(self) -> None:
        """Waits until more is compacted than now."""
        before = self.cleaned()
        poll_until(
            lambda: self.cleaned() > before,
            timeout_s=READ_SECONDS_MAX,
            what=f"{self.group} has changelogs compacted beyond {before}",
        )

    def assert_exact(self) -> None:
        """Each word was counted once for each line that has it, and joined with its last rank."""
        lines = self.feed.lines
        wanted = {word: f"{rank} {len(lines[word])}" for word, rank in self.ranks.newest.items()}
        poll_until(
            lambda: {word: seen[-1] for word, seen in self.ranked.now().items()} == wanted,
            timeout_s=_JOINED_S_MAX,
            what="all is joined",
        )
        # The markers of one transaction reach the partitions one after another.
        self._wait_for_counts(sum(map(len, lines.values())))
        counted = {word: [str(n + 1) for n in range(len(seen))] for word, seen in lines.items()}
        assert self.counts.whole() == counted


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_counts_and_joins_are_exact_after_kills_of_instances_and_of_the_broker(
    kills: int, stock_server: ServedBroker | RealKafka, tmp_path: Path
) -> None:
    with nothing_missing():
        streams_command(PROGRAM)
    run = Run(stock_server, f"ranked-{kills}", tmp_path)
    with ExitStack() as stack:
        instance = stack.enter_context(run.instance("instance-0"))
        with run.feed.running(), run.ranks.running():
            for number in range(kills):
                run.wait_for_a_step()
                run.wait_for_the_cleaner()
                instance.kill()
                instance = stack.enter_context(run.instance(f"instance-{number + 1}"))
                run.wait_for_a_step()
                stock_server.kill()
                stock_server.start()
                run.wait_for_a_step()
        run.assert_exact()
        instance.stop()
