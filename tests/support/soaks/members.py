"""A member in each of many groups, as a program that can be killed; it reports in lines of JSON.

usage: python -m support.soaks.members BOOTSTRAP TOPIC GROUPS SEED

A line is `[kind, monotonic seconds, group, partition, offset]`. `assigned` and `released` say when
a partition is owned; `released` is reported before the broker knows it. `lost` takes its place
where the broker has removed the member, which has noticed that only now. `read` is a committed
offset that a member has found, with the time when it asked; `committed` one that the broker has
accepted. `fatal` is an error after which a client can do nothing, and is replaced, as applications
do: librdkafka gives up a member of the consumer protocol whose group was migrated to the classic
one after the broker had removed the member. It says so to the callback of errors or, where it was
busy then, only by the refusal of each commit. `stuck` is a client that has not called back for a
commit long after its own timeout (socket.timeout.ms, 60 s) would have answered it without a broker;
it is replaced, too. `leaving` and `left` are before and after a client closes itself: one that
hangs in between does not say what it releases. SIGUSR1 has some members leave and others take their
places, SIGTERM all leave.

A group's number decides on its protocol: classic, consumer, or either at random.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from types import FrameType

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

SESSION_MS = 6_000
"""Of both protocols: the consumer protocol's is a setting of the broker."""
REBALANCE_MS = 60_000
"""How long the coordinator waits for a member to revoke partitions before it removes it."""
_STEP_S = 0.02
_COMMIT_S = 1.0
_STUCK_S = 90.0
_READ_S = 0.3
_STATISTICS_MS = 15_000
_OF_BROKER = (
    *("nodeid", "state", "stateage", "waitresp_cnt", "outbuf_cnt", "tx", "txidle", "rxidle"),
    *("txerrs", "txretries", "req_timeouts", "connects", "disconnects"),
)
_LOGGED = 1_000
_REPLACED = 0.2
_PROTOCOLS = ("classic", "consumer")


class Recent:
    """The last lines of a client's own log, as the logger that confluent_kafka asks for."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque(maxlen=_LOGGED)

    def log(self, _level: int, form: str, *of: object) -> None:
        """Keeps a line."""
        self._lines.append((time.monotonic(), form % of))

    def show(self) -> None:
        """Prints what is kept on stderr."""
        for moment, line in self._lines:
            print(f"{moment:.3f} {line}", file=sys.stderr)  # noqa: T201  # read
        sys.stderr.flush()


class Member:
    """A consumer that commits higher and higher offsets of the partitions it owns."""

    def __init__(self, servers: str, topic: str, group: str, protocol: str, strategy: str) -> None:
        self._group = group
        self._topic = topic
        self._owned: set[int] = set()
        self._next: dict[int, int] = {}
        self._is_committing = False
        self._committing_since = 0.0
        self._statistics = ""
        #: Whether the client has given up: it does not say what it has lost.
        self.has_failed = False
        self._commits_at = time.monotonic()
        config = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "reconnect.backoff.max.ms": 500,
            "max.poll.interval.ms": REBALANCE_MS,
            "on_commit": self._on_commit,
            "error_cb": self._on_error,
            "stats_cb": self._on_statistics,
            "statistics.interval.ms": _STATISTICS_MS,
            "debug": "cgrp,broker",
            "log_level": 7,
        }
        if protocol == "classic":
            config |= {
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 1_000,
                "partition.assignment.strategy": strategy,
            }
        self._log = Recent()
        self._consumer = Consumer(config, logger=self._log)
        self._consumer.subscribe(
            [topic],
            on_assign=self._on_assign,
            on_revoke=self._on_release,
            on_lost=self._on_lost,
        )

    @property
    def has_to_read(self) -> bool:
        """Whether it does not know yet what is committed of a partition it owns."""
        return self._owned != self._next.keys()

    def step(self) -> None:
        """Serves callbacks, and commits each second."""
        self._consumer.poll(0)
        now = time.monotonic()
        if self._is_committing and now >= self._committing_since + _STUCK_S:
            self._fail("stuck")
            self._show_statistics()
        elif self._next and not self._is_committing and now >= self._commits_at:
            self._commits_at = now + _COMMIT_S
            offsets = [
                TopicPartition(self._topic, partition, offset)
                for partition, offset in self._next.items()
            ]
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException:
                return
            # A client sends a commit again that failed: two at a time may change places.
            self._is_committing = True
            self._committing_since = now
            self._next = {partition: offset + 1 for partition, offset in self._next.items()}

    def read(self) -> bool:
        """Reads what is committed of new partitions; whether the broker has answered in time."""
        wanted = [TopicPartition(self._topic, each) for each in self._owned - self._next.keys()]
        asked = time.monotonic()
        try:
            committed = self._consumer.committed(wanted, timeout=_READ_S)
        except KafkaException as error:
            report(f"read {error.args[0].name()}", self._group, wanted[0].partition, -1)
            return False
        for at in committed:
            if at.error is not None:
                report(f"read {at.error.name()}", self._group, at.partition, -1)
            else:
                offset = max(at.offset, -1)  # librdkafka has another number for none
                report("read", self._group, at.partition, offset, at_s=asked)
                self._next[at.partition] = offset + 1
        return True

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fail(f"fatal {error.str()}")

    def _on_statistics(self, statistics: str) -> None:
        self._statistics = statistics

    def _show_statistics(self) -> None:
        """Why a client hangs: its own view of the group and of its connections, on stderr."""
        seen = json.loads(self._statistics or "{}")
        shown: dict[str, object] = {"group": self._group, "cgrp": seen.get("cgrp")}
        for name, broker in seen.get("brokers", {}).items():
            shown[name] = {key: broker.get(key) for key in _OF_BROKER}
        print(json.dumps(shown), file=sys.stderr, flush=True)  # noqa: T201  # read
        self._log.show()

    def _fail(self, kind: str) -> None:
        if not self.has_failed:
            self.has_failed = True
            report(kind, self._group, -1, -1)

    def close(self) -> None:
        """Leaves the group; what a client has that has failed is lost."""
        if self.has_failed:
            self._release(list(self._owned), "lost")
        report("leaving", self._group, -1, -1)
        try:
            self._consumer.close()
        except KafkaException:
            return
        finally:
            # Where the broker is away, no callback comes.
            self._release(list(self._owned))
            report("left", self._group, -1, -1)

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            self._owned.add(at.partition)
            report("assigned", self._group, at.partition, -1)

    def _on_release(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._release([at.partition for at in partitions])

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._release([at.partition for at in partitions], "lost")

    def _release(self, partitions: Sequence[int], kind: str = "released") -> None:
        for partition in partitions:
            self._owned.discard(partition)
            self._next.pop(partition, None)
            report(kind, self._group, partition, -1)

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self._is_committing = False
        for at in offsets:
            refusal = error or at.error
            # Public, in spite of its name.
            if refusal is not None and refusal.code() == KafkaError._FATAL:
                self._fail("fatal")
            kind = "committed" if refusal is None else f"commit {refusal.name()}"
            report(kind, self._group, at.partition, at.offset)


def report(
    kind: str, group: str, partition: int, offset: int, *, at_s: float | None = None
) -> None:
    """Prints a line."""
    moment = time.monotonic() if at_s is None else at_s
    print(json.dumps([kind, moment, group, partition, offset]), flush=True)  # noqa: T201  # read


class Members:
    """One member of each group."""

    def __init__(self, servers: str, topic: str, groups: int, seed: int) -> None:
        self._servers, self._topic = servers, topic
        self._random = random.Random(seed)  # noqa: S311  # a schedule
        self._wants_change = False
        self._is_stopped = False
        self._members = [self._start(number) for number in range(groups)]

    def change(self, _number: int, _frame: FrameType | None) -> None:
        """Handles a signal: the subscription changes."""
        self._wants_change = True

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        """Handles a signal: the producer stops."""
        self._is_stopped = True

    def run(self) -> None:
        """Steps until it is stopped; then all leave."""
        while not self._is_stopped:
            for number, member in enumerate(self._members):
                is_replaced = self._wants_change and self._random.random() < _REPLACED
                if is_replaced or member.has_failed:
                    member.close()
                    self._members[number] = self._start(number)
                else:
                    member.step()
            self._wants_change = False
            self._read()
            time.sleep(_STEP_S)
        for member in self._members:
            member.close()

    def _read(self) -> None:
        """Lets members read until one waits in vain: all others have to poll meanwhile.

        A client of librdkafka was seen that never revoked a partition after its revocation had come
        while the application did not poll for seconds. The coordinator removes such a member after
        its rebalance timeout (max.poll.interval.ms), which is less than the run waits for the end
        of all rebalances.
        """
        waiting = [member for member in self._members if member.has_to_read]
        self._random.shuffle(waiting)
        for member in waiting:
            if not member.read():
                return

    def _start(self, number: int) -> Member:
        is_mixed = number % 3 == 2
        protocol = self._random.choice(_PROTOCOLS) if is_mixed else _PROTOCOLS[number % 3]
        # librdkafka's sticky assignor adds data of its own to assignments. Kafka does not migrate a
        # group with such data to the consumer protocol, and librdkafka gives up then.
        strategy = "range" if is_mixed or number % 2 else "cooperative-sticky"
        return Member(self._servers, self._topic, f"group-{number}", protocol, strategy)


def main() -> None:
    """Runs until SIGTERM."""
    servers, topic, groups, seed = sys.argv[1:]
    members = Members(servers, topic, int(groups), int(seed))
    signal.signal(signal.SIGUSR1, members.change)
    signal.signal(signal.SIGTERM, members.stop)
    report("ready", "", 0, 0)
    members.run()


if __name__ == "__main__":
    main()
