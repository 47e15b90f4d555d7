"""Logs on either side of every threshold: in which order they are cleaned, and what is said why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.schedule.cleaner_answer import LogStatus
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog
from support.in_process_engine import CompiledEngine
from support.running_logs import RunningLogs

HOUR_MS = 3_600_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1 << 20)


class Rounds(CompiledEngine):
    """Notes in which order logs are cleaned."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        self.names += [committer.compaction.name for committer in committers]
        super().run(committers)


class Bench:
    """Logs of segments of ten equal batches each; the clock stands still unless it is moved."""

    def __init__(self, root: Path, configs: dict[str, LogConfig]) -> None:
        self.logs = RunningLogs(root, configs)
        self.engine = Rounds()
        self.cleaner = LogCleaner(
            self.logs.manager, self.logs.cleaning, self.engine, self.logs.clock
        )

    def log(self, name: str, ages_ms: Sequence[int], *, clean: int = 0) -> PartitionLog:
        """A segment for each age, with records so old; the first `clean` of them are clean."""
        log = self.logs.log(name)
        for age_ms in ages_ms:
            for n in range(10):
                timestamp = self.logs.clock.now_ms() - age_ms
                self.logs.put(log, (b"%d" % n, b"v"), timestamp=timestamp)
            log.roll()
            log.update_high_watermark(log.log_end_offset)
        if clean:
            self.logs.set_checkpoint(10 * clean, name)
        return log

    def status(self) -> dict[str, LogStatus]:
        partitions = self.cleaner.status().partitions
        return {p.name: p for p in partitions}

    def order(self) -> list[str]:
        return list(self.cleaner.status().order)

    def clean_all(self) -> list[str]:
        self.engine.names.clear()
        self.cleaner.run_once_now()
        return list(self.engine.names)


def test_five_logs_on_either_side_of_the_ratio(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"r": replace(COMPACT, min_cleanable_dirty_ratio=0.5)})
    for number, clean in enumerate((9, 6, 5, 4, 1)):
        bench.log(f"r-{number}", [0] * 10, clean=clean)
    status = bench.status()
    assert [status[f"r-{n}"].cleanable_ratio for n in range(5)] == [0.1, 0.4, 0.5, 0.6, 0.9]
    assert {name: (p.due, p.reason) for name, p in status.items()} == {
        "r-0": (False, "its dirty ratio 0.1 is not above min.cleanable.dirty.ratio 0.5"),
        "r-1": (False, "its dirty ratio 0.4 is not above min.cleanable.dirty.ratio 0.5"),
        "r-2": (False, "its dirty ratio 0.5 is not above min.cleanable.dirty.ratio 0.5"),
        "r-3": (True, "its dirty ratio 0.6 is above min.cleanable.dirty.ratio 0.5"),
        "r-4": (True, "its dirty ratio 0.9 is above min.cleanable.dirty.ratio 0.5"),
    }
    assert bench.order() == ["r-4", "r-3"]
    assert bench.clean_all() == ["r-4", "r-3"]
    assert bench.status()["r-4"].reason == "all but the active segment is clean"
    assert bench.order() == []


def test_five_logs_on_either_side_of_the_max_lag(tmp_path: Path) -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS)
    bench = Bench(tmp_path, {"m": config})
    ages = (HOUR_MS - 1, HOUR_MS, HOUR_MS + 1, 2 * HOUR_MS, 3 * HOUR_MS)
    for number, age_ms in enumerate(ages):
        bench.log(f"m-{number}", [age_ms] * 10, clean=number + 1)
    status = bench.status()
    assert [status[f"m-{n}"].due for n in range(5)] == [False, False, True, True, True]
    assert [status[f"m-{n}"].compaction_delay_ms for n in range(5)] == [
        *(0, 0, 1, HOUR_MS, 2 * HOUR_MS)
    ]
    assert status["m-1"].reason == ("its dirty ratio 0.8 is not above min.cleanable.dirty.ratio 1")
    assert status["m-2"].reason == (
        "max.compaction.lag.ms: its oldest dirty record is 1 ms past 3600000 ms"
    )
    # The longest overdue is not the first: the dirtiest is.
    assert bench.order() == ["m-2", "m-3", "m-4"]
    assert bench.clean_all() == ["m-2", "m-3", "m-4"]
    bench.logs.clock.advance(1)
    assert bench.clean_all() == ["m-1"]


def test_five_logs_on_either_side_of_the_min_lag(tmp_path: Path) -> None:
    config = replace(COMPACT, min_cleanable_dirty_ratio=0.3, min_compaction_lag_ms=HOUR_MS)
    bench = Bench(tmp_path, {"l": config})
    old, young = HOUR_MS, HOUR_MS - 1
    bench.log("l-0", [young] * 10)
    bench.log("l-1", [old] * 2 + [young] * 8)
    bench.log("l-2", [old] * 5 + [young] * 5, clean=4)
    bench.log("l-3", [old] * 6 + [young] * 4, clean=3)
    bench.log("l-4", [old] * 10, clean=2)
    status = bench.status()
    assert [status[f"l-{n}"].first_uncleanable_offset for n in range(5)] == [0, 20, 50, 60, 100]
    assert [status[f"l-{n}"].cleanable_ratio for n in range(5)] == [0.0, 1.0, 0.2, 0.5, 0.8]
    held = "min.compaction.lag.ms: the segment at {} holds records younger than 3600000 ms"
    assert {name: p.reason for name, p in status.items()} == {
        "l-0": held.format(0),
        "l-1": "its dirty ratio 1 is above min.cleanable.dirty.ratio 0.3",
        "l-2": "its dirty ratio 0.2 is not above min.cleanable.dirty.ratio 0.3",
        "l-3": "its dirty ratio 0.5 is above min.cleanable.dirty.ratio 0.3",
        "l-4": "its dirty ratio 0.8 is above min.cleanable.dirty.ratio 0.3",
    }
    assert status["l-1"].blockers == [held.format(20)]
    assert bench.order() == ["l-1", "l-4", "l-3"]
    assert bench.clean_all() == ["l-1", "l-4", "l-3"]
    bench.logs.clock.advance(1)
    assert bench.clean_all()[0] == "l-0", "what was too young is old enough now"


def test_an_open_transaction_a_pause_and_a_round_are_told_apart(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"t": replace(COMPACT, min_cleanable_dirty_ratio=0.0)})
    for number in range(3):
        bench.log(f"t-{number}", [0] * (3 - number))
    bench.logs.log("t-0").update_high_watermark(5)
    bench.logs.cleaning.states.abort_and_pause(TopicPartition("t", 1))
    chosen = bench.logs.cleaning.grab_filthiest(bench.logs.clock.now_ms())
    assert chosen is not None
    found = {name: (p.state, p.reason, p.due) for name, p in bench.status().items()}
    assert found["t-1"] == ("LogCleaningPaused(1)", "its cleaning is paused", False)
    assert found[str(chosen.topic_partition)] == (
        "LogCleaningInProgress",
        "it is being cleaned",
        False,
    )
    bench.logs.cleaning.states.resume_cleaning([TopicPartition("t", 1)])
    assert bench.status()["t-1"].state == "idle"


@pytest.mark.parametrize("policy", ["delete", ""])
def test_logs_without_compact_are_not_told_of(tmp_path: Path, policy: str) -> None:
    config = LogConfig(cleanup_policy=frozenset([policy] if policy else []))
    bench = Bench(tmp_path, {"d": config, "c": COMPACT})
    bench.log("d-0", [0])
    bench.log("c-0", [0])
    assert list(bench.status()) == ["c-0"]
