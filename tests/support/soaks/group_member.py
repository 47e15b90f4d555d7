"""A consumer of a group as a program that can be killed; it reports on stdout in lines of JSON.

usage: python -m support.soaks.group_member BOOTSTRAP GROUP PROTOCOL TOPIC...

A line is `[kind, monotonic seconds, rows]`; a row begins with a topic and a partition. `assigned`
has the committed offset of a partition that was given to it, and the time before it was asked for;
`processed` a range of offsets, last exclusive, before they are committed; `committed` an offset
that the broker has accepted; `unsound` the offset of a record that is not as it was sent; `gap` the
expected offset and the one that came instead.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from support.soaks.ledger import Place
from support.soaks.stamps import HEADER, read_stamp

_BATCH = 500
_POLL_S = 0.3


class Member:
    """The consumer, its next offsets, and those that it has processed and not committed."""

    def __init__(self, servers: str, group: str, protocol: str, topics: list[str]) -> None:
        self._next: dict[Place, int] = {}
        self._uncommitted: dict[Place, int] = {}
        self.is_stopped = False
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}
        self._consumer = Consumer(settings)
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke)

    def run(self) -> None:
        """Reads and commits until it is stopped."""
        while not self.is_stopped:
            messages = self._consumer.consume(_BATCH, _POLL_S)
            self._process([each for each in messages if each.error() is None])
            self._commit()
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget(partitions)
        asked_s = time.monotonic()
        try:
            committed = consumer.committed(partitions, timeout=10)
        except KafkaException:
            return
        rows = [[at.topic, at.partition, at.offset] for at in committed]
        _report("assigned", rows, at_s=asked_s)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            place = Place(at.topic, at.partition)
            self._next.pop(place, None)
            self._uncommitted.pop(place, None)

    def _process(self, messages: list[Message]) -> None:
        ranges: dict[Place, tuple[int, int]] = {}
        for message in messages:
            place = Place(str(message.topic()), int(message.partition() or 0))
            offset = int(message.offset() or 0)
            headers = dict(message.headers() or [])
            header = headers.get(HEADER)
            if read_stamp(message.key(), message.value(), header) is None:
                _report("unsound", [[*place, offset]])
            if self._next.get(place, offset) != offset:
                _report("gap", [[*place, self._next[place], offset]])
            self._next[place] = self._uncommitted[place] = offset + 1
            ranges[place] = (ranges.get(place, (offset, 0))[0], offset + 1)
        if ranges:
            _report("processed", [[*place, first, end] for place, (first, end) in ranges.items()])

    def _commit(self) -> None:
        """Commits what is processed; what is refused is committed next time, if still owned."""
        wanted = [TopicPartition(*place, end) for place, end in self._uncommitted.items()]
        if not wanted:
            return
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return  # not known: the broker is away, or the group has another generation
        accepted = [at for at in done or () if not at.error]
        for at in accepted:
            self._uncommitted.pop(Place(at.topic, at.partition), None)
        _report("committed", [[at.topic, at.partition, at.offset] for at in accepted])


def _report(kind: str, rows: list[list[str | int]], *, at_s: float | None = None) -> None:
    moment = time.monotonic() if at_s is None else at_s
    print(json.dumps([kind, moment, rows]), flush=True)  # noqa: T201  # read by its parent


def main() -> None:
    """Runs until SIGTERM."""
    servers, group, protocol, *topics = sys.argv[1:]
    member = Member(servers, group, protocol, topics)

    def stop(_number: int, _frame: FrameType | None) -> None:
        member.is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    member.run()


if __name__ == "__main__":
    main()
