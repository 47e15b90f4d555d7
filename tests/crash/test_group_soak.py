"""Fifty groups of both protocols: members come, leave and die; nightly, the broker is restarted.

A partition has one owner at a time, no committed offset is lost or becomes lower, and at the end
all rebalances end.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest

from support.kafka import poll_until
from support.served import ServedBroker
from support.soaks.members import REBALANCE_MS, SESSION_MS
from support.soaks.members_judge import Judge, Place, Report
from support.soaks.process import ReportingProcess
from support.wire import Wire

GROUPS: Final = 50
PARTITIONS: Final = 4
_TOPIC: Final = "soak"
_WORKERS: Final = 3
_PAUSE_S: Final = 4.0
#: How long a change waits until every group has committed since the one before: where a busy
#: machine needs long to recover, the broker would never be there for all groups.
_RECOVERY_S: Final = 60.0
_STOP_S: Final = 120.0
_SETTLE_S: Final = 180.0
_SETTLED: Final = "every partition has one owner, and every group is stable"
_PROPERTIES: Final = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
}


@dataclass(slots=True)
class Outcome:
    """Events and faults."""

    events: Counter[str]
    reports: Counter[str]
    protocols: Counter[str]
    settled_s: float
    complaints: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """A line."""
        return (
            f"{dict(self.events)}; reports {dict(self.reports)}; groups at the end "
            f"{dict(self.protocols)}; settled after {self.settled_s:.1f} s"
        )


class History:
    """All that happened, in a file: to find the reason of a complaint."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")

    def note(self, *entry: object) -> None:
        """Appends a line."""
        self._file.write(json.dumps([*entry, time.monotonic()]) + "\n")

    def close(self) -> None:
        """Writes what is not yet written."""
        self._file.close()


class Worker:
    """A process with a member in each group."""

    def __init__(
        self, number: int, servers: str, judge: Judge, lock: threading.Lock, history: History
    ) -> None:
        self._number = number
        self._judge, self._lock, self._history = judge, lock, history
        self.is_ready = False
        arguments = [servers, _TOPIC, str(GROUPS), str(number)]
        self._process = ReportingProcess(
            "support.soaks.members", arguments, self._take, wait_s=_STOP_S
        )

    def change(self) -> None:
        """Some members are replaced by others."""
        self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """All members die."""
        self._process.kill()
        self._ended()

    def stop(self) -> None:
        """All members leave."""
        self._process.stop()
        self._ended()

    def _ended(self) -> None:
        with self._lock:
            self._history.note("worker has ended", self._number, self._process.ended_s)
            self._judge.end_worker(self._number, self._process.ended_s)

    def _take(self, line: list[Any]) -> None:
        report = Report(*line)
        if report.kind == "ready":
            self.is_ready = True
            return
        with self._lock:
            self._history.note("report", self._number, *report)
            self._judge.take(self._number, report)


class Soak:
    """One run."""

    def __init__(self, root: Path, seed: int, *, restarts: bool) -> None:
        """Prepares a soak; with `restarts`, the broker is stopped and killed, too."""
        self._weights = 5, 2, 2 if restarts else 0
        self._broker = ServedBroker(root / "soak", _PROPERTIES, flags=())
        self._random = random.Random(seed)  # a schedule
        self._judge = Judge(SESSION_MS / 1000, REBALANCE_MS / 1000)
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        self._started = 0
        self._events: Counter[str] = Counter()
        self._history = History(root / "history.jsonl")

    def run(self, seconds: float) -> Outcome:
        """Lets things happen for so long, then waits for the end of all rebalances."""
        with self._broker:
            self._judge.served_since_s = time.monotonic()
            self._make_topic()
            try:
                self._workers = [self._worker() for _ in range(_WORKERS)]
                ends = time.monotonic() + seconds
                while time.monotonic() < ends:
                    self._wait_for_work()
                    self._happen()
                begun = time.monotonic()
                poll_until(self._is_settled, timeout_s=_SETTLE_S, what=_SETTLED)
                settled_s = time.monotonic() - begun
                protocols = self._protocols()
            finally:
                for worker in self._workers:
                    worker.stop()
            last = self._committed()
        self._history.close()
        return Outcome(
            self._events,
            self._judge.counts,
            protocols,
            settled_s,
            self._judge.complaints(last),
        )

    def _wait_for_work(self) -> None:
        since = time.monotonic()
        time.sleep(_PAUSE_S)  # members are at work
        while time.monotonic() < since + _RECOVERY_S:
            with self._lock:
                committing = self._judge.committing_since(since)
            if len(committing) == GROUPS:
                return
            time.sleep(_PAUSE_S / 8)

    def _happen(self) -> None:
        kind = self._random.choices(("change", "kill", "restart"), self._weights)[0]
        index = self._random.randrange(_WORKERS)
        with self._lock:
            self._history.note(kind, index)
        if kind == "change":
            self._workers[index].change()
        elif kind == "kill":
            self._workers[index].kill()
            self._workers[index] = self._worker()
        else:
            is_stopped = self._random.random() < 0.5
            kind = "stop of the broker" if is_stopped else "kill of the broker"
            self._restart(is_stopped=is_stopped)
        with self._lock:
            self._history.note("done", kind)
        assert self._broker.exit_code is None, "another process has the port"
        self._events[kind] += 1

    def _restart(self, *, is_stopped: bool) -> None:
        self._judge.served_since_s = inf
        if is_stopped:
            self._broker.stop()
        else:
            self._broker.kill()
        self._broker.start()
        self._judge.served_since_s = time.monotonic()

    def _worker(self) -> Worker:
        self._started += 1
        worker = Worker(
            self._started,
            self._broker.bootstrap_servers,
            self._judge,
            self._lock,
            self._history,
        )
        poll_until(lambda: worker.is_ready, timeout_s=_STOP_S, what="the members' process")
        return worker

    # ---- the broker

    def _make_topic(self) -> None:
        with Wire(self._broker.port) as wire:
            topics = [{"name": _TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}]
            wire.ask("create_topics", 7, {"topics": topics, "timeout_ms": 10_000})

    def _is_settled(self) -> bool:
        with self._lock:
            owners = self._judge.owners(GROUPS, PARTITIONS)
        return all(count == 1 for count in owners.values()) and not self._unstable()

    def _listed(self) -> list[dict[str, str]]:
        with Wire(self._broker.port) as wire:
            answer = wire.ask("list_groups", 5, {"states_filter": [], "types_filter": []})
        found: list[dict[str, str]] = answer["groups"]
        return found

    def _unstable(self) -> list[str]:
        return [each["group_id"] for each in self._listed() if each["group_state"] != "Stable"]

    def _protocols(self) -> Counter[str]:
        return Counter(each["group_type"] for each in self._listed())

    def _committed(self) -> dict[Place, int]:
        with Wire(self._broker.port) as wire:
            asked = [{"group_id": f"group-{number}", "topics": None} for number in range(GROUPS)]
            answer = wire.ask("offset_fetch", 8, {"groups": asked, "require_stable": False})
        return {
            Place(group["group_id"], partition["partition_index"]): partition["committed_offset"]
            for group in answer["groups"]
            for topic in group["topics"]
            for partition in topic["partitions"]
        }


@pytest.mark.parametrize(
    ("seconds", "restarts"),
    [
        pytest.param(20, False, id="twenty seconds"),
        pytest.param(600, True, marks=pytest.mark.nightly, id="ten minutes"),
    ],
)
def test_groups_hold_while_members_and_the_broker_come_and_go(
    tmp_path: Path, seconds: int, restarts: bool
) -> None:
    outcome = Soak(tmp_path, seed=seconds, restarts=restarts).run(seconds)
    print(outcome.summary())
    assert outcome.complaints == []
    assert outcome.protocols.keys() == {"classic", "consumer"}
    assert outcome.reports["committed"] > 10 * seconds
    assert outcome.reports["stuck"] <= 2, "clients that hang; more are the broker's doing"
    assert sum(outcome.events.values()) > seconds // 30
