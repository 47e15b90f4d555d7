from __future__ import annotations

from cordwood.format.producer_snapshot import ProducerEntry
from cordwood.surfaces.dump.snapshots import entry_text, first_sequence


def entry(last_sequence: int, offset_delta: int) -> ProducerEntry:
    return ProducerEntry(
        producer_id=1,
        producer_epoch=0,
        last_sequence=last_sequence,
        last_offset=9,
        offset_delta=offset_delta,
    )


def test_the_first_sequence_may_lie_before_the_wrap() -> None:
    assert first_sequence(entry(5, 3)) == 2
    assert first_sequence(entry(0, 1)) == (1 << 31) - 1


def test_a_producer_without_a_batch_has_a_shorter_line() -> None:
    assert entry_text(ProducerEntry(producer_id=1, producer_epoch=0)).endswith("lastTimestamp: -1")
    assert "lastOffset: 9" in entry_text(entry(5, 3))
