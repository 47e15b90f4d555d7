"""A running log that is explained, with its cleaner and a clock in the test's hand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.rules.blockers import Code
from cordwood.cleanup.schedule.log_cleaner import LogCleaner
from cordwood.cleanup.schedule.next_check import plan_next_check
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.explain.explanation import LogExplanation, explain
from cordwood.queries.explain.node import facts_of_running
from cordwood.storage.segment.log_segment import LogSegment
from support.in_process_engine import CompiledEngine
from support.running_logs import RunningLogs

HOUR_MS: Final = 3_600_000
NAME: Final = "t-0"
PARTITION: Final = TopicPartition.parse(NAME)
TEN: Final = "abcdefghij"


class ExplainedLog:
    """One log, its cleaner, and a clock that stands still unless it is moved."""

    def __init__(self, root: Path, config: LogConfig, settings: CleanerSettings) -> None:
        self.logs = RunningLogs(root, {"t": config})
        self.settings = settings
        self.cleaner = LogCleaner(
            self.logs.manager, self.logs.cleaning, CompiledEngine(), self.logs.clock, settings
        )
        self.log = self.logs.log(NAME)

    @property
    def now_ms(self) -> int:
        """The clock's time."""
        return self.logs.clock.now_ms()

    @property
    def bases(self) -> list[int]:
        """The base offsets of its segments."""
        return [segment.base_offset for segment in self.log.segments]

    def segment(self, age_ms: int, *, keys: str = TEN, committed: bool = True) -> LogSegment:
        """A segment with records of this age (ms)."""
        base = self.log.active.base_offset
        for key in keys:
            self.logs.put(self.log, (key.encode(), b"v" * 50), timestamp=self.now_ms - age_ms)
        self.log.roll()
        if committed:
            self.log.update_high_watermark(self.log.log_end_offset)
        return next(each for each in self.log.segments if each.base_offset == base)

    def explain(self) -> LogExplanation:
        """The explanation at the clock's time."""
        planned = plan_next_check(self.logs.cleaning, [self.log], now_ms=self.now_ms)
        facts = facts_of_running(
            self.logs.cleaning,
            self.settings,
            self.log,
            planned[PARTITION],
            origins={},
            transactional_ids={},
            now_ms=self.now_ms,
        )
        return explain(facts, now_ms=self.now_ms)

    def codes(self, number: int = 0) -> list[Code]:
        """The blockers of a segment, by its number."""
        explanation = self.explain()
        return [each.code for each in explanation.blockers(explanation.fates[number])]

    def check(self) -> None:
        """A check of retention and one of the cleaner, at the clock's time."""
        self.cleaner.retention_once_now()
        self.cleaner.run_once_now()

    def require_gone_at(self, moment_ms: int | None, base: int = 0) -> None:
        """A check just before the moment keeps a segment, one at the moment removes it."""
        assert moment_ms is not None
        self.logs.clock.advance(moment_ms - 1 - self.now_ms)
        self.check()
        assert base in self.bases
        self.logs.clock.advance(1)
        self.check()
        assert base not in self.bases

    def require_compacted_at(self, moment_ms: int | None) -> None:
        """A check just before the moment does not move the checkpoint, one at the moment does."""
        assert moment_ms is not None
        before = self.logs.checkpoint(NAME)
        self.logs.clock.advance(moment_ms - 1 - self.now_ms)
        self.check()
        assert self.logs.checkpoint(NAME) == before
        self.logs.clock.advance(1)
        self.check()
        assert self.logs.checkpoint(NAME) != before
