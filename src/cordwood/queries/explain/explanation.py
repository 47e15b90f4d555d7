"""Why each segment of a log is kept or goes, by which rule and setting, and when: a pure function.

The answer is made of the plans that the cleaner executes: `plan_retention` and `plan_cleanable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cordwood.cleanup.rules.blockers import Blocker, Code, due_blocker
from cordwood.cleanup.rules.cleanable import due_end
from cordwood.cleanup.rules.due import due_clean_ms
from cordwood.cleanup.rules.group_guard import GROUPS, MAX_BYTES, MAX_MS
from cordwood.cleanup.rules.group_losses import NotedLoss
from cordwood.cleanup.rules.idle_roll import ROLL_IDLE, idle_from_ms
from cordwood.cleanup.rules.moments import NEVER
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.cleanup.rules.shared_retention import TOPIC_LIMIT
from cordwood.configs.levels import Origin
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.queries.explain.answer import (
    ExplainedCompaction,
    ExplainedLog,
    ExplainedSegment,
    GroupPosition,
    LostOffsets,
    Section,
)
from cordwood.queries.explain.compaction_forecast import (
    CompactionForecast,
    compaction_forecast,
    covered_ms,
)
from cordwood.queries.explain.log_facts import LogFacts
from cordwood.queries.explain.segment_fate import SegmentFate, segment_fates

#: The settings that decide about any log, and those that decide about a compacted one.
_RETENTION: Final = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.ms",
    "segment.bytes",
    "internal.segment.bytes",
    "file.delete.delay.ms",
)
_GROUPS: Final = (GROUPS, MAX_MS, MAX_BYTES)
_COMPACTION: Final = (
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExplanation:
    """One log explained.

    `compaction` is None where the log is not compacted.
    """

    facts: LogFacts
    now_ms: int
    plan: RetentionPlan
    fates: Sequence[SegmentFate]
    compaction: CompactionForecast | None

    @property
    def cleaned_by_ms(self) -> int | None:
        """The latest end (ms) of the next compaction, as far as settings limit it."""
        return None if self.compaction is None else self._ended_ms(self.compaction.due_ms)

    def compacted_by_ms(self, offset: int) -> int | None:
        """The latest moment (ms) at which a compaction beyond `offset` has removed files."""
        if self.compaction is None:
            return None
        ended_ms = self._ended_ms(covered_ms(self.facts.view, self.compaction, offset))
        return None if ended_ms is None else ended_ms + self.facts.delays.removal_ms

    def removed_by_ms(self, due_ms: int) -> int | None:
        """The latest moment (ms) at which a compaction due at `due_ms` has removed files."""
        ended_ms = self._ended_ms(due_ms)
        return None if ended_ms is None else ended_ms + self.facts.delays.file_delete_ms

    def _ended_ms(self, due_ms: int | None) -> int | None:
        if due_ms is None or self.facts.cleaner:
            return None
        return due_ms + self.facts.delays.backoff_ms + (self._throttled_ms() or 0)

    def gone_by_ms(self, fate: SegmentFate) -> int | None:
        """The latest moment (ms) at which the files of a segment are removed; None if they stay."""
        if fate.goes_ms is None:
            return None
        return fate.goes_ms + self.facts.delays.check_ms + self.facts.delays.removal_ms

    def section(self, fate: SegmentFate) -> Section:
        """The section of the log that a segment belongs to for the cleaner."""
        base = fate.segment.base_offset
        if base == self.facts.view.active.base_offset:
            return Section.ACTIVE
        if self.compaction is None:
            return Section.NONE
        cleanable = self.compaction.cleanable
        if base >= cleanable.first_uncleanable and base >= cleanable.first_dirty:
            return Section.UNCLEANABLE
        return Section.DIRTY if fate.next_base > cleanable.first_dirty else Section.CLEAN

    def compaction_blockers(self) -> tuple[Blocker, ...]:
        """Why the log is not compacted now, or only slowly; empty where nothing is in the way."""
        if self.compaction is None:
            return ()
        found = list(self.facts.cleaner)
        cleanable = self.compaction.cleanable
        if cleanable.blocker is not None:
            found.append(cleanable.blocker)
        found += [each for each in cleanable.blockers if each not in found]
        throttled_ms = self._throttled_ms()
        if throttled_ms and cleanable.blocker is None:
            text = (
                f"a cleaning reads and writes {self.facts.throttle_bytes} bytes a second at most: "
                f"this one takes {throttled_ms} ms"
            )
            found.append(
                Blocker(
                    code=Code.THROTTLED,
                    setting="log.cleaner.io.max.bytes.per.second",
                    until_ms=self.now_ms + throttled_ms,
                    text=text,
                )
            )
        return tuple(found)

    def blockers(self, fate: SegmentFate) -> tuple[Blocker, ...]:
        """Blockers of a segment: of its compaction, then of its deletion."""
        return (*self._compaction_blockers_of(fate), *fate.blockers)

    def _compaction_blockers_of(self, fate: SegmentFate) -> tuple[Blocker, ...]:
        if self.compaction is None:
            return ()
        cleanable = self.compaction.cleanable
        match self.section(fate):
            case Section.ACTIVE:
                return (self._active_blocker(),)
            case Section.UNCLEANABLE:
                return cleanable.blockers
            case Section.DIRTY:
                own = () if cleanable.blocker is None else (cleanable.blocker,)
                return (*self.facts.cleaner, *own)
            case _:
                due_ms = self.due_ms(fate)
                if due_ms is not None:
                    return (due_blocker(due_ms, self.now_ms),)
                text = "it has been compacted; the next compaction reads it again"
                return (Blocker(code=Code.NOTHING_DIRTY, text=text),)

    def _active_blocker(self) -> Blocker:
        """The active segment has to be rolled first, by an append or because it is idle."""
        view = self.facts.view
        text = "the active segment is not compacted; it is when a new one has been rolled"
        is_whole = view.high_watermark >= view.log_end_offset and not view.holds
        if not (view.config.cordwood_segment_roll_idle and is_whole):
            return Blocker(code=Code.ACTIVE_SEGMENT, setting="segment.ms", text=text)
        first = view.active.first_batch_timestamp
        until_ms = idle_from_ms(view.active, view.config, first_batch_timestamp=first)
        return Blocker(
            code=Code.ACTIVE_SEGMENT,
            setting=ROLL_IDLE,
            until_ms=max(until_ms, self.now_ms),
            text=f"{text}, at the latest by {ROLL_IDLE} if nothing is appended",
        )

    def due_ms(self, fate: SegmentFate) -> int | None:
        """The moment (ms) at which a clean segment is cleaned as due; None if never."""
        view = self.facts.view
        if self.compaction is None or view.holds:
            return None
        end = due_end(view, self.compaction.cleanable.first_dirty)
        if not view.log_start_offset < fate.next_base <= end:
            return None
        moment = due_clean_ms(fate.segment, view.config, view.settled_ms)
        return None if moment == NEVER else max(moment, self.now_ms)

    def _throttled_ms(self) -> int | None:
        """The least time (ms) of a throttled cleaning that reads all, and writes as much."""
        if self.facts.throttle_bytes is None or self.compaction is None:
            return None
        cleanable = self.compaction.cleanable
        moved = cleanable.clean_bytes + 2 * cleanable.cleanable_bytes
        return -(-moved * 1000 // self.facts.throttle_bytes)

    # ---- the answer

    def answer(self) -> ExplainedLog:
        """The log, and each of its segments."""
        facts, view = self.facts, self.facts.view
        return ExplainedLog(
            topic=view.topic_partition.topic,
            partition=view.topic_partition.partition,
            log_dir=facts.log_dir,
            policy=",".join(sorted(view.config.cleanup_policy)),
            log_start_offset=view.log_start_offset,
            last_stable_offset=view.last_stable_offset,
            high_watermark=view.high_watermark,
            log_end_offset=view.log_end_offset,
            size_bytes=view.size_bytes,
            deletable_segments=len(self.plan.expired),
            deletable_bytes=self.plan.bytes_freed,
            settings=self._settings(),
            open_transactions=facts.transactions,
            groups=self._groups(),
            losses=[_lost(each) for each in facts.losses],
            compaction=self._compaction(),
            segments=[self._segment(fate) for fate in self.fates],
            warnings=facts.warnings,
        )

    def _settings(self) -> dict[str, Origin]:
        config = self.facts.view.config
        names = (*_RETENTION, *_COMPACTION) if config.compact else _RETENTION
        names = (*names, *_own_settings(config))
        if config.cordwood_retention_groups:
            names = (*names, *_GROUPS)
        if config.cordwood_retention_topic_bytes >= 0:
            names = (*names, TOPIC_LIMIT)
        if config.cordwood_segment_roll_idle:
            names = (*names, ROLL_IDLE)
        origins = self.facts.origins
        return {name: origins[name] for name in names if name in origins}

    def _groups(self) -> list[GroupPosition]:
        """The groups that the log waits for."""
        view = self.facts.view
        return [
            GroupPosition(
                group=each.group,
                committed_offset=each.committed,
                lag=None
                if each.committed is None
                else max(0, view.high_watermark - each.committed),
                text=each.text,
            )
            for each in view.consumed.positions(view.config)
        ]

    def _segment(self, fate: SegmentFate) -> ExplainedSegment:
        segment = fate.segment
        blockers = self.blockers(fate)
        return ExplainedSegment(
            base_offset=segment.base_offset,
            next_offset=fate.next_base,
            size_bytes=segment.size_bytes,
            largest_timestamp=segment.largest_timestamp,
            timestamp_of="record" if segment.largest_record_timestamp >= 0 else "file",
            section=self.section(fate),
            deletable=fate.goes_now,
            rule=fate.rule,
            reason=fate.text or (blockers[0].text if blockers else ""),
            blockers=blockers,
            due_ms=self.due_ms(fate),
            goes_ms=fate.goes_ms,
            gone_by_ms=self.gone_by_ms(fate),
        )

    def _compaction(self) -> ExplainedCompaction | None:
        if self.compaction is None:
            return None
        cleanable = self.compaction.cleanable
        return ExplainedCompaction(
            due=cleanable.blocker is None and not self.facts.cleaner,
            due_ms=self.compaction.due_ms,
            cleaned_by_ms=self.cleaned_by_ms,
            dirty_ratio=round(cleanable.ratio, 6),
            clean_bytes=cleanable.clean_bytes,
            cleanable_bytes=cleanable.cleanable_bytes,
            first_dirty_offset=cleanable.first_dirty,
            first_uncleanable_offset=cleanable.first_uncleanable,
            due_segments=cleanable.due,
            limited_by_lag=self.facts.view.config.max_compaction_lag_ms < LONG_MAX,
            blockers=self.compaction_blockers(),
        )


def explain(facts: LogFacts, *, now_ms: int) -> LogExplanation:
    """Explains one log at `now_ms`.

    Raises:
        CorruptError, OSError: an index of a running log cannot be read.
    """
    return LogExplanation(
        facts=facts,
        now_ms=now_ms,
        plan=facts.check.plan,
        fates=segment_fates(facts.view, facts.check.plan, now_ms=now_ms),
        compaction=compaction_forecast(facts.view, now_ms=now_ms),
    )


def _own_settings(config: LogConfig) -> Iterator[str]:
    """Settings of Cordwood's that decide about a compacted log, as far as they are on."""
    if config.compact and config.cordwood_tombstone_cleanup:
        yield "cordwood.tombstone.cleanup"
    if config.compact:
        yield from (rule.setting for rule in removal_rules(config))
    if config.compact and config.cordwood_compaction_strategy != "offset":
        yield "cordwood.compaction.strategy"
    if config.compact and config.cordwood_compaction_strategy == "header":
        yield "cordwood.compaction.strategy.header"


def _lost(noted: NotedLoss) -> LostOffsets:
    loss = noted.loss
    return LostOffsets(
        group=loss.group,
        first_offset=loss.first_offset,
        last_offset=loss.last_offset,
        records_at_most=loss.offsets,
        setting=loss.setting,
        known=not loss.unknown,
        since_ms=noted.since_ms,
        at_ms=noted.at_ms,
    )
