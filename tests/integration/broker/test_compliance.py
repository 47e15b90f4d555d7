"""Ages of records when retention removes them, by a simulation of a month.

A record goes with its segment: the youngest of a segment decides, the oldest waits for it. With
segment.ms S and retention.ms R a record is between R and R + S old, and a retention check.
"""

from __future__ import annotations

import asyncio

import pytest

from cordwood.broker.broker import Broker
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.clock import MovableClock
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine

_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_CHECK = 5 * _MINUTE
_DAYS = 24
_NEVER = str(20 * _DAY)

# Checkpoints bear on nothing here, and each syncs a file.
_QUIET = {
    "replica.high.watermark.checkpoint.interval.ms": _NEVER,
    "log.flush.offset.checkpoint.interval.ms": _NEVER,
    "log.flush.start.offset.checkpoint.interval.ms": _NEVER,
    "offsets.retention.check.interval.ms": _NEVER,
}


class Still(MovableClock):
    """Moves when it is moved, and not by itself: the machine's speed has no part in ages."""

    def __init__(self) -> None:
        super().__init__()
        self._begun_ms = super().now_ms()
        self._begun_s = super().monotonic_s()

    def now_ms(self) -> int:
        return self._begun_ms + self.ahead_ms

    def monotonic_s(self) -> float:
        return self._begun_s + self.ahead_ms / 1000


@pytest.mark.parametrize(
    ("segment_ms", "retention_ms", "youngest_ms", "oldest_ms"),
    [
        (6 * _DAY, _DAY - _CHECK, _DAY, 7 * _DAY),
        (_DAY, 6 * _DAY - _CHECK, 6 * _DAY, 7 * _DAY),
    ],
    ids=["6 days and 23 h 55 min", "1 day and 5 days 23 h 55 min"],
)
def test_records_are_deleted_at_the_ages_that_the_settings_promise(
    segment_ms: int, retention_ms: int, youngest_ms: int, oldest_ms: int
) -> None:
    properties = {
        **_QUIET,
        "log.roll.ms": str(segment_ms),
        "log.retention.ms": str(retention_ms),
        "log.retention.check.interval.ms": str(_CHECK),
    }
    written: list[int] = []
    ages: list[int] = []
    with RunningBroker(properties, clock=Still(), engine=NoEngine) as running:
        created = asyncio.run_coroutine_threadsafe(
            running.broker.topic_creation.create(["steady"]), running.broker.thread.loop
        )
        assert created.result(120) == [None]

        def write(broker: Broker) -> None:
            now_ms = running.clock.now_ms()
            broker.replicas.append(
                "steady", 0, build_batch([Record(0, now_ms, None, b"x")], base_offset=0)
            )
            written.append(now_ms)

        for step in range(_DAYS * _DAY // _CHECK):
            if step % (_HOUR // _CHECK) == 0:
                running.call(write)
            running.advance(compact=False, milliseconds=_CHECK)
            start = running.call(lambda broker: broker.replicas.log("steady", 0).log_start_offset)
            now_ms = running.clock.now_ms()
            ages += [now_ms - each for each in written[len(ages) : start]]
    assert len(ages) > 24 * (_DAYS - 10), "hardly anything was deleted"
    assert youngest_ms - _CHECK <= min(ages) <= youngest_ms
    assert oldest_ms - _HOUR - _CHECK <= max(ages) <= oldest_ms
