"""The transaction tracker, against Kafka's own sequential bookkeeping."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.rules.transactions import TransactionSummary, TransactionTracker
from cordwood.format.control_record import ControlType
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.testing.reference_cleaner import SequentialTransactions


@dataclass(frozen=True)
class Event:
    """A transactional data batch, a control batch (with its type) or an emptied one (None)."""

    producer_id: int
    base_offset: int
    last_offset: int
    control: bool = False
    kind: ControlType | None = None


def aborted(producer_id: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(
        producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=last + 1
    )


def history(seed: int) -> tuple[list[Event], list[AbortedTransaction]]:
    """Interleaved transactions; some batches are missing, as a cleaning leaves them."""
    rng = random.Random(seed)
    events: list[Event] = []
    index: list[AbortedTransaction] = []
    running: dict[int, int] = {}
    offset = rng.randint(0, 5)
    for _ in range(rng.randint(1, 60)):
        producer_id = rng.randrange(4)
        if rng.random() < 0.65:
            last = offset + rng.randint(0, 4)
            running.setdefault(producer_id, offset)
            if rng.random() < 0.8:
                events.append(Event(producer_id, offset, last))
            offset = last + rng.randint(1, 3)
            continue
        kind = rng.choice([ControlType.ABORT, ControlType.COMMIT, ControlType.LEADER_CHANGE])
        first = running.get(producer_id)
        if rng.random() < 0.1 and first is None:
            events.append(Event(producer_id, offset, offset, control=True))
        else:
            events.append(Event(producer_id, offset, offset, control=True, kind=kind))
            if kind is not ControlType.LEADER_CHANGE:
                running.pop(producer_id, None)
            if kind is ControlType.ABORT and first is not None:
                index.append(aborted(producer_id, first, offset))
        offset += rng.randint(1, 3)
    return events, index


def verdict_of(tracker: TransactionTracker, event: Event) -> bool:
    if event.control:
        return tracker.control_batch(event.producer_id, event.last_offset, event.kind)
    return tracker.data_batch(event.producer_id, event.base_offset, event.last_offset)


def reference_verdict(tracker: SequentialTransactions, event: Event) -> bool:
    if event.control:
        return tracker.control_batch(event.producer_id, event.last_offset, event.kind)
    return tracker.data_batch(event.producer_id, event.last_offset, transactional=True)


def by_reference(
    events: list[Event], index: list[AbortedTransaction]
) -> tuple[list[bool], list[AbortedTransaction]]:
    tracker = SequentialTransactions()
    tracker.add(index)
    return [reference_verdict(tracker, event) for event in events], tracker.kept_aborted


def travelled(summary: TransactionSummary) -> TransactionSummary:
    """A summary as it comes out of a manifest or of another task."""
    return TransactionSummary.from_json(json.loads(json.dumps(summary.to_json())))


@given(st.integers(0, 2**40))
def test_verdicts_are_those_of_kafkas_sequential_bookkeeping(seed: int) -> None:
    events, index = history(seed)
    verdicts, kept = by_reference(events, index)
    tracker = TransactionTracker(AbortedTransactions(index))
    assert [verdict_of(tracker, event) for event in events] == verdicts
    assert tracker.kept_aborted == kept


@given(seed=st.integers(0, 2**40), data=st.data())
def test_a_tracker_started_at_any_batch_goes_on_from_the_summaries_before_it(
    seed: int, data: st.DataObject
) -> None:
    events, index = history(seed)
    verdicts, kept = by_reference(events, index)
    cuts = data.draw(st.lists(st.integers(0, len(events)), max_size=4).map(sorted))
    found: list[bool] = []
    found_kept: list[AbortedTransaction] = []
    before = TransactionSummary()
    for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        # Each stretch is walked twice: alone, for its summary, then from the summaries before it.
        alone = TransactionTracker(AbortedTransactions(index))
        for event in events[start:end]:
            verdict_of(alone, event)
        tracker = TransactionTracker(AbortedTransactions(index), before)
        found += [verdict_of(tracker, event) for event in events[start:end]]
        found_kept += tracker.kept_aborted
        before = travelled(before.followed_by(alone.summary))
        assert before == travelled(tracker.summary)
    assert found == verdicts
    assert found_kept == kept


@given(st.integers(0, 2**40))
def test_entries_met_twice_count_once(seed: int) -> None:
    events, index = history(seed)
    tracker = TransactionTracker(AbortedTransactions([*index, *index]))
    assert [verdict_of(tracker, event) for event in events] == by_reference(events, index)[0]


def test_abort_marker_stays_while_a_batch_of_its_transaction_is_seen() -> None:
    entry = aborted(1, 0, 5)
    tracker = TransactionTracker(AbortedTransactions([entry]))
    assert tracker.data_batch(1, 0, 2)
    assert not tracker.control_batch(1, 5, ControlType.ABORT)
    assert tracker.kept_aborted == [entry]


def test_abort_marker_may_go_when_no_batch_of_its_transaction_is_left() -> None:
    tracker = TransactionTracker(AbortedTransactions([aborted(1, 0, 5)]))
    assert tracker.control_batch(1, 5, ControlType.ABORT)
    assert tracker.kept_aborted == []


def test_commit_marker_counts_the_batches_since_the_marker_before_it() -> None:
    tracker = TransactionTracker(AbortedTransactions([]))
    assert not tracker.data_batch(1, 0, 2)
    assert not tracker.control_batch(1, 3, ControlType.COMMIT)
    assert tracker.control_batch(1, 4, ControlType.COMMIT)


def test_marker_of_another_kind_always_stays() -> None:
    tracker = TransactionTracker(AbortedTransactions([]))
    assert not tracker.control_batch(1, 3, ControlType.LEADER_CHANGE)


def test_emptied_marker_may_always_go() -> None:
    tracker = TransactionTracker(AbortedTransactions([]))
    assert tracker.control_batch(1, 3, None)
