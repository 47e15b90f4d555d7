"""Records that are not what their batch says: none reaches a log."""

from __future__ import annotations

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Header, Record
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    InvalidRecordError,
)
from support.appends import (
    NOW,
    config_for,
    records_of,
    three,
    validate,
    with_header,
    with_payload,
)

CODECS = list(Codec)
COMPRESSED = [codec for codec in Codec if codec]


def record(*, size: int | None = None, rest: bytes = b"") -> bytes:
    """A record by hand: what comes after its offset delta of 0, behind its size."""
    body = b"\0\0\0" + rest
    return bytes([(len(body) if size is None else size) << 1]) + body


NULLS = b"\x01\x01"  # no key, no value
MALFORMED = {
    "a record that is longer than its batch": (
        record(size=7, rest=NULLS + b"\0"),
        r"expected 7 bytes in record payload, but instead the buffer has only 6 remaining bytes\.",
    ),
    "a record that is shorter than it says": (
        record(size=7, rest=NULLS + b"\0") + b"\0",
        "expected to read 7 bytes in record payload, but instead read 6",
    ),
    "a record that is longer than it says": (
        record(size=5, rest=NULLS + b"\0"),
        "expected to read 5 bytes in record payload, but instead read 6",
    ),
    "a record of no bytes": (b"\0", "Found invalid record structure"),
    "a record of a negative size": (b"\x01" + b"\0\0\0" + NULLS + b"\0", "expected to read -1"),
    "no record at all": (b"\x80", "premature EOF reached"),
    "a size that is no number": (b"\xff" * 6, "Found invalid record structure"),
    "a timestamp delta of eleven bytes": (
        b"\x20\0" + b"\xff" * 10 + b"\0" * 5,
        "Found invalid record structure",
    ),
    "an offset delta of six bytes": (
        b"\x18\0\0" + b"\xff" * 5 + b"\0" * 5,
        "invalid record struct",
    ),
    "a key that runs past the end": (record(rest=b"\x14a\x01\0"), "Found invalid record structure"),
    "a value that runs past the end": (record(rest=b"\x01\x14a\0"), "Found invalid record struct"),
    "a negative count of headers": (
        record(rest=NULLS + b"\x01"),
        "Found invalid number of record headers -1",
    ),
    "more headers than bytes": (
        record(rest=NULLS + b"\x06\0\0"),
        r"headers\. 3 is larger than the remaining size of the buffer",
    ),
    "a header without a key": (
        record(rest=NULLS + b"\x02\x01\x01"),
        "Invalid negative header key size -1",
    ),
    "a header's key that runs past the end": (
        record(rest=NULLS + b"\x02\x14a"),
        "Found invalid record structure",
    ),
    "a header's value that runs past the end": (
        record(rest=NULLS + b"\x02\x02a\x14"),
        "Found invalid record structure",
    ),
    "a second record": (record(rest=NULLS + b"\0") * 2, "records still remaining in file"),
    "bytes left over": (record(rest=NULLS + b"\0") + b"\0", "records still remaining in file"),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_record_is_refused(name: str, codec: Codec) -> None:
    payload, reason = MALFORMED[name]
    data = with_payload(codec, payload, count=1)
    for config in (LogConfig(), config_for(Codec.GZIP), config_for(Codec.NONE)):
        with pytest.raises(InvalidRecordError, match=reason):
            validate(data, config)
        with pytest.raises(InvalidRecordError, match=reason):
            validate(data, config, origin=AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("codec", CODECS)
def test_record_by_hand_is_taken_when_it_is_well_formed(codec: Codec) -> None:
    payload = record(rest=NULLS + b"\x02\x02a\x01")
    result = validate(with_payload(codec, payload, count=1, base_timestamp=NOW))
    assert records_of(result) == [Record(0, NOW, None, None, (Header("a", None),))]


def test_batch_of_a_count_without_any_bytes_is_refused() -> None:
    for codec in CODECS:
        for count in (1, 1 << 20, (1 << 31) - 1):
            with pytest.raises(InvalidRecordError, match="premature EOF reached"):
                validate(with_payload(codec, b"", count=count))
        packed = with_header(three(NOW)[:HEADER_BYTES], batch_length=49, attributes=int(codec))
        with pytest.raises(InvalidRecordError):
            validate(packed)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_stream_that_is_not_of_its_codec_is_refused(codec: Codec) -> None:
    data = with_header(three(NOW), attributes=int(codec))
    with pytest.raises(InvalidRecordError, match="Failed to decompress record stream"):
        validate(data)
