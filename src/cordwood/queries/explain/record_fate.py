"""Finds the latest moment at which a record is in any file, and the reason: a pure function.

Retention removes it with its segment. A compaction removes it when the section that it cleans holds
a newer record of the same key, or a reason that needs none: it has no key, its transaction was
aborted, it is a tombstone whose delete horizon has passed, or its time to live has ended.

Source: Cleaner.shouldRetainRecord, CleanedTransactionMetadata, KIP-534 for delete horizons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.cleanup.rules.blockers import hold_blocker
from cordwood.cleanup.rules.cleanable import due_end
from cordwood.cleanup.rules.due import lag_ends_ms
from cordwood.cleanup.rules.removal_rule import RemovalRule
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.cleanup.rules.versions import VersionRule
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.explain.answer import ExplainedRecord, RecordState
from cordwood.queries.explain.explanation import LogExplanation
from cordwood.queries.explain.record_search import FoundRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFate:
    """Fate of a record under retention and compaction.

    `superseded_by` is the offset of the newest record of its key, None for that record itself.
    `gone_by_ms` is the moment (ms) from which on no file of the log has the record, if nothing is
    appended meanwhile; None where no setting limits that. `expires_ms` is when its time to live
    ends (ms), None where it has none, or its log heeds none.
    """

    found: FoundRecord
    state: RecordState
    text: str
    superseded_by: int | None = None
    gone_by_ms: int | None = None
    expires_ms: int | None = None

    def answer(self, partition: TopicPartition) -> ExplainedRecord:
        """The record, of this partition."""
        record = self.found.record
        return ExplainedRecord(
            topic=partition.topic,
            partition=partition.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            segment=self.found.segment_base,
            state=self.state,
            superseded_by=self.superseded_by,
            delete_horizon_ms=self.found.delete_horizon_ms,
            expires_ms=self.expires_ms,
            text=self.text,
            gone_by_ms=self.gone_by_ms,
        )


def record_fate(
    explanation: LogExplanation,
    found: FoundRecord,
    newer: Sequence[int] = (),
    beaten: int | None = None,
) -> RecordFate:
    """The fate of a record.

    Args:
        explanation: of its log.
        found: the record.
        newer: the offsets of the records of its key that beat it (`winners`), the highest last.
        beaten: the offset of a newer record of its key that it beats (`beaten_newer`), if any.
    """
    by_retention = _by_retention(explanation, found.segment_base)
    if explanation.compaction is None:
        return _by_segment(explanation, found, RecordState.NOT_COMPACTED, by_retention, "")
    state = _state_of(explanation, found, newer)
    compacted = _Compacted(explanation, found, newer, beaten)
    by_compaction, text = compacted.fate(state)
    removal = compacted.removal()
    expires_ms = None if removal is None else removal[0]
    if removal is not None:
        by_compaction, text = compacted.with_removal(*removal, by_compaction, text)
    superseded_by = newer[-1] if state is RecordState.SUPERSEDED else None
    moments = [each for each in (by_compaction, by_retention) if each is not None]
    if not moments or by_compaction == min(moments):
        return RecordFate(
            found=found,
            state=state,
            text=text,
            superseded_by=superseded_by,
            gone_by_ms=by_compaction,
            expires_ms=expires_ms,
        )
    fate = _by_segment(explanation, found, state, by_retention, text)
    return RecordFate(
        found=found,
        state=state,
        text=fate.text,
        superseded_by=superseded_by,
        gone_by_ms=by_retention,
        expires_ms=expires_ms,
    )


def key_fates(explanation: LogExplanation, records: Sequence[FoundRecord]) -> list[RecordFate]:
    """The fate of each record of a key; `records` are all of them, in offset order."""
    view = explanation.facts.view
    compared = records, VersionRule.of(view.config), view.log_start_offset
    return [
        record_fate(explanation, *each)
        for each in zip(records, winners(*compared), beaten_newer(*compared), strict=True)
    ]


def winners(
    records: Sequence[FoundRecord], rule: VersionRule | None, log_start_offset: int
) -> list[list[int]]:
    """The offsets of the records that supersede each record of a key, the highest last.

    Those of aborted transactions beat none, nor does a version below the log start offset.

    Args:
        records: all of the key, in offset order.
        rule: what their versions are; None if the newer beats the older.
        log_start_offset: of the log.
    """
    live = _compared(records, rule, log_start_offset)
    return [[o[-1] for o in live if o > rank] for rank in (_rank(each, rule) for each in records)]


def beaten_newer(
    records: Sequence[FoundRecord], rule: VersionRule | None, log_start_offset: int
) -> list[int | None]:
    """The offset of the newest record that each record supersedes by its version, though older.

    A compaction that finds that one keeps a tombstone past its horizon. The arguments are those of
    `winners`.
    """
    live = _compared(records, rule, log_start_offset)
    ranks = [_rank(each, rule) for each in records]
    newer = [[o[-1] for o in live if o < rank and o[-1] > rank[-1]] for rank in ranks]
    return [max(each, default=None) for each in newer]


def _compared(
    records: Sequence[FoundRecord], rule: VersionRule | None, log_start_offset: int
) -> list[tuple[bool, int, int]]:
    """The ranks of the records that may beat another, ascending."""
    first = 0 if rule is None else log_start_offset
    return sorted(
        _rank(each, rule) for each in records if not each.is_aborted and each.record.offset >= first
    )


def _rank(found: FoundRecord, rule: VersionRule | None) -> tuple[bool, int, int]:
    version = None if rule is None else rule.version_of(found.record)
    return version is not None, version or 0, found.record.offset


def _by_retention(explanation: LogExplanation, base_offset: int) -> int | None:
    for fate in explanation.fates:
        if fate.segment.base_offset == base_offset:
            return explanation.gone_by_ms(fate)
    return None


def _by_segment(
    explanation: LogExplanation,
    found: FoundRecord,
    state: RecordState,
    gone_by_ms: int | None,
    before: str,
) -> RecordFate:
    fate = next(f for f in explanation.fates if f.segment.base_offset == found.segment_base)
    why = fate.text or (fate.blockers[0].text if fate.blockers else "")
    text = f"it goes with its segment: {why}" if gone_by_ms is not None else why
    return RecordFate(
        found=found,
        state=state,
        text=f"{before}; {text}" if before else text,
        gone_by_ms=gone_by_ms,
    )


def _state_of(explanation: LogExplanation, found: FoundRecord, newer: Sequence[int]) -> RecordState:
    if found.is_control:
        return RecordState.MARKER
    if found.is_aborted:
        return RecordState.ABORTED
    if found.record.key is None:
        return RecordState.UNKEYED
    view = explanation.facts.view
    if found.record.offset < view.log_start_offset and VersionRule.of(view.config) is not None:
        return RecordState.BELOW_START
    if newer:
        return RecordState.SUPERSEDED
    return RecordState.TOMBSTONE if found.is_tombstone else RecordState.NEWEST


class _Compacted:
    """Fate of one record under the compaction of its log."""

    def __init__(
        self,
        explanation: LogExplanation,
        found: FoundRecord,
        newer: Sequence[int],
        beaten: int | None,
    ) -> None:
        assert explanation.compaction is not None, "the log is compacted"
        self._explanation = explanation
        self._found = found
        self._newer = newer
        self._beaten = beaten
        view, cleanable = explanation.facts.view, explanation.compaction.cleanable
        self._first_dirty = cleanable.first_dirty
        # A segment that is dirty from the middle on is cleaned with the dirty ones.
        self._clean_end = view.floor(due_end(view, cleanable.first_dirty)).base_offset

    def fate(self, state: RecordState) -> tuple[int | None, str]:
        """(when it is gone at the latest, why)."""
        if state is RecordState.NEWEST:
            versions = VersionRule.of(self._explanation.facts.view.config)
            what = "the newest record" if versions is None else "the record of the highest version"
            return None, f"it is {what} of its key, which a compaction keeps"
        if state is RecordState.MARKER:
            return None, "a marker stays for as long as a record of its transaction is there"
        if state is RecordState.TOMBSTONE:
            return self._tombstone()
        if state is RecordState.SUPERSEDED:
            if VersionRule.of(self._explanation.facts.view.config) is not None:
                return self._lower_version()
            return self._superseded()
        why = {
            RecordState.BELOW_START: "it is below the log start offset, so a compaction, which "
            "compares the versions above, removes it",
            RecordState.UNKEYED: "it has no key, so a compaction removes it",
            RecordState.ABORTED: "its transaction was aborted, so a compaction removes it",
        }[state]
        return self._at_next(self._found.record.offset, why)

    def _lower_version(self) -> tuple[int | None, str]:
        """The fate of a record with one of a higher version, if that one is there by then."""
        why = f"the record at {self._newer[-1]} has the same key and a higher version"
        gone_ms, text = self._at_next(min(self._newer), why)
        # Segments go oldest first: the last of those that beat it stays the longest.
        last = max(self._newer)
        fates = reversed(self._explanation.fates)
        holder = next(fate for fate in fates if fate.segment.base_offset <= last)
        is_before = holder.segment.base_offset < self._found.segment_base
        if gone_ms is None or not is_before or holder.goes_ms is None or holder.goes_ms > gone_ms:
            return gone_ms, text
        return None, f"{why}, but retention may remove that one before a compaction compares them"

    def _superseded(self) -> tuple[int | None, str]:
        """The fate of a record with a newer one: only dirty ones are compared with the rest."""
        dirty = [offset for offset in self._newer if offset >= self._first_dirty]
        newer = dirty[0] if dirty else self._newer[-1]
        why = f"the record at {newer} has the same key and is newer"
        if dirty:
            return self._at_next(newer, why)
        return None, f"{why}, but that one is clean: only dirty records are compared with others"

    def _at_next(self, offset: int, why: str) -> tuple[int | None, str]:
        """The fate of a record that goes with a compaction that covers it and `offset`."""
        gone_ms = self._explanation.compacted_by_ms(max(offset, self._found.record.offset))
        if gone_ms is not None:
            return gone_ms, f"{why}; a compaction removes it"
        blockers = "; ".join(each.text for each in self._explanation.compaction_blockers())
        return None, f"{why}, but no compaction that reaches it is due: {blockers}"

    def _tombstone(self) -> tuple[int | None, str]:
        horizon_ms = self._found.delete_horizon_ms
        retention_ms = self._explanation.facts.view.config.delete_retention_ms
        if self._explanation.facts.view.config.cordwood_tombstone_cleanup:
            return self._idle_tombstone(horizon_ms, retention_ms)
        if horizon_ms is None:
            return None, (
                "it is a tombstone, the newest record of its key; the next compaction gives it a "
                f"delete horizon, delete.retention.ms {retention_ms} later, and one after that "
                "removes it"
            )
        if horizon_ms > self._explanation.now_ms:
            return None, (
                f"it is a tombstone whose delete horizon passes in "
                f"{horizon_ms - self._explanation.now_ms} ms; the first compaction after that "
                "removes it"
            )
        why = "it is a tombstone, and its delete horizon has passed"
        if self._beaten is not None:
            return None, (
                f"{why}, but it has beaten the newer record at {self._beaten}: it stays until a "
                "compaction finds that one gone"
            )
        return self._at_next(self._found.record.offset, why)

    def _idle_tombstone(self, horizon_ms: int | None, retention_ms: int) -> tuple[int | None, str]:
        """The fate of a tombstone with cordwood.tombstone.cleanup."""
        why = "it is a tombstone, the newest record of its key; the next compaction"
        if self._found.record.offset < self._clean_end:
            if horizon_ms is not None:
                return self._from(
                    horizon_ms,
                    f"it is a tombstone whose delete horizon is {horizon_ms}; the first check "
                    "after that removes it",
                )
            stamped_ms: int | None = self._explanation.now_ms
        else:
            stamped_ms, reason = self._at_next(self._found.record.offset, why)
            if stamped_ms is None:
                return None, reason
        assert stamped_ms is not None, "it is stamped by a compaction that comes"
        return self._from(
            stamped_ms + retention_ms,
            f"{why} gives it a delete horizon, delete.retention.ms {retention_ms} later, and the "
            "first check after that removes it",
        )

    def removal(self) -> tuple[int, RemovalRule] | None:
        """The moment (ms) at which a rule removes the record whatever its key, and the rule."""
        if self._found.is_control:
            return None
        rules = removal_rules(self._explanation.facts.view.config)
        moments = [(each.goes_ms(self._found.record), each) for each in rules]
        found = [(moment, each) for moment, each in moments if moment is not None]
        return min(found, key=lambda each: each[0], default=None)

    def with_removal(
        self, removed_ms: int, rule: RemovalRule, gone_ms: int | None, text: str
    ) -> tuple[int | None, str]:
        """The fate of a record that a rule removes, which has another without: the earlier."""
        moment, why = self._removed(removed_ms, rule)
        if gone_ms is not None and (moment is None or gone_ms <= moment):
            return gone_ms, text
        return moment, why

    def _removed(self, removed_ms: int, rule: RemovalRule) -> tuple[int | None, str]:
        explanation, offset = self._explanation, self._found.record.offset
        view = explanation.facts.view
        what = rule.text(removed_ms, explanation.now_ms)
        why = f"{what}; the first check after that removes it"
        if offset < self._clean_end:
            return self._from(removed_ms, why)
        segment = view.floor(offset)
        number = view.segments.index(segment)
        if view.next_base(number) > view.last_stable_offset:
            return None, f"{what}, but the last stable offset is {view.last_stable_offset}"
        # The dirty section is cleaned from its start: a lag of a segment before holds it back, too.
        before = view.values(min(self._first_dirty, offset), offset + 1)
        lags_end_ms = max(lag_ends_ms(each, view.config) for each in before)
        return self._from(max(removed_ms, lags_end_ms), why)

    def _from(self, moment_ms: int, why: str) -> tuple[int | None, str]:
        """The fate of a record that goes with the first check from a moment on."""
        explanation = self._explanation
        view = explanation.facts.view
        if view.holds:
            return None, hold_blocker(view.holds).text
        segment = view.floor(self._found.record.offset)
        moment_ms = max(moment_ms, lag_ends_ms(segment, view.config), explanation.now_ms)
        return explanation.removed_by_ms(moment_ms), why
