"""Producers of transactions and their broker, killed in mid-transaction while logs are compacted.

read_committed readers see each committed transaction once, whole and in order, and nothing of an
aborted one; the offsets of the producers' groups follow.

A reader follows meanwhile, and continues where it was; one reads from the beginning at the end.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from support.kafka import poll_until
from support.served import ServedBroker
from support.soaks.process import ReportingProcess
from support.soaks.producer import DATA, PARTITIONS, TABLE
from support.soaks.producer_judge import NO_OFFSET, Judge, Plan, Report, Row, Seen
from support.transaction_client import TransactionClient

PRODUCERS: Final = ("one", "two", "three")
_WAIT_S: Final = 180.0
#: librdkafka 2.16 may wait forever in send_offsets_to_transaction after its broker was killed, at a
#: Kafka too, whatever the timeout: a transaction takes some ms else.
_STUCK_S: Final = 3.0
#: The commit is on its way, or was answered.
_AT_COMMIT: Final = "producer killed at its commit"
#: About as long as one takes.
_COMMIT_S_MAX: Final = 0.006
_WEIGHTS: Final = {"producer killed": 3, _AT_COMMIT: 3, "broker killed": 3, "broker stopped": 2}
_PROPERTIES: Final = {
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.delete.retention.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
_COMPACTED: Final = {TABLE: 4000, "__transaction_state": 20_000, "__consumer_offsets": 20_000}
#: Later than any transaction's timeout.
_LATER_MS: Final = 120_000


@dataclass(slots=True)
class Outcome:
    """Events and faults."""

    events: Counter[str]
    reports: Counter[str]
    compactions: Counter[str]
    complaints: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """A line."""
        return f"{dict(self.events)}; {dict(self.reports)}; compactions {dict(self.compactions)}"


class Worker:
    """The process of a producer."""

    def __init__(self, name: str, servers: str, first: int, take: Callable[[Report], None]) -> None:
        self._name = name
        self._report = take
        self.last = ""
        """The kind of the last report."""
        self.last_s = time.monotonic()
        """When it came."""
        self.ended = 0
        """How many transactions have ended."""
        self._process = ReportingProcess(
            "support.soaks.producer",
            [servers, name, str(first), str(first)],
            self._take,
            wait_s=_WAIT_S,
        )

    @property
    def failure(self) -> str:
        """The fault to be counted if it has to be replaced; empty if it works."""
        if self._process.has_ended:
            return "producer failed"
        is_stuck = self.last == "begin" and time.monotonic() > self.last_s + _STUCK_S
        return "producer stuck" if is_stuck else ""

    def kill(self) -> None:
        """Kills it, and takes what it has reported."""
        self._process.kill()

    def _take(self, line: list[Any]) -> None:
        kind, number, counts, keys = line
        plan = Plan(dict(counts), keys)
        self._report(Report(kind, self._name, number, plan if kind == "begin" else None))
        self.ended += kind in {"committed", "aborted"}
        self.last, self.last_s = kind, time.monotonic()


class Follower:
    """Reads committed records of the partitions of a topic, and continues where it was."""

    def __init__(self) -> None:
        self.seen: dict[int, list[Seen]] = {n: [] for n in range(PARTITIONS)}
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)

    def follow(self, wire: TransactionClient) -> None:
        """Reads up to the last stable offsets."""
        for partition in range(PARTITIONS):
            found, self._offsets[partition] = wire.read_committed(
                DATA, partition, self._offsets[partition]
            )
            self.seen[partition] += [Seen(*json.loads(each.value or b"")) for each in found]


class TransactionSoak:
    """One run."""

    def __init__(self, root: Path, seed: int, *, module: str = "cordwood") -> None:
        """Args: `module` is what serves, as `ServedBroker` has it."""
        self._broker = ServedBroker(root / "soak", _PROPERTIES, module=module)
        self._random = random.Random(seed)  # a schedule
        self._judge = Judge()
        self._lock = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._follower = Follower()
        self._events: Counter[str] = Counter()

    def run(self, kills: int) -> Outcome:
        """Runs so many kills and stops; then all transactions end, and are judged."""
        with self._broker:
            self._make_topics()
            try:
                for name in PRODUCERS:
                    self._start(name)
                for _ in range(kills):
                    self._wait_for_transactions()
                    self._happen()
                self._wait_for_transactions()
            finally:
                for worker in self._workers.values():
                    worker.kill()
            self._time_out()
            with TransactionClient(self._broker.port) as wire:
                complaints = self._complaints(wire)
        return Outcome(self._events, self._judge.counts, self._compactions(), complaints)

    def _take(self, report: Report) -> None:
        with self._lock:
            self._judge.take(report)

    def _start(self, name: str) -> None:
        with self._lock:  # the others report meanwhile
            begun = [each.number for each in self._judge.plans if each.producer == name]
        first = max(begun, default=-1) + 1
        self._workers[name] = Worker(name, self._broker.bootstrap_servers, first, self._take)

    def _wait_for_transactions(self) -> None:
        """Each producer has ended some more; a reader has followed."""
        before = {name: worker.ended for name, worker in self._workers.items()}
        more = self._random.randint(1, 4)

        def ended() -> bool:
            for name, worker in list(self._workers.items()):
                if worker.failure:
                    self._replace(name, worker.failure)
                    before[name] = 0
            return all(self._workers[name].ended >= before[name] + more for name in PRODUCERS)

        poll_until(ended, timeout_s=_WAIT_S, what="transactions end", interval_s=0.002)
        with TransactionClient(self._broker.port) as wire:
            self._follower.follow(wire)

    def _happen(self) -> None:
        kind = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        name = self._random.choice(PRODUCERS)
        worker = self._workers[name]
        moment = "committing" if kind == _AT_COMMIT else "begin"
        poll_until(
            lambda: worker.last == moment or worker.failure,
            timeout_s=_WAIT_S,
            what="a transaction",
            interval_s=0.0005,
        )
        if kind == _AT_COMMIT:
            time.sleep(self._random.uniform(0, _COMMIT_S_MAX))
        if kind.startswith("producer killed"):
            self._replace(name, kind)
            return
        self._events[kind] += 1
        if kind == "broker killed":
            self._broker.kill()
        else:
            self._broker.stop()
        self._broker.start()

    def _replace(self, name: str, kind: str) -> None:
        self._events[kind] += 1
        self._workers[name].kill()
        self._start(name)

    def _time_out(self) -> None:
        """Transactions of producers that are dead are aborted by their timeout."""
        url = f"{self._broker.url}/clock/advance?ms={_LATER_MS}"
        kind = {"Content-Type": "application/json"}
        asked = urllib.request.Request(url, method="POST", headers=kind)  # loopback
        with urllib.request.urlopen(asked, timeout=_WAIT_S):  # loopback
            pass
        places = [(DATA, each) for each in range(PARTITIONS)] + [(TABLE, 0)]
        with TransactionClient(self._broker.port) as wire:
            poll_until(
                lambda: all(wire.is_stable(*place) for place in places),
                timeout_s=_WAIT_S,
                what="open transactions are aborted",
            )

    def _compactions(self) -> Counter[str]:
        """The number of compactions of each topic."""
        return Counter(re.findall(r"cleaned log (\S+)-\d+ ", self._broker.log))

    def _complaints(self, wire: TransactionClient) -> list[str]:
        self._follower.follow(wire)
        afresh = Follower()
        afresh.follow(wire)
        table = [Row(*json.loads(each.value or b"")) for each in wire.read_committed(TABLE, 0)[0]]
        offsets = {name: max(wire.committed(name, DATA, 0), NO_OFFSET) for name in PRODUCERS}
        found = self._judge.complaints(afresh.seen, table, offsets)
        if self._follower.seen != afresh.seen:
            found.append("a reader that follows has seen other records than one from the beginning")
        return found

    def _make_topics(self) -> None:
        with TransactionClient(self._broker.port) as wire:
            wire.create(DATA, PARTITIONS, retention_ms=-1)
            # The coordinators' own topics are compacted too.
            for topic, segment_bytes in _COMPACTED.items():
                wire.create(
                    topic,
                    cleanup_policy="compact",
                    min_cleanable_dirty_ratio="0.01",
                    delete_retention_ms="500",
                    internal_segment_bytes=segment_bytes,
                )


@pytest.mark.parametrize(
    ("kills", "module"),
    [
        pytest.param(10, "support.serve_in_process", id="ten"),
        pytest.param(
            100, "cordwood", marks=[pytest.mark.nightly, pytest.mark.spark], id="hundred on Spark"
        ),
    ],
)
def test_transactions_hold_while_producers_and_the_broker_are_killed(
    tmp_path: Path, kills: int, module: str
) -> None:
    outcome = TransactionSoak(tmp_path, seed=kills, module=module).run(kills)
    print(outcome.summary())
    assert outcome.complaints == []
    assert sum(outcome.events.values()) >= kills
    assert outcome.reports["committed"] > kills
    assert outcome.reports["aborted"] > 0
    assert outcome.compactions["table"] > 0
    if kills >= 100:
        assert outcome.reports["found committed"] > 0
