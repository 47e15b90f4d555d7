"""A broker is lost before every change of a file while a transaction ends: it never ends by half.

The transaction has records in two topics and offsets of a group. It runs once, over a simulated
file system. The states of its files before each operation are kept: as after the death of the
process, and as after a power loss. A broker is started on each, and again on those that it
goes through itself while it completes what it has found.
"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cordwood.broker.coordinators.transaction_markers import MarkerSender
from cordwood.coordinator.group.machine import GroupStateMachine
from cordwood.coordinator.transaction.machine import TransactionStateMachine
from cordwood.coordinator.transaction.maintenance import TransactionMaintenance
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.testing.broker import RunningBroker
from cordwood.testing.simulated_filesystem import FileOperation, SimulatedFileSystem
from support import transaction_client
from support.kafka import KafkaRunError
from support.no_engine import NoEngine
from support.transaction_client import TransactionClient, Version, WireProducer

LOGS = Path("/logs")
PARTITIONS = [("a", 0), ("a", 1), ("b", 0)]
ID, GROUP = "crashing", "g"
BEFORE, OFFSET = 3, 9
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "num.partitions": "2",
    # What is answered must survive a power loss too.
    "log.flush.interval.messages": "1",
    # Nothing but the transaction changes files.
    "log.initial.task.delay.ms": "86400000",
    "log.cleaner.enable": "false",
}
_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_WRITTEN = re.compile(r"before write .*\.log")
_LOGS = ("__transaction_state-0", "__consumer_offsets-0", "a-0", "a-1", "b-0")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery warns of what is cut off, many times."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@dataclass(slots=True)
class Moment:
    """Files as they were before an operation; `is_answered` if EndTxn had its answer."""

    fs: SimulatedFileSystem
    operation: str
    is_answered: bool


@dataclass(slots=True)
class Camera:
    """Keeps the states of a file system before each operation on a log of the transaction."""

    fs: SimulatedFileSystem
    rng: random.Random
    images: int
    moments: list[Moment] = field(default_factory=list)
    is_answered: bool = False

    def begin(self) -> None:
        self.fs.on_operation = self._take

    def end(self) -> None:
        self._keep("at the end")
        self.fs.on_operation = None

    def _take(self, operation: FileOperation) -> None:
        if operation.path.parent.name in _LOGS:
            where = f"{operation.path.parent.name}/{operation.path.name}"
            self._keep(f"before {operation.kind.value} {where}")

    def _keep(self, operation: str) -> None:
        self.moments.append(Moment(self.fs.process_crash(), operation, self.is_answered))
        for image in self.fs.crash_images(self.images, self.rng):
            self.moments.append(Moment(image, f"{operation}, without power", self.is_answered))


def running(fs: SimulatedFileSystem) -> RunningBroker:
    return RunningBroker(PROPERTIES, log_dir=LOGS, engine=NoEngine, fs=fs)


def ended(root: Path, version: Version, *, commit: bool, images: int, seed: int) -> list[Moment]:
    """The moments of a transaction's end."""
    fs = SimulatedFileSystem()
    with running(fs) as broker, TransactionClient(broker.port) as wire:
        for topic in ("a", "b"):
            wire.create(topic, 2)
        producer = WireProducer(wire, ID, version=version, timestamp_ms=broker.now_ms())
        producer.init()
        producer.produce("a", 0, b"before")
        producer.commit_offset(GROUP, "a", 0, BEFORE)
        producer.end(commit=True)
        wire.wait_until_ended(ID)
    # All that is there so far is on disk.
    fs.store(root, LOGS)
    fs = SimulatedFileSystem()
    fs.load(root, LOGS)
    camera = Camera(fs, random.Random(seed), images)  # repeats itself
    with running(fs) as broker, TransactionClient(broker.port) as wire:
        producer.wire = wire
        for topic, partition in PARTITIONS:
            producer.produce(topic, partition, b"one", b"two")
        producer.commit_offset(GROUP, "a", 0, OFFSET)
        camera.begin()
        producer.end(commit=commit)
        camera.is_answered = True
        wire.wait_until_ended(ID)
        camera.end()
    return camera.moments


def contents(wire: TransactionClient) -> dict[str, list[bytes | None]]:
    return {
        f"{topic}-{partition}": [each.value for each in wire.read_committed(topic, partition)[0]]
        for topic, partition in PARTITIONS
    }


def expected(*, is_committed: bool) -> dict[str, list[bytes | None]]:
    new: list[bytes | None] = [b"one", b"two"] if is_committed else []
    return {"a-0": [b"before", *new], "a-1": new, "b-0": new}


@dataclass(frozen=True, slots=True)
class Verdict:
    """State in which a broker found the transaction, its end, and the moments of both."""

    found: str
    outcome: str
    moments: list[Moment]


def judged(moment: Moment, *, commit: bool, camera: Camera | None = None) -> Verdict:
    """Starts a broker on a moment, and has the transaction end there.

    Raises:
        AssertionError: it ended by half, or against an answer; KafkaRunError: it did not end.
    """
    if camera is not None:
        camera.begin()
    with running(moment.fs) as broker, TransactionClient(broker.port) as wire:
        found = wire.wait_until_ended(ID, *_STATES)
        if found == "Ongoing":
            assert not moment.is_answered, moment.operation
            assert contents(wire) == expected(is_committed=False), moment.operation
            broker.advance(minutes=2, compact=False)
        outcome = wire.wait_until_ended(ID)
        if camera is not None:
            camera.end()
        is_committed = outcome == "CompleteCommit"
        assert is_committed == (commit and found != "Ongoing"), (moment.operation, found, outcome)
        assert all(wire.is_stable(*each) for each in PARTITIONS), moment.operation
        assert contents(wire) == expected(is_committed=is_committed), moment.operation
        offset = wire.committed(GROUP, "a", 0)
        assert offset == (OFFSET if is_committed else BEFORE), moment.operation
        continues(wire, broker.now_ms(), is_committed=is_committed)
    return Verdict(found, outcome, camera.moments if camera is not None else [])


def continues(wire: TransactionClient, now_ms: int, *, is_committed: bool) -> None:
    """The next producer of the id has a transaction over the same partitions."""
    producer = WireProducer(wire, ID, timestamp_ms=now_ms)
    producer.init()
    for topic, partition in PARTITIONS:
        producer.produce(topic, partition, b"next")
    producer.commit_offset(GROUP, "a", 0, OFFSET + 1)
    producer.end(commit=True)
    wire.wait_until_ended(ID)
    wanted = {
        name: [*values, b"next"] for name, values in expected(is_committed=is_committed).items()
    }
    assert contents(wire) == wanted
    assert wire.committed(GROUP, "a", 0) == OFFSET + 1


@pytest.mark.parametrize("images", [1, pytest.param(4, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_ends_in_all_partitions_or_in_none(
    tmp_path: Path, version: Version, commit: bool, images: int
) -> None:
    moments = ended(tmp_path, version, commit=commit, images=images, seed=version)
    verdicts = [judged(each, commit=commit) for each in moments]
    found = Counter((each.found == "Ongoing", each.outcome) for each in verdicts)
    print(found)
    assert found.keys() == {(True, "CompleteAbort"), (False, verdicts[-1].outcome)}
    assert verdicts[-1].outcome == ("CompleteCommit" if commit else "CompleteAbort")


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(
    "which",
    # The first of some is where the outcome is on disk, and no marker is.
    [
        slice(2, 3),
        pytest.param(slice(None), marks=[pytest.mark.nightly, pytest.mark.rotated]),
    ],
    ids=["first", "all"],
)
def test_a_broker_that_is_lost_while_it_completes_what_it_has_found_is_followed_by_one_that_does(
    tmp_path: Path, commit: bool, which: slice
) -> None:
    rng = random.Random(2)  # repeats itself
    judged_again = 0
    for moment in ended(tmp_path, 2, commit=commit, images=0, seed=2)[which]:
        first = judged(moment, commit=commit, camera=Camera(moment.fs, rng, images=1))
        may_be_lost = True
        for again in first.moments:
            again.is_answered = moment.is_answered
            second = judged(again, commit=commit and first.outcome == "CompleteCommit")
            # Without power an outcome that was not on disk may be lost until it is acted upon.
            may_be_lost = may_be_lost and not _WRITTEN.match(again.operation)
            is_lost = second.found == "Ongoing" and again.operation.endswith("without power")
            assert second.outcome == first.outcome or (may_be_lost and is_lost), (
                moment.operation,
                again.operation,
            )
            judged_again += 1
    print(judged_again)
    assert judged_again > 20


# ---- it finds what is wrong


def _forgets_what_it_has_loaded(*_: Any) -> list[Any]:
    return []


def _does_nothing(*_: Any, **__: Any) -> None:
    """Stands for a step that somebody has forgotten."""


_send = MarkerSender.send


def _leaves_out_the_last(
    sender: MarkerSender, number: int, marker: Any, partitions: Sequence[Any], done: Any
) -> None:
    _send(sender, number, marker, partitions[:-1], done)


FORGOTTEN: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "markers that are not sent again": (
        TransactionStateMachine,
        "on_loaded",
        _forgets_what_it_has_loaded,
    ),
    "a partition without a marker": (MarkerSender, "send", _leaves_out_the_last),
    "a timeout that aborts nothing": (TransactionMaintenance, "abort_timed_out", _does_nothing),
    "a flush that does not sync": (LogSegment, "flush_log", _does_nothing),
    "offsets that no marker commits": (GroupStateMachine, "end_transaction", _does_nothing),
}


def _judge_with(root: Path, moments: Sequence[Moment]) -> None:
    """Judges moments of before the step was forgotten, then of after that."""
    for each in [*moments, *ended(root, 2, commit=True, images=2, seed=2)]:
        judged(each, commit=True)


@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_step_that_is_forgotten_is_found(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = ended(tmp_path, 2, commit=True, images=2, seed=2)
    where, name, instead = FORGOTTEN[what]
    monkeypatch.setattr(where, name, instead)
    monkeypatch.setattr(transaction_client, "WAIT_S", 1.0)
    with pytest.raises((AssertionError, KafkaRunError)):
        _judge_with(tmp_path / "again", moments)
