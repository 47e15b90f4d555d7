"""A consumer of a group as a program that can be killed; it reports on stdout in lines of JSON.

usage: python -m support.chaos.group_member BOOTSTRAP GROUP TOPIC...
`assigned`: committed offsets of the partitions it was given; `processed`: ranges of offsets, last
exclusive, reported before they are committed; `committed`: offsets, after the broker has accepted
them; `unsound`: offsets of records that are not as they were sent; `gap`: the expected offset and
the one that came instead.
"""

from __future__ import annotations

import json
import signal
import sys
from types import FrameType

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from support.chaos.stamps import HEADER, read_stamp

_BATCH = 500
_POLL_S = 0.3


class Member:
    """The consumer, and what it has read since its last commit."""

    def __init__(self, servers: str, group: str, topics: list[str]) -> None:
        self._next: dict[tuple[str, int], int] = {}
        self.is_stopped = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke)

    def run(self) -> None:
        """Reads and commits until it is stopped."""
        while not self.is_stopped:
            messages = self._consumer.consume(_BATCH, _POLL_S)
            self._process([each for each in messages if each.error() is None])
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._next.clear()
        try:
            committed = consumer.committed(partitions, timeout=10)
        except KafkaException:
            return
        _report("assigned", [[at.topic, at.partition, at.offset] for at in committed])

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._next.clear()

    def _process(self, messages: list[Message]) -> None:
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for message in messages:
            place = (str(message.topic()), int(message.partition() or 0))
            offset = int(message.offset() or 0)
            headers = dict(message.headers() or [])
            header = headers.get(HEADER)
            if read_stamp(message.key(), message.value(), header) is None:
                _report("unsound", [[*place, offset]])
            if self._next.get(place, offset) != offset:
                _report("gap", [[*place, self._next[place], offset]])
            self._next[place] = offset + 1
            ranges[place] = (ranges.get(place, (offset, 0))[0], offset + 1)
        if not ranges:
            return
        _report("processed", [[*place, first, end] for place, (first, end) in ranges.items()])
        wanted = [TopicPartition(*place, end) for place, (_, end) in ranges.items()]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return  # not known: the broker is away, or the group has another generation
        _report("committed", [[at.topic, at.partition, at.offset] for at in done if not at.error])


def _report(kind: str, rows: list[list[str | int]]) -> None:
    print(json.dumps({kind: rows}), flush=True)  # noqa: T201  # read by the process that started it


def main() -> None:
    """Runs until SIGTERM."""
    servers, group, *topics = sys.argv[1:]
    member = Member(servers, group, topics)

    def stop(_number: int, _frame: FrameType | None) -> None:
        member.is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    member.run()


if __name__ == "__main__":
    main()
