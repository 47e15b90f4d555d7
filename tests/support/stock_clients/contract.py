"""Contract of every stock client with a broker: one table of checks.

Role: `CHECKS` by name; `checks_for` is what a given client takes part in. A check gets a `Bench`:
the client under check, and the neutral client that sets the stage and reads everything again.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from support.kafka import poll_until
from support.stock_clients.base import (
    CODECS,
    READ_SECONDS_MAX,
    Codec,
    NoOffsetError,
    Start,
    StockClient,
    StockRecord,
    TopicExistsError,
)
from support.stock_clients.neutral import Neutral, now_ms

HOUR_MS: Final = 3_600_000
BIG_BYTES: Final = 5 * 2**20
SMALL_FETCH_BYTES: Final = 1024
_LONG_AGO_MS: Final = 1_600_000_000_000
#: Records 0 to 9, of which the log start has passed all below.
_COUNT: Final = 10
_LOG_START: Final = 6
_PASSED: Final = 2


@dataclass
class Bench:
    """A client under check, the neutral one, and the name of the check."""

    client: StockClient
    neutral: Neutral
    check: str

    def round_trip(
        self,
        records: Sequence[StockRecord],
        *,
        codec: Codec = "none",
        configs: Mapping[str, str] | None = None,
        max_bytes: int = 1_000_000,
        fetch_bytes: int | None = None,
    ) -> None:
        """Both clients write the records and read what both wrote."""
        topic = self.neutral.topic(configs)
        wanted = list(records)
        if self.check not in self.client.cannot_write:
            self.client.produce(topic, records, codec=codec, max_bytes=max_bytes)
            wanted += records
            stored = self.neutral.stored_codecs(topic, len(records))
            # Some clients leave a batch as it is that would not become smaller.
            assert codec in stored <= {codec, "none"}
        self.neutral.write(topic, records, codec=codec, max_bytes=max_bytes)
        read = self.client.consume(topic, Start("offset", 0), len(wanted), fetch_bytes=fetch_bytes)
        seen = self.neutral.read(topic, len(wanted))
        assert [r.offset for r in read] == list(range(len(wanted)))
        assert_same_records(read, seen)
        assert_same_records(
            [
                record._replace(offset=-1, timestamp=record.timestamp if told.timestamp else None)
                for record, told in zip(seen, wanted, strict=True)
            ],
            wanted,
        )


def assert_same_records(found: Sequence[StockRecord], wanted: Sequence[StockRecord]) -> None:
    """Compares records; a record of megabytes is not printed."""
    assert [_short(record) for record in found] == [_short(record) for record in wanted]
    assert list(found) == list(wanted), "they differ beyond the first bytes"


def _short(record: StockRecord) -> StockRecord:
    value = record.value
    if value is not None and len(value) > 200:
        value = value[:100] + b"... %d bytes" % len(value)
    return record._replace(value=value)


def numbered(count: int, *, first: int = 0, timestamp: int | None = None) -> list[StockRecord]:
    """Records k-0/v-0, k-1/v-1 and so on; the given timestamp is of the first, 1 s to the next."""
    return [
        StockRecord(
            key=b"k-%d" % number,
            value=b"v-%d" % number,
            timestamp=None if timestamp is None else timestamp + 1000 * (number - first),
        )
        for number in range(first, first + count)
    ]


def _codec(bench: Bench, codec: Codec) -> None:
    rng = random.Random(7)  # noqa: S311
    words = [b"ash", b"birch", b"cedar", b"oak"]
    bench.round_trip(
        [
            StockRecord(
                key=b"key-%d" % (number % 7),
                value=b" ".join(rng.choice(words) for _ in range(rng.randrange(200))),
                headers=(("kind", b"wood"),),
            )
            for number in range(100)
        ],
        codec=codec,
    )


def _headers(bench: Bench) -> None:
    every = (
        ("plain", b"value"),
        ("empty", b""),
        ("twice", b"first"),
        ("twice", b"second"),
        ("größe", "höhe".encode()),
    )
    bench.round_trip(
        [
            StockRecord(b"all", b"of them", every),
            StockRecord(b"no", b"headers"),
            *(StockRecord(b"one", b"header", (header,)) for header in every),
        ]
    )


def _null_headers(bench: Bench) -> None:
    mixed = (("none", None), ("none", b""), ("none", None), ("plain", b"value"))
    bench.round_trip([StockRecord(b"all", b"of them", mixed), StockRecord(b"k", b"v", mixed[:1])])


def _nulls(bench: Bench) -> None:
    pairs = [(None, b"v"), (b"k", None), (b"k", b""), (b"", b"v"), (b"", b""), (b"k", b"v")]
    bench.round_trip([StockRecord(*pair) for pair in pairs])


def _null_beside_empty(bench: Bench) -> None:
    bench.round_trip([StockRecord(None, b""), StockRecord(b"", None), *numbered(1)])


def _null_key_and_value(bench: Bench) -> None:
    bench.round_trip([*numbered(1), StockRecord(None, None), *numbered(1, first=1)])


def _bytes(bench: Bench) -> None:
    every = bytes(range(256))
    bench.round_trip([StockRecord(every, every[::-1], (("bytes", every),)), *numbered(2)])


def _timestamps(bench: Bench) -> None:
    now = now_ms()
    # The times a client wrote need not be in order; a broker takes up to an hour of the future.
    times = [1, _LONG_AGO_MS, now, _LONG_AGO_MS - 1, now + HOUR_MS // 2, 86_400_000]
    bench.round_trip([StockRecord(b"k", b"v-%d" % time, timestamp=time) for time in times])


def _big(bench: Bench) -> None:
    rng = random.Random(5)  # noqa: S311
    big = rng.randbytes(BIG_BYTES // 2).hex().encode()
    bench.round_trip(
        [*numbered(2), StockRecord(b"big", big), *numbered(2, first=2)],
        configs={"max.message.bytes": str(BIG_BYTES + 2**16)},
        max_bytes=BIG_BYTES + 2**16,
        fetch_bytes=SMALL_FETCH_BYTES,
    )


def _topic_with_passed_records(bench: Bench) -> str:
    topic = bench.neutral.topic()
    bench.neutral.write(topic, numbered(_COUNT))
    bench.neutral.delete_records(topic, _LOG_START)
    return topic


def _reset_earliest(bench: Bench, position: int) -> None:
    topic = _topic_with_passed_records(bench)
    wanted = bench.neutral.read(topic, _COUNT - _LOG_START, start=_LOG_START)
    assert [record.offset for record in wanted] == list(range(_LOG_START, _COUNT))
    start = Start("offset", position)
    assert bench.client.consume(topic, start, len(wanted), reset="earliest") == wanted


def _reset_latest(bench: Bench) -> None:
    topic = _topic_with_passed_records(bench)
    with bench.neutral.ticking(topic):
        poll_until(
            lambda: bench.neutral.end_offset(topic) > _COUNT + 2,
            timeout_s=READ_SECONDS_MAX,
            what="records come in",
        )
        before = bench.neutral.end_offset(topic)
        read = bench.client.consume(topic, Start("offset", _PASSED), 2, reset="latest")
    _assert_from_the_end(read, before)


def _reset_none(bench: Bench) -> None:
    topic = _topic_with_passed_records(bench)
    with pytest.raises(NoOffsetError):
        bench.client.consume(topic, Start("offset", _PASSED), 1, reset="none")


def _reset_by_duration(bench: Bench) -> None:
    topic = bench.neutral.topic()
    now = now_ms()
    for hours_ago in (9, 8, 7, 6, 5, 4, 3, 2, 1):
        bench.neutral.write(topic, [StockRecord(b"k", b"v", timestamp=now - hours_ago * HOUR_MS)])
    bench.neutral.delete_records(topic, _LOG_START)
    # Records 6, 7 and 8 are left: of three, two and one hours ago.
    for duration, first in (("PT2H30M", 7), ("P2D", 6)):
        start = Start("offset", _PASSED)
        read = bench.client.consume(topic, start, 9 - first, reset=f"by_duration:{duration}")
        assert [record.offset for record in read] == list(range(first, 9))


def _retention(bench: Bench) -> None:
    # Kafka rolls and deletes even the active segment once its newest record is too old.
    topic = bench.neutral.topic({"retention.ms": str(HOUR_MS), "file.delete.delay.ms": "100"})
    bench.neutral.write(topic, numbered(5, timestamp=_LONG_AGO_MS))
    poll_until(
        lambda: bench.neutral.start_offset(topic) == 5,
        timeout_s=READ_SECONDS_MAX,
        what="retention deletes the old records",
    )
    bench.neutral.write(topic, numbered(3, first=5))
    read = bench.client.consume(topic, Start("offset", _PASSED), 3, reset="earliest")
    assert [(record.offset, record.value) for record in read] == [
        (5, b"v-5"),
        (6, b"v-6"),
        (7, b"v-7"),
    ]


def _start_from_now(bench: Bench) -> None:
    topic = bench.neutral.topic()
    bench.neutral.write(topic, numbered(3))
    with bench.neutral.ticking(topic):
        poll_until(
            lambda: bench.neutral.end_offset(topic) > 5,
            timeout_s=READ_SECONDS_MAX,
            what="records come in",
        )
        before = bench.neutral.end_offset(topic)
        read = bench.client.consume(topic, Start("latest"), 2)
    _assert_from_the_end(read, before)


def _assert_from_the_end(read: Sequence[StockRecord], end: int) -> None:
    assert [record.value for record in read] == [b"tick"] * 2
    assert read[0].offset >= end
    assert read[1].offset == read[0].offset + 1


def _start_from_earliest(bench: Bench) -> None:
    topic = _topic_with_passed_records(bench)
    read = bench.client.consume(topic, Start("earliest"), _COUNT - _LOG_START)
    assert [record.offset for record in read] == list(range(_LOG_START, _COUNT))


def _start_from_timestamp(bench: Bench) -> None:
    topic = bench.neutral.topic()
    bench.neutral.write(topic, numbered(5, timestamp=_LONG_AGO_MS))
    bench.neutral.write(topic, numbered(5, first=5, timestamp=_LONG_AGO_MS + 5000))
    for timestamp, first in (
        (_LONG_AGO_MS - 1, 0),
        (_LONG_AGO_MS + 3000, 3),
        (_LONG_AGO_MS + 6001, 7),
        (_LONG_AGO_MS + 9000, 9),
    ):
        read = bench.client.consume(topic, Start("timestamp", timestamp), 10 - first)
        assert [record.offset for record in read] == list(range(first, 10)), timestamp


def _idempotent(bench: Bench) -> None:
    topic = bench.neutral.topic()
    # Two producers one after the other: each gets a producer id, and starts from sequence 0.
    bench.client.produce(topic, numbered(300), idempotent=True)
    bench.client.produce(topic, numbered(300, first=300), codec="gzip", idempotent=True)
    read = bench.neutral.read(topic, 600)
    assert [record.value for record in read] == [b"v-%d" % number for number in range(600)]
    assert bench.neutral.end_offset(topic) == 600


def _auto_create(bench: Bench) -> None:
    topic = f"stock-{uuid.uuid4().hex[:12]}"
    bench.client.produce(topic, numbered(3))
    assert [record.value for record in bench.neutral.read(topic, 3)] == [b"v-0", b"v-1", b"v-2"]


def _append_time(bench: Bench) -> None:
    topic = bench.neutral.topic({"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    bench.client.produce(topic, numbered(3, timestamp=_LONG_AGO_MS), codec="gzip")
    bench.neutral.write(topic, numbered(3, first=3, timestamp=_LONG_AGO_MS))
    read = bench.client.consume(topic, Start("timestamp", before), 6)
    assert read == bench.neutral.read(topic, 6)
    assert all(before <= (record.timestamp or 0) <= now_ms() for record in read)


def _many_segments(bench: Bench) -> None:
    topic = bench.neutral.topic({"segment.bytes": str(2**20)})
    rng = random.Random(3)  # noqa: S311
    records = [
        StockRecord(b"%d" % number, rng.randbytes(600).hex().encode()) for number in range(3000)
    ]
    for first in range(0, len(records), 500):
        writer = bench.neutral.write if first % 1000 else bench.client.produce
        writer(topic, records[first : first + 500])
    read = bench.client.consume(topic, Start("earliest"), len(records))
    assert [record.offset for record in read] == list(range(len(records)))
    assert [record[:2] for record in read] == [record[:2] for record in records]


def _too_large(bench: Bench) -> None:
    topic = bench.neutral.topic({"max.message.bytes": "2000"})
    rng = random.Random(4)  # noqa: S311
    with pytest.raises(Exception, match=r"(?i)larger|large|size"):
        bench.client.produce(topic, [StockRecord(b"k", rng.randbytes(3000).hex().encode())])
    bench.client.produce(topic, numbered(1))
    assert [record.offset for record in bench.neutral.read(topic, 1)] == [0]


def _admin(bench: Bench) -> None:
    topic = f"stock-{uuid.uuid4().hex[:12]}"
    configs = {"retention.ms": "123456", "cleanup.policy": "compact"}
    bench.client.create_topic(topic, 3, configs)
    poll_until(
        lambda: bench.neutral.has_topic(topic), timeout_s=READ_SECONDS_MAX, what="it is there"
    )
    with pytest.raises(TopicExistsError):
        bench.client.create_topic(topic, 3, configs)
    partitions, described = bench.client.describe_topic(topic)
    assert partitions == 3
    assert {name: described[name] for name in configs} == configs
    assert described["max.message.bytes"] == "1048588"
    bench.client.delete_topic(topic)
    poll_until(
        lambda: not bench.neutral.has_topic(topic), timeout_s=READ_SECONDS_MAX, what="it is gone"
    )


def _assert_type_of(bench: Bench, group: str) -> None:
    """The group, now without members, was one of the client's protocol."""
    assert bench.neutral.group_type(group) == bench.client.group_protocol


def _group(bench: Bench) -> None:
    topic, group = bench.neutral.topic(), f"group-{uuid.uuid4().hex[:12]}"
    bench.neutral.write(topic, numbered(9))
    offsets = []
    for count, committed in ((4, 4), (3, 7), (2, 9)):
        read = bench.client.consume_group(topic, group, count)
        offsets += [record.offset for record in read]
        assert bench.neutral.committed(group, topic) == committed
        _assert_type_of(bench, group)
    assert offsets == list(range(9))


def _group_of_two(bench: Bench, *, other: str) -> None:
    topic, group = bench.neutral.topic(partitions=2), f"group-{uuid.uuid4().hex[:12]}"
    with (
        bench.neutral.ticking(topic, partitions=2),
        bench.neutral.member(topic, group, other) as held,
    ):

        def all_held() -> bool:
            return held() == {0, 1}

        poll_until(all_held, timeout_s=READ_SECONDS_MAX, what="a member alone has all")
        read = bench.client.consume_group(topic, group, 20)
        # Two members, two partitions: each has one.
        [partition] = {record.partition for record in read}
        first = read[0].offset
        assert [record.offset for record in read] == list(range(first, first + 20))
        assert bench.neutral.committed(group, topic, partition) == first + 20
        poll_until(all_held, timeout_s=READ_SECONDS_MAX, what="the one that stays has all again")
        assert bench.neutral.group_type(group) == other


def _group_reset_earliest(bench: Bench) -> None:
    topic, group = _topic_with_passed_records(bench), f"group-{uuid.uuid4().hex[:12]}"
    bench.neutral.commit(group, topic, _PASSED)
    read = bench.client.consume_group(topic, group, _COUNT - _LOG_START, reset="earliest")
    assert [record.offset for record in read] == list(range(_LOG_START, _COUNT))
    assert bench.neutral.committed(group, topic) == _COUNT
    _assert_type_of(bench, group)


def _group_reset_latest(bench: Bench) -> None:
    topic, group = _topic_with_passed_records(bench), f"group-{uuid.uuid4().hex[:12]}"
    bench.neutral.commit(group, topic, _PASSED)
    with bench.neutral.ticking(topic):
        read = bench.client.consume_group(topic, group, 2, reset="latest")
    _assert_from_the_end(read, _COUNT)
    assert bench.neutral.committed(group, topic) == read[-1].offset + 1
    _assert_type_of(bench, group)


def _group_reset_none(bench: Bench) -> None:
    topic, group = _topic_with_passed_records(bench), f"group-{uuid.uuid4().hex[:12]}"
    with pytest.raises(NoOffsetError):
        bench.client.consume_group(topic, group, 1, reset="none")
    _assert_type_of(bench, group)


CHECKS: Final[Mapping[str, Callable[[Bench], None]]] = {
    **{f"codec_{codec}": partial(_codec, codec=codec) for codec in CODECS},
    "headers": _headers,
    "null_headers": _null_headers,
    "nulls": _nulls,
    "null_beside_empty": _null_beside_empty,
    "null_key_and_value": _null_key_and_value,
    "bytes": _bytes,
    "timestamps": _timestamps,
    "big_record_small_fetch": _big,
    "reset_earliest": partial(_reset_earliest, position=_PASSED),
    "reset_earliest_from_past_the_end": partial(_reset_earliest, position=_COUNT + 90),
    "reset_latest": _reset_latest,
    "reset_none": _reset_none,
    "reset_by_duration": _reset_by_duration,
    "reset_after_retention": _retention,
    "start_from_now": _start_from_now,
    "start_from_earliest": _start_from_earliest,
    "start_from_timestamp": _start_from_timestamp,
    "idempotent": _idempotent,
    "auto_create": _auto_create,
    "append_time": _append_time,
    "many_segments": _many_segments,
    "too_large": _too_large,
    "admin": _admin,
    "group": _group,
    "group_of_two": partial(_group_of_two, other="classic"),
    "group_of_two_beside_consumer": partial(_group_of_two, other="consumer"),
    "group_reset_earliest": _group_reset_earliest,
    "group_reset_latest": _group_reset_latest,
    "group_reset_none": _group_reset_none,
}


def checks_for(lacks: Mapping[str, str]) -> list[str]:
    """The names of the checks that a client with these lacks takes part in."""
    _assert_known(lacks)
    return [name for name in CHECKS if name not in lacks]


def run_check(name: str, client: StockClient, neutral: Neutral) -> None:
    """Runs one check; an assertion fails, or a client's error passes through."""
    _assert_known(client.cannot_write)
    CHECKS[name](Bench(client, neutral, name))


def _assert_known(names: Mapping[str, str]) -> None:
    unknown = set(names) - set(CHECKS)
    assert not unknown, f"no such checks: {unknown}"
