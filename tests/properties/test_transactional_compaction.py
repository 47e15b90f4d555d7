"""Random transactions with a log that is compacted between them: what readers see is the model's.

The model is the list of batches that were appended. It knows nothing of compaction: after each step
readers must end with its newest committed values, tombstones must be there within their retention,
the transaction indexes must serve what is left, and a producer's last batch that is sent again must
be known as a duplicate, after a restart without snapshots too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.cleanup.engine.verdicts import BatchRules
from cordwood.cleanup.rules.transactions import TransactionTracker
from cordwood.configs.log_config import LogConfig
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.file_names import CLEAN_SHUTDOWN
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import KafkaError
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.reading.aborted import AbortedTransactions
from support.log_under_test import remove_snapshots
from support.running_logs import RunningLogs, newest, read_records

#: So short that no producer expires in a history.
RETENTION_MS = 60_000
PRODUCERS, KEYS = 3, 5
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
)


@dataclass(frozen=True, slots=True)
class Appended:
    """A batch of a producer's transaction; `is_committed` is None while it is open."""

    producer: int
    sequence: int
    records: tuple[tuple[bytes, bytes | None], ...]
    first_offset: int
    at_ms: int
    is_committed: bool | None = None


class History:
    """A log, producers that write to it, and the model."""

    def __init__(self, root: Path, seed: int, config: LogConfig) -> None:
        self.logs = RunningLogs(root, {"t": config})
        self.log = self.logs.log()
        self.rng = random.Random(seed)
        self.batches: list[Appended] = []
        self.cleanings = 0
        self._sequences = dict.fromkeys(range(PRODUCERS), 0)

    # ---- steps

    def step(self) -> None:
        """Something happens."""
        steps: list[Callable[[], None]] = [self.append, self.end, self.roll, self.clean]
        steps += [self.pass_time, self.restart]
        self.rng.choices(steps, [8, 8, 2, 6, 3, 2])[0]()

    def append(self) -> None:
        """A batch of a producer, with tombstones among its records."""
        producer = self.rng.randrange(PRODUCERS)
        number = len(self.batches)
        records = tuple(
            (b"%d" % self.rng.randrange(KEYS), b"%d" % number if self.rng.random() < 0.7 else None)
            for _ in range(self.rng.randint(1, 3))
        )
        now_ms = self.logs.clock.now_ms()
        batch = Appended(producer, self._sequences[producer], records, self._end_offset, now_ms)
        result = self._send(batch)
        assert not result.is_duplicate
        assert result.first_offset == batch.first_offset
        self._sequences[producer] += len(records)
        self.batches.append(batch)

    def _send(self, batch: Appended) -> Any:
        guard = self.log.maybe_start_verification(batch.producer, batch.sequence, 0)
        records = [
            Record(number, batch.at_ms, key, value)
            for number, (key, value) in enumerate(batch.records)
        ]
        result = self.log.append_as_leader(
            build_batch(
                records,
                base_offset=0,
                producer_id=batch.producer,
                producer_epoch=0,
                base_sequence=batch.sequence,
                is_transactional=True,
            ),
            verification_guard=guard,
        )
        self.log.update_high_watermark(self._end_offset)
        return result

    def end(self) -> None:
        """A transaction that is open ends."""
        running = sorted({each.producer for each in self.batches if each.is_committed is None})
        if not running:
            return
        producer, commit = self.rng.choice(running), self.rng.random() < 0.6
        self.log.append_as_leader(
            build_end_txn_marker(
                offset=0,
                timestamp=self.logs.clock.now_ms(),
                producer_id=producer,
                producer_epoch=0,
                control_type=ControlType.COMMIT if commit else ControlType.ABORT,
                coordinator_epoch=0,
            ),
            origin=AppendOrigin.COORDINATOR,
        )
        self.log.update_high_watermark(self._end_offset)
        self.batches = [
            replace(each, is_committed=commit)
            if each.producer == producer and each.is_committed is None
            else each
            for each in self.batches
        ]

    def roll(self) -> None:
        """A segment ends, if it has begun."""
        if self.log.segments.active.size_bytes:
            self.log.roll()
        self.log.update_high_watermark(self._end_offset)

    def clean(self) -> None:
        """A compaction of what can be compacted."""
        self.roll()
        self.cleanings += self.logs.cleaner.clean_once()
        assert not self.logs.cleaning.uncleanable_partitions(self.log.log_dir)

    def pass_time(self) -> None:
        """Markers and tombstones of earlier compactions may be removed."""
        self.logs.clock.advance(RETENTION_MS + 1)

    def restart(self) -> None:
        """A stop in good order, or one that leaves neither its mark nor producers' snapshots."""
        self.logs.manager.shutdown()
        if self.rng.random() < 0.5:
            remove_snapshots(self.log.directory)
            (self.log.log_dir / CLEAN_SHUTDOWN).unlink()
        self.logs._start()
        self.log = self.logs.log()
        self.log.update_high_watermark(self._end_offset)

    @property
    def _end_offset(self) -> int:
        return self.log.log_end_offset

    # ---- what has to hold

    def check(self) -> None:
        """Compares readers with the model; raises AssertionError."""
        stable = min(
            (each.first_offset for each in self.batches if each.is_committed is None),
            default=self._end_offset,
        )
        assert self.log.last_stable_offset == stable
        expected = [
            Record(each.first_offset + number, each.at_ms, key, value)
            for each in self.batches
            if each.is_committed and each.first_offset < stable
            for number, (key, value) in enumerate(each.records)
        ]
        found = read_records(self.log, isolation=Isolation.TXN_COMMITTED)
        assert newest(found) == newest(expected)
        known = {(each.offset, each.key, each.value) for each in expected}
        assert {(each.offset, each.key, each.value) for each in found} <= known
        self._check_tombstones(expected, {each.offset for each in found})

    def _check_tombstones(self, expected: list[Record], found: set[int]) -> None:
        last = {each.key: each for each in expected}
        for record in last.values():
            is_new = record.timestamp + RETENTION_MS >= self.logs.clock.now_ms()
            assert record.offset in found or (record.value is None and not is_new), record

    def check_duplicates(self) -> None:
        """The last batch of each producer is known."""
        for batch in {each.producer: each for each in self.batches}.values():
            before = self._end_offset
            again = self._send(batch)
            assert again.is_duplicate, batch
            assert again.first_offset == batch.first_offset
            assert self._end_offset == before


def run(seed: int, steps: int, config: LogConfig = COMPACT) -> int:
    """A history; how many compactions it had."""
    with TemporaryDirectory() as root:
        history = History(Path(root), seed, config)
        for _ in range(steps):
            history.step()
            history.check()
        history.check_duplicates()
        history.restart()
        history.check()
        history.check_duplicates()
        history.logs.manager.shutdown()
        return history.cleanings


def run_all(count: int, config: LogConfig = COMPACT) -> int:
    """Runs `count` histories; returns the number of their compactions."""
    return sum(run(seed, 60, config) for seed in range(count))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_compaction_changes_nothing_for_readers_and_producers_of_transactions(seed: int) -> None:
    run(seed, 60)


def test_the_histories_have_compactions() -> None:
    assert run_all(5) > 10


# ---- it finds what is wrong


def _finds_no_marker_needed(*_: Any) -> bool:
    return True


def _takes_all_for_committed(*_: Any) -> bool:
    return False


def _knows_no_aborted_transaction(*_: Any) -> None:
    return None


def _leaves_no_header(_rules: Any, table: Any, _control: Any) -> Any:
    return np.zeros(len(table), dtype=np.bool_)


FORGOTTEN: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "markers go at once": (TransactionTracker, "control_batch", _finds_no_marker_needed),
    "aborted data stays": (TransactionTracker, "data_batch", _takes_all_for_committed),
    "the index loses entries": (AbortedTransactions, "ended_by", _knows_no_aborted_transaction),
    "producers' last batches go": (BatchRules, "_must_leave_header", _leaves_no_header),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_a_rule_that_is_forgotten_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead = FORGOTTEN[what]
    monkeypatch.setattr(where, name, instead)
    with pytest.raises((AssertionError, KafkaError)):
        run_all(40)


def test_tombstones_that_go_too_early_are_found() -> None:
    hasty = replace(COMPACT, delete_retention_ms=0)
    with pytest.raises(AssertionError, match="value=None"):
        run_all(40, hasty)
