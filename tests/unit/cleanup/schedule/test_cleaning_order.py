"""Order in which logs are compacted: cordwood.cleaner.order."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.commit import CompactionCommitter, Engine
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.estimates import QuickEstimate
from cordwood.cleanup.plan.request import CleaningOrder
from cordwood.cleanup.rules.cleanable import Cleanable
from cordwood.cleanup.schedule import cleaning_order
from cordwood.cleanup.schedule.cleaning_order import CleaningSchedule, DueLog
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.configs.broker_config import BrokerConfig
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.reading.source import ReadBounds
from support.in_process_engine import CompiledEngine, clean_in_process
from support.key_distributions import CONFIG, DISTRIBUTIONS
from support.log_builder import NOW_MS, write_log_dir
from support.running_logs import RunningLogs
from support.skewed_logs import KINDS, bytes_read_for, clean_in_order, write_skewed_logs

MB = 1 << 20


def test_by_what_is_freed_most_is_freed_with_less_than_two_thirds_of_the_reads(
    tmp_path: Path,
) -> None:
    found = {}
    write_skewed_logs(tmp_path / "logs", records=6_000)
    for order in CleaningOrder:
        shutil.copytree(tmp_path / "logs", tmp_path / order)
        found[order] = clean_in_order(tmp_path / order, order)
    ours, theirs = found[CleaningOrder.FREED], found[CleaningOrder.RATIO]
    assert sorted(step.name for step in ours) == sorted(step.name for step in theirs)
    assert len(ours) == sum(count for count, _ in KINDS.values()), "each was compacted once"
    assert ours[-1].bytes_freed == theirs[-1].bytes_freed
    # By ratio, what frees nothing comes first.
    assert [step.bytes_freed for step in theirs[:9]] == [0] * 9
    assert [step.name.split("-")[0] for step in ours[-9:]] == ["events"] * 9
    # What the estimates have read counts, before the first compaction.
    assert ours[-1].bytes_read > theirs[-1].bytes_read
    assert bytes_read_for(0.8, ours) <= 0.6 * bytes_read_for(0.8, theirs)


class Sampler:
    """Gives the share that a test says a log frees, and notes which logs it was asked for."""

    def __init__(self, **shares: float | None) -> None:
        self.shares = shares
        self.asked: list[str] = []
        self.bytes_read = 1_000

    def __call__(self, due: DueLog) -> QuickEstimate:
        topic = due.partition.topic
        self.asked.append(topic)
        share = self.shares[topic]
        if share is None:
            raise CorruptError("a damaged batch")
        size = due.size_bytes
        return QuickEstimate(
            bytes_before=size, bytes_freed=round(share * size), bytes_read=self.bytes_read
        )


def due(
    topic: str, ratio: float, *, delay_ms: int = 0, size: int = MB, first_dirty: int = 0
) -> DueLog:
    """A log that is due."""
    dirty = round(ratio * size)
    return DueLog(
        partition=TopicPartition(topic, 0),
        cleanable=Cleanable(
            first_dirty=first_dirty,
            first_uncleanable=100,
            clean_bytes=size - dirty,
            cleanable_bytes=dirty,
            ratio=dirty / size,
            delay_ms=delay_ms,
            blocker=None,
        ),
        identity=1,
        segments=tuple,
        bounds=ReadBounds(batch_bytes_max=MB),
    )


def names(logs: Sequence[DueLog]) -> str:
    return "".join(each.partition.topic for each in logs)


def test_kafkas_order_is_that_of_the_dirty_ratio_and_reads_nothing() -> None:
    sampler = Sampler()
    schedule = CleaningSchedule(sampler=sampler)
    logs = [due("a", 0.5), due("b", 0.9), due("c", 0.7, delay_ms=50), due("d", 0.9)]
    assert names(schedule.ranked(logs)) == "bdca"
    schedule.note_turn(logs[1])
    assert names(schedule.ranked(logs)) == "bdca"
    assert sampler.asked == []


def test_what_frees_most_is_first_after_what_is_late() -> None:
    schedule = CleaningSchedule(CleaningOrder.FREED, sampler=Sampler(a=0.9, b=0.0, c=0.5, d=0.1))
    logs = [due("a", 0.5), due("b", 1.0), due("c", 0.6)]
    assert names(schedule.ranked(logs)) == "acb"
    late = [due("d", 0.1, delay_ms=1), due("b", 1.0, delay_ms=9)]
    assert names(schedule.ranked([*logs[::2], *late])) == "bdac"


def test_a_log_that_frees_nothing_waits_for_each_other_log_once() -> None:
    schedule = CleaningSchedule(CleaningOrder.FREED, sampler=Sampler(a=0.9, b=0.0, c=0.5, d=0.7))
    logs = [due("a", 0.5), due("b", 1.0), due("c", 0.6)]
    turns = ""
    for _ in range(6):  # all of them are due again and again
        first = schedule.ranked(logs)[0]
        schedule.note_turn(first)
        turns += first.partition.topic
    assert turns == "acbacb"
    # A log that is late has no effect on the turns of the others.
    late = due("d", 0.1, delay_ms=5)
    for expected in "addcb":
        first = schedule.ranked([*logs, late] if expected == "d" else logs)[0]
        schedule.note_turn(first)
        assert first.partition.topic == expected


def test_an_estimate_is_kept_until_the_dirty_section_is_another_one() -> None:
    sampler = Sampler(a=0.9, b=0.1)
    schedule = CleaningSchedule(CleaningOrder.FREED, sampler=sampler)
    a, b = due("a", 0.5), due("b", 0.5)
    schedule.ranked([a])
    assert sampler.asked == [], "of one log the order is known"
    schedule.ranked([a, b])
    schedule.ranked([a, due("b", 0.62)])
    assert sampler.asked == ["a", "b"]
    estimate = schedule.estimate_of(due("b", 0.62, size=2 * MB))
    assert estimate is None, "it has twice as much"
    schedule.ranked([a, due("b", 0.63)])
    assert sampler.asked == ["a", "b", "b"], "a quarter more"
    schedule.ranked([replace(a, identity=2), due("b", 0.63, first_dirty=5)])
    assert sampler.asked == ["a", "b", "b", "b", "a"]
    assert schedule.estimate_of(a) is None
    grown = schedule.estimate_of(due("b", 0.7, first_dirty=5))
    assert grown is not None
    assert grown.bytes_freed == round(0.1 * MB)


def test_a_look_reads_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning_order, "LOOK_BYTES_MAX", 2_000)
    sampler = Sampler(a=0.1, b=0.2, c=0.9)
    schedule = CleaningSchedule(CleaningOrder.FREED, sampler=sampler)
    logs = [due("a", 0.9), due("b", 0.8), due("c", 0.7)]
    assert names(schedule.ranked(logs)) == "bac", "nothing is known of the last"
    assert names(schedule.ranked(logs)) == "cba"
    assert sampler.asked == ["a", "b", "c"]


def test_what_cannot_be_read_comes_last_and_is_not_read_again() -> None:
    sampler = Sampler(a=None, b=0.0)
    schedule = CleaningSchedule(CleaningOrder.FREED, sampler=sampler)
    for _ in range(2):
        assert names(schedule.ranked([due("a", 1.0), due("b", 0.6)])) == "ba"
    assert sampler.asked == ["a", "b"]


def test_without_compiled_code_the_ratio_decides_and_that_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cleaning_order, "missing_packages", lambda _: ["numba"])
    schedule = CleaningSchedule(CleaningOrder.FREED, sampler=Sampler())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert names(schedule.ranked([due("a", 0.5), due("b", 1.0)])) == "ba"
    assert len(caplog.records) == 1
    assert "pip install 'cordwood[native]'" in caplog.text


class Order(CompiledEngine):
    """Notes in which order logs are cleaned."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        self.names += [committer.compaction.name for committer in committers]
        super().run(committers)


def write_three(root: Path) -> None:
    """Three logs: the dirtier, the less is freed; one is too small to have more than a window."""
    logs = [
        DISTRIBUTIONS[name].log(f"{topic}-0", records=records, seed=1)
        for topic, name, records in (
            ("a", "all unique", 400),
            ("b", "clean section", 2_000),
            ("c", "one key", 10),
        )
    ]
    logs[0].cleaner_checkpoint = 0
    logs[2].cleaner_checkpoint = 1
    write_log_dir(root, logs)


@pytest.mark.parametrize(
    ("order", "expected"),
    [(CleaningOrder.RATIO, ["a-0", "c-0", "b-0"]), (CleaningOrder.FREED, ["c-0", "b-0", "a-0"])],
)
def test_a_stopped_log_directory_is_cleaned_in_the_order_too(
    tmp_path: Path, order: CleaningOrder, expected: list[str]
) -> None:
    write_three(tmp_path)
    engine = Order()

    @contextmanager
    def started() -> Iterator[Engine]:
        yield engine

    configs = dict.fromkeys("abc", CONFIG)
    report = clean_in_process(tmp_path, configs, now_ms=NOW_MS, order=order, engine=started)
    assert engine.names == expected
    assert [f"{each.topic}-0" for each in report.partitions] == ["a-0", "b-0", "c-0"]


def test_a_broker_changes_the_order_while_it_runs_and_shows_what_is_due(tmp_path: Path) -> None:
    write_three(tmp_path / "logs-0")
    logs = RunningLogs(tmp_path, dict.fromkeys("abc", CONFIG))
    logs.clock.advance(max(0, NOW_MS - logs.clock.now_ms()))
    engine = Order()
    cleaner = LogCleaner(logs.manager, logs.cleaning, engine, logs.clock)
    status = cleaner.status()
    assert (status.order_by, status.order) == ("ratio", ["a-0", "c-0", "b-0"])
    broker = BrokerConfig({"cordwood.cleaner.order": "freed"})
    cleaner.reconfigure(CleanerSettings.of(broker))
    status = cleaner.status()
    assert (status.order_by, status.order) == ("freed", ["a-0", "c-0", "b-0"])
    assert status.backlog.bytes_freed is None, "nothing was estimated yet"
    assert status.backlog.seconds_left is None
    chosen = logs.cleaning.grab_filthiest(logs.clock.now_ms())
    assert chosen is not None
    assert str(chosen.topic_partition) == "c-0"
    logs.cleaning.done_cleaning(chosen.topic_partition, chosen.log.log_dir, 1)
    status = cleaner.status()
    assert status.order == ["b-0", "a-0", "c-0"], "it has had its turn"
    sizes = [(each.clean_bytes or 0) + (each.dirty_bytes or 0) for each in status.partitions]
    estimated = [each.bytes_freed_estimated or 0 for each in status.partitions]
    assert status.backlog.logs == 3
    assert status.backlog.bytes_to_read == sum(sizes)
    assert status.backlog.bytes_freed == sum(estimated)
    assert estimated[0] == 0
    assert 0.3 * sizes[1] < estimated[1] < 0.9 * sizes[1]
    assert cleaner.run_once_now() == 3
    assert engine.names == ["b-0", "a-0", "c-0"]
    status = cleaner.status()
    assert (status.order, status.backlog.logs) == ([], 0)
    assert status.backlog.seconds_left is None or status.backlog.seconds_left == 0
