"""Verification of transactions (KIP-890), and what an entry keeps of its batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.batch_header import BatchHeader
from cordwood.format.control_record import ControlType, EndTxnMarker
from cordwood.format.record import increment_sequence
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.producers.producer_entry import BatchMetadata, ProducerStateEntry
from cordwood.storage.producers.producer_state import ProducerStateManager

PRODUCER = 1
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
INT32_MAX = (1 << 31) - 1
COMMIT = EndTxnMarker(control_type=ControlType.COMMIT, version=0, coordinator_epoch=0)


@pytest.fixture
def state(tmp_path: Path) -> ProducerStateManager:
    return ProducerStateManager(TopicPartition("test", 0), tmp_path)


def data(
    sequence: int, offset: int = 0, *, epoch: int = 0, count: int = 1, transactional: bool = True
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=60,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0x10 * transactional,
        last_offset_delta=count - 1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        records_count=count,
    )


def control(offset: int, *, epoch: int = 0) -> BatchHeader:
    return data(-1, offset, epoch=epoch)._replace(attributes=0x30)


def append(state: ProducerStateManager, header: BatchHeader) -> None:
    origin = AppendOrigin.COORDINATOR if header.is_control else AppendOrigin.CLIENT
    info = state.prepare_update(PRODUCER, origin)
    completed = info.append(header, COMMIT if header.is_control else None)
    state.update(info)
    if completed is not None:
        state.complete_transaction(completed)


# ---- verification


def test_a_verification_is_begun_once_and_gone_when_cleared(state: ProducerStateManager) -> None:
    first = state.verifications.create(PRODUCER, 0, 0, now_ms=NOW_MS)
    again = state.verifications.create(PRODUCER, 0, 0, now_ms=NOW_MS + 1)
    assert again.guard is first.guard
    assert state.verifications.get(PRODUCER) is first
    assert first.timestamp == NOW_MS
    state.verifications.remove(PRODUCER)
    assert state.verifications.get(PRODUCER) is None
    state.verifications.remove(PRODUCER)


def test_a_verification_is_over_when_the_transaction_has_data(
    state: ProducerStateManager,
) -> None:
    append(state, data(0, transactional=False))
    found = state.verifications.create(PRODUCER, 2, 0, now_ms=NOW_MS)
    append(state, data(1, 1, transactional=False))
    seen = [state.verifications.get(PRODUCER)]
    append(state, data(2, 2))
    assert [*seen, state.verifications.get(PRODUCER)] == [found, None]


def test_a_verification_is_over_when_the_transaction_ends(state: ProducerStateManager) -> None:
    state.verifications.create(PRODUCER, 0, 0, now_ms=NOW_MS, supports_epoch_bump=False)
    append(state, control(0))
    assert state.verifications.get(PRODUCER) is None


def test_the_next_transactions_verification_outlasts_the_marker_of_the_one_before(
    state: ProducerStateManager,
) -> None:
    append(state, data(0))
    state.verifications.create(PRODUCER, 0, 1, now_ms=NOW_MS)
    append(state, control(1, epoch=1))
    assert state.verifications.get(PRODUCER) is not None


def test_the_lowest_sequence_of_the_highest_epoch_counts(state: ProducerStateManager) -> None:
    seen = []
    for sequence, epoch in ((1, 0), (0, 0), (5, 0), (2, 1), (0, 0)):
        found = state.verifications.create(PRODUCER, sequence, epoch, now_ms=NOW_MS)
        seen.append((found.lowest_sequence, found.producer_epoch))
    assert seen == [(1, 0), (0, 0), (0, 0), (2, 1), (2, 1)]


@pytest.mark.parametrize("verify", [True, False])
def test_a_sequence_above_the_lowest_seen_is_out_of_order(
    state: ProducerStateManager, *, verify: bool
) -> None:
    state.verifications.is_required = verify
    found = state.verifications.create(PRODUCER, 0, 0, now_ms=NOW_MS, supports_epoch_bump=False)
    with pytest.raises(
        OutOfOrderSequenceError,
        match=r"^Out of order sequence number for producer 1 at offset 0 in partition test-0: "
        r"4 \(incoming seq. number\), 0 \(earliest seen sequence\)$",
    ):
        append(state, data(4))
    assert state.verifications.get(PRODUCER) is found


def test_an_unknown_producer_with_epochs_for_transactions_begins_at_0(
    state: ProducerStateManager,
) -> None:
    state.verifications.create(PRODUCER, 3, 0, now_ms=NOW_MS)
    with pytest.raises(
        OutOfOrderSequenceError,
        match=r"^Invalid sequence number for producer 1 at offset 0 in partition test-0: "
        r"3 \(incoming seq. number\). Expected sequence 0 for transactions v2 idempotent "
        r"producer with no existing state.$",
    ):
        append(state, data(3))
    append(state, data(0))
    assert state.verifications.has_ongoing_transaction(PRODUCER, 0)
    assert not state.verifications.has_ongoing_transaction(PRODUCER, 1)


def test_a_verification_expires(state: ProducerStateManager) -> None:
    found = state.verifications.create(PRODUCER, 0, 0, now_ms=NOW_MS)
    state.remove_expired(NOW_MS + DAY_MS // 2)
    seen = [state.verifications.get(PRODUCER)]
    state.remove_expired(NOW_MS + DAY_MS)
    assert [*seen, state.verifications.get(PRODUCER)] == [found, None]


def test_a_transaction_that_is_under_way_needs_no_guard(state: ProducerStateManager) -> None:
    state.verifications.is_required = True
    append(state, data(0))
    assert state.verifications.maybe_start(PRODUCER, 1, 0, now_ms=NOW_MS) is None
    state.verifications.require_verified(data(1, 1), AppendOrigin.CLIENT, None)


def test_a_transaction_is_begun_with_its_guard_alone(state: ProducerStateManager) -> None:
    state.verifications.is_required = True
    with pytest.raises(
        InvalidTxnStateError, match=r"^Record was not part of an ongoing transaction$"
    ):
        state.verifications.require_verified(data(0), AppendOrigin.CLIENT, None)
    guard = state.verifications.maybe_start(PRODUCER, 0, 0, now_ms=NOW_MS)
    other = state.verifications.maybe_start(PRODUCER + 1, 0, 0, now_ms=NOW_MS)
    assert guard is not None
    assert other is not None
    for wrong in (None, other):
        with pytest.raises(InvalidTxnStateError):
            state.verifications.require_verified(data(0), AppendOrigin.CLIENT, wrong)
    state.verifications.require_verified(data(0), AppendOrigin.CLIENT, guard)
    state.verifications.remove(PRODUCER)
    with pytest.raises(InvalidTxnStateError):
        state.verifications.require_verified(data(0), AppendOrigin.CLIENT, guard)


@pytest.mark.parametrize(
    ("header", "origin", "verify"),
    [
        (data(0), AppendOrigin.REPLICATION, True),
        (data(0), AppendOrigin.RAFT_LEADER, True),
        (data(0, transactional=False), AppendOrigin.CLIENT, True),
        (control(0), AppendOrigin.COORDINATOR, True),
        (data(0), AppendOrigin.CLIENT, False),
    ],
)
def test_what_needs_no_verification(
    state: ProducerStateManager, header: BatchHeader, origin: AppendOrigin, *, verify: bool
) -> None:
    state.verifications.is_required = verify
    state.verifications.require_verified(header, origin, None)
    assert state.verifications.get(PRODUCER) is None


def test_an_epoch_of_the_past_is_refused_before_a_transaction_begins(
    state: ProducerStateManager,
) -> None:
    append(state, data(0, epoch=3, transactional=False))
    text = "^Epoch of producer 1 is 2, which is smaller than the last seen epoch 3$"
    with pytest.raises(InvalidProducerEpochError, match=text):
        state.verifications.maybe_start(PRODUCER, 0, 2, now_ms=NOW_MS)
    with pytest.raises(InvalidProducerEpochError, match=text):
        state.verifications.require_verified(data(0, epoch=2), AppendOrigin.CLIENT, None)
    assert state.verifications.get(PRODUCER) is None


# ---- entries


@given(st.integers(0, INT32_MAX), st.integers(0, INT32_MAX), st.integers(0, 1 << 40))
def test_the_first_sequence_follows_from_the_last(first: int, delta: int, offset: int) -> None:
    batch = BatchMetadata(increment_sequence(first, delta), offset + delta, delta, NOW_MS)
    assert batch.first_sequence == first
    assert batch.first_offset == offset


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=30))
def test_an_entry_keeps_the_last_five_batches_of_its_epoch(
    steps: list[tuple[int, bool]],
) -> None:
    entry = ProducerStateEntry(PRODUCER)
    expected: list[tuple[int, BatchMetadata]] = []
    for number, (epoch, is_marker) in enumerate(steps):
        if is_marker:
            entry.end_transaction(epoch, 0, NOW_MS + number)
            expected = [found for found in expected if found[0] == epoch]
        else:
            batch = BatchMetadata(number, number, 0, NOW_MS + number)
            entry.add_batch(epoch, batch)
            expected = [*(found for found in expected if found[0] == epoch), (epoch, batch)][-5:]
        assert entry.producer_epoch == epoch
        assert entry.last_timestamp == NOW_MS + number
        assert entry.batches == tuple(batch for _, batch in expected)


@given(st.lists(st.lists(st.integers(0, 1), max_size=8), max_size=6))
def test_many_batches_in_one_append_are_as_many_appends(
    tmp_path_factory: pytest.TempPathFactory, appends: list[list[int]]
) -> None:
    directory = tmp_path_factory.mktemp("producers")
    together = ProducerStateManager(TopicPartition("test", 0), directory)
    apart = ProducerStateManager(TopicPartition("test", 0), directory)
    offset = epoch = 0
    for bumps in appends:
        info = together.prepare_update(PRODUCER, AppendOrigin.REPLICATION)
        for bump in bumps:
            epoch += bump
            header = data(offset, offset, epoch=epoch, transactional=False)
            info.append(header)
            apart.replay(header)
            offset += 1
        if bumps:
            together.update(info)
    one, other = together.last_entry(PRODUCER), apart.last_entry(PRODUCER)
    assert repr(one) == repr(other)


def test_an_entry_shows_itself_in_kafkas_words() -> None:
    entry = ProducerStateEntry(7, 2, 1, 99, None, (BatchMetadata(5, 6, 0, 99),))
    assert repr(entry) == (
        "ProducerStateEntry(producerId=7, producerEpoch=2, currentTxnFirstOffset=None, "
        "coordinatorEpoch=1, lastTimestamp=99, batches=[BatchMetadata(last_sequence=5, "
        "last_offset=6, offset_delta=0, timestamp=99)])"
    )
