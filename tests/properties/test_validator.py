"""Validation of anything that a client may send: a log holds only what its readers can read."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES, parse_header
from cordwood.format.compression import Codec, compress, decompress
from cordwood.format.record_batch import Header, Record, RecordBatch, build_batch
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import KafkaError
from cordwood.storage.append import record_walk
from cordwood.storage.append.validator import ValidationResult
from support.appends import NOW, config_for, validate, with_header, written

SEEDS = st.integers(0, 2**40)
FIRST_OFFSET = 1234567
LEADER_EPOCH = 9

INT16, INT32, INT64 = ((-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (16, 32, 64))
EDGES = [-2, -1, 0, 1, 2, 3, 15]
#: Header fields that a producer fills, and what they can hold.
FIELDS = {
    "attributes": INT16,
    "last_offset_delta": INT32,
    "base_timestamp": INT64,
    "max_timestamp": INT64,
    "producer_id": INT64,
    "producer_epoch": INT16,
    "base_sequence": INT32,
    "records_count": INT32,
}


@pytest.fixture(scope="module", autouse=True, params=["native", "plain"])
def _way(request: pytest.FixtureRequest) -> Any:
    """Each property holds for both ways to walk over records."""
    with pytest.MonkeyPatch.context() as patch:
        record_walk.prepare()
        if request.param == "plain":
            patch.setattr(record_walk._native, "walk", None)
            patch.setattr(record_walk._native, "_has_started", True)
        yield


def int64(value: int) -> int:
    """The value as int64, with overflow."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def random_config(rng: random.Random) -> LogConfig:
    bounds = rng.choice([5, 3_600_000, (1 << 63) - 1])
    return config_for(
        rng.choice([None, None, *Codec]),
        cleanup_policy=frozenset(rng.choice([["delete"], ["compact"]])),
        message_timestamp_type=rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
        message_timestamp_before_max_ms=bounds,
        message_timestamp_after_max_ms=bounds,
    )


def random_batch(rng: random.Random, *, codec: Codec | None = None) -> bytes:
    records = [
        Record(
            offset,
            NOW + rng.choice([0, 0, 1, -1, 5, 70, -3000]),
            rng.choice([b"k", b"", b"k" * 70, b"k%d" % offset]),
            rng.choice([None, b"", rng.randbytes(rng.choice([3, 300]))]),
            tuple(Header("h", b"x") for _ in range(rng.choice([0, 0, 2]))),
        )
        for offset in range(rng.choice([1, 1, 3, 20]))
    ]
    has_producer = rng.random() < 0.5
    return build_batch(
        records,
        base_offset=0,
        codec=rng.choice(list(Codec)) if codec is None else codec,
        producer_id=55 if has_producer else -1,
        producer_epoch=3 if has_producer else -1,
        base_sequence=7 if has_producer else -1,
        is_transactional=has_producer and rng.random() < 0.5,
    )


def outcome(batch: bytes, config: LogConfig) -> ValidationResult | None:
    """The validation of the batch; None if it is refused by an error of the protocol."""
    try:
        return validate(batch, config, first_offset=FIRST_OFFSET, leader_epoch=LEADER_EPOCH)
    except KafkaError:
        return None


def without_place(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers, record.sequence


def require_readable(sent: bytes, config: LogConfig, result: ValidationResult) -> None:
    """Checks that the accepted batch can be read, and has correct offsets and summaries."""
    data = written(result)
    header = parse_header(data)
    records = RecordBatch(header, data).records()
    count = len(records)
    assert count == header.records_count > 0
    assert [record.offset for record in records] == list(range(FIRST_OFFSET, FIRST_OFFSET + count))
    assert (header.base_offset, header.next_offset) == (FIRST_OFFSET, result.next_offset)
    assert header.partition_leader_epoch == LEADER_EPOCH
    assert not header.is_control
    assert header.timestamp_type == config.message_timestamp_type
    newest = max(-1, *(record.timestamp for record in records))
    assert header.max_timestamp == result.max_timestamp == newest
    assert result.offset_of_max_timestamp == header.last_offset
    if config.message_timestamp_type == "LogAppendTime":
        assert newest == result.log_append_time_ms == NOW
    else:
        for record in records:
            # As Kafka computes it: with overflow, the oldest timestamps are far in the future.
            age = int64(NOW - record.timestamp)
            assert record.timestamp == -1 or (
                age <= config.message_timestamp_before_max_ms
                and int64(-age) <= config.message_timestamp_after_max_ms
            )
    if config.compact:
        assert all(record.key is not None for record in records)
    if config.compression_type != "producer":
        assert header.codec.config_name == config.compression_type.replace("uncompressed", "none")
    # The plain parser reads what was sent, and it is the same records.
    before_it = RecordBatch(parse_header(sent), sent)
    before_it.require_valid()
    original = before_it.records()
    assert list(map(without_place, original)) == list(map(without_place, records))
    if not before_it.header.attributes & 0x08 and config.message_timestamp_type == "CreateTime":
        assert [r.timestamp for r in original] == [r.timestamp for r in records]


@given(SEEDS)
def test_sound_batches_are_taken(seed: int) -> None:
    rng = random.Random(seed)
    batch = random_batch(rng)
    codec = rng.choice([None, *Codec])
    for config in (
        config_for(codec, cleanup_policy=frozenset({"compact"})),
        config_for(codec, message_timestamp_type="LogAppendTime"),
    ):
        result = outcome(batch, config)
        assert result is not None
        require_readable(batch, config, result)


@given(seed=SEEDS, flips=st.integers(1, 4))
def test_flipped_bytes_under_a_repaired_checksum_never_reach_the_log_unread(
    seed: int, flips: int
) -> None:
    rng = random.Random(seed)
    batch = bytearray(random_batch(rng))
    for _ in range(flips):
        # Half the time in the header, whose 40 bytes would else be met too seldom.
        start = 21 if rng.random() < 0.5 or len(batch) == HEADER_BYTES else HEADER_BYTES
        end = HEADER_BYTES if start == 21 else len(batch)
        position = rng.randrange(start, end)
        batch[position] = rng.choice(
            [rng.randrange(256), batch[position] ^ (1 << rng.randrange(8)), 0, 0xFF]
        )
    sent = with_header(bytes(batch))
    config = random_config(rng)
    result = outcome(sent, config)
    if result is not None:
        require_readable(sent, config, result)


@given(seed=SEEDS, flips=st.integers(1, 4))
def test_flipped_bytes_inside_a_compressed_stream_never_reach_the_log_unread(
    seed: int, flips: int
) -> None:
    rng = random.Random(seed)
    batch = random_batch(rng)
    header = parse_header(batch)
    payload = bytearray(decompress(header.codec, batch[HEADER_BYTES:]))
    for _ in range(flips):
        position = rng.randrange(len(payload))
        payload[position] = rng.choice(
            [rng.randrange(256), payload[position] ^ (1 << rng.randrange(8)), 0, 0xFF]
        )
    packed = compress(header.codec, bytes(payload))
    sent = with_header(batch[:HEADER_BYTES] + packed, batch_length=HEADER_BYTES - 12 + len(packed))
    config = random_config(rng)
    result = outcome(sent, config)
    if result is not None:
        require_readable(sent, config, result)


@given(seed=SEEDS, names=st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=3))
@example(seed=46963, names=["base_timestamp"])
def test_false_headers_never_reach_the_log(seed: int, names: list[str]) -> None:
    rng = random.Random(seed)
    batch = random_batch(rng)
    values = {}
    for name in names:
        low, high = FIELDS[name]
        values[name] = rng.choice([*EDGES, low, high, rng.randint(low, high)])
        if name.endswith("timestamp") and rng.random() < 0.5:
            values[name] = NOW + rng.choice([0, 1, -4000])
    sent = with_header(batch, **values)
    config = random_config(rng)
    result = outcome(sent, config)
    if result is not None:
        require_readable(sent, config, result)


@given(seed=SEEDS, size=st.integers(-3, 40))
def test_batches_cut_off_or_with_bytes_behind_their_records_are_refused(
    seed: int, size: int
) -> None:
    rng = random.Random(seed)
    batch = random_batch(rng, codec=Codec.NONE)
    changed = batch[:size] if size < 0 else batch + rng.randbytes(size)
    sent = with_header(changed, batch_length=len(changed) - 12)
    result = outcome(sent, LogConfig())
    assert (result is None) == (size != 0)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_an_error_that_clients_know(data: bytes) -> None:
    assert outcome(data, LogConfig()) is None


@given(payload=st.binary(max_size=80), codec=st.sampled_from(list(Codec)), count=st.integers(-1, 6))
def test_any_bytes_for_records_are_judged_as_the_plain_parser_judges(
    payload: bytes, codec: Codec, count: int
) -> None:
    batch = random_batch(random.Random(1), codec=codec)
    changed = batch[:HEADER_BYTES] + payload
    sent = with_header(
        changed,
        batch_length=len(changed) - 12,
        attributes=int(codec),
        records_count=count,
        last_offset_delta=count - 1,
    )
    config = LogConfig(message_timestamp_after_max_ms=(1 << 63) - 1)
    result = outcome(sent, config)
    try:
        records = RecordBatch(parse_header(sent), sent).records()
    except CorruptError:
        assert result is None
        return
    if result is not None:
        assert len(records) == count
        require_readable(sent, config, result)


def test_checksums_are_repaired_by_these_tests() -> None:
    batch = random_batch(random.Random(1))
    changed = with_header(batch, records_count=9)
    assert struct.unpack_from(">I", changed, 17) != struct.unpack_from(">I", batch, 17)
    assert RecordBatch(parse_header(changed), changed).is_valid()
