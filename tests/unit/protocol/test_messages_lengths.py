"""Lengths, nulls and tags of requests: the bounds of Kafka's generated readers.

The expectations were observed on a Kafka 4.3 broker, the bounds of arrays and of numbers of tagged
fields on a Kafka 4.4 broker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain
from typing import Any
from uuid import UUID

import pytest

from cordwood.format.messages.codec import MessageCodec
from cordwood.format.messages.primitives import (
    ARRAY_ELEMENTS_MAX,
    STRING_BYTES_MAX,
    TAGGED_FIELDS_MAX,
    write_uvarint,
)
from cordwood.format.messages.schema import Field
from cordwood.model.errors import CorruptError
from cordwood.protocol.apis import APIS
from cordwood.protocol.headers import parse_start, skip_tags
from cordwood.protocol.messages import (
    MalformedMessageError,
    encode,
    read_request,
    request_codec,
    response_codec,
)
from support.message_fields import nested

_METADATA, _FETCH, _OFFSET_COMMIT, _OFFSET_FETCH = 3, 1, 8, 9


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def metadata(*, topics: bytes = b"\x02\x02a\x00", tags: bytes = b"\0") -> bytes:
    """A Metadata request of version 9."""
    return topics + b"\0\0\0" + tags


def names(body: bytes, version: int = 9) -> list[str] | None:
    topics = read_request(_METADATA, version, body).topics
    return None if topics is None else [topic.name for topic in topics]


def fetch(tags: bytes) -> bytes:
    """A Fetch request of version 12, of no topic."""
    return struct.pack(">iiiibii", -1, 10, 1, 1000, 0, 0, -1) + b"\1\1\1" + tags


# ---- strings


def test_a_compact_string_has_at_most_32767_bytes() -> None:
    longest = b"\x02" + uvarint(STRING_BYTES_MAX + 1) + b"a" * STRING_BYTES_MAX + b"\0"
    assert names(metadata(topics=longest)) == ["a" * STRING_BYTES_MAX]
    too_long = b"\x02" + uvarint(STRING_BYTES_MAX + 2) + b"a" * (STRING_BYTES_MAX + 1) + b"\0"
    with pytest.raises(MalformedMessageError, match="string field name had invalid length 32768"):
        names(metadata(topics=too_long))


def test_a_string_of_malformed_utf8_has_replacement_characters_as_in_java() -> None:
    assert names(metadata(topics=b"\x02\x04\xff\xfea\0")) == ["\ufffd\ufffda"]


def test_a_string_that_replacement_makes_too_long_can_be_read_and_not_be_written() -> None:
    bad = b"\x02" + uvarint(20_001) + b"\xff" * 20_000 + b"\0"
    found = names(metadata(topics=bad))
    assert found == ["\ufffd" * 20_000]
    with pytest.raises(MalformedMessageError, match="too long to be serialized: 60000"):
        encode(response_codec(_METADATA, 9), {"topics": [{"name": found[0]}]})


@pytest.mark.parametrize(
    ("version", "body"),
    [(9, metadata(topics=b"\x02\0\0")), (4, b"\0\0\0\1\xff\xff\0"), (4, b"\0\0\0\1\xff\xfe\0")],
    ids=["compact", "null", "negative"],
)
def test_null_for_a_string_that_must_not_be_null_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="non-nullable field name was serialized"):
        names(body, version)


def test_a_string_that_goes_on_beyond_the_message_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match=r"byte array of 200 .* only 4 byte"):
        names(metadata(topics=b"\x02" + uvarint(201)))


def _paths(message: MessageCodec, prefix: tuple[Field, ...] = ()) -> list[tuple[Field, ...]]:
    """The way to every string of a message."""
    found: list[tuple[Field, ...]] = []
    for field in message.fields:
        if field.kind == "struct":
            found += _paths(nested(message, field), (*prefix, field))
        elif field.kind == "string":
            found.append((*prefix, field))
    return found


def _values(path: tuple[Field, ...], text: str) -> dict[str, Any]:
    first, *rest = path
    value: Any = _values(tuple(rest), text) if rest else text
    return {first.attribute: [value] if first.is_array else value}


def _longer(body: bytes, text: bytes, size: int, *, flexible: bool) -> bytes:
    """The message with `size` bytes in the place of `text`, and the length said so."""
    at = body.index(text)
    if not flexible:
        return body[: at - 2] + struct.pack(">h", size) + b"x" * size + body[at + len(text) :]
    return body[: at - 1] + uvarint(size + 1) + b"x" * size + body[at + len(text) :]


def test_every_string_of_every_request_is_bounded() -> None:
    mark = "the string at hand"
    count = 0
    for key, api in APIS.items():
        for version in range(api.min_version, api.max_version + 1):
            message = request_codec(key, version)
            for path in _paths(message):
                body = encode(message, _values(path, mark))
                flexible = message.is_flexible
                read_request(key, version, _longer(body, mark.encode(), 32_767, flexible=flexible))
                count += 1
                if not flexible:
                    continue
                for size in (32_768, 40_000, 70_000):
                    with pytest.raises(MalformedMessageError, match=f"invalid length {size}"):
                        read_request(
                            key, version, _longer(body, mark.encode(), size, flexible=True)
                        )
    assert count > 500


def test_an_answer_with_a_string_that_is_too_long_is_refused_in_all_versions() -> None:
    for version in (4, 7):
        with pytest.raises(MalformedMessageError, match="too long to be serialized: 32768"):
            encode(response_codec(19, version), {"topics": [{"name": "x" * 32_768}]})


# ---- arrays


@pytest.mark.parametrize(
    "body",
    [metadata(topics=b"\xff\xff\xff\xff\x0f"), metadata(topics=b"\xff\xff\xff\xff\x7f")],
    ids=["negative", "more than 32 bits"],
)
def test_a_negative_count_of_a_compact_array_is_null(body: bytes) -> None:
    assert names(body) is None


def test_a_negative_count_of_an_array_is_null() -> None:
    assert names(b"\xff\xff\xff\xfe\0", 4) is None
    with pytest.raises(MalformedMessageError, match="non-nullable field topics"):
        names(b"\xff\xff\xff\xfe", 0)


def partitions(count: int, version: int) -> bytes:
    """The start of an OffsetFetch request that names so many partitions of a topic."""
    if version < 6:
        return b"\0\1g\0\0\0\1\0\1t" + struct.pack(">i", count)
    return b"\2g\2\2t" + uvarint(count + 1)


@pytest.mark.parametrize(("version", "end"), [(5, b""), (6, b"\0\0")])
def test_an_array_has_at_most_a_million_elements(version: int, end: bytes) -> None:
    longest = partitions(ARRAY_ELEMENTS_MAX, version) + bytes(4 * ARRAY_ELEMENTS_MAX) + end
    request = read_request(_OFFSET_FETCH, version, longest)
    assert request.topics[0].partition_indexes == [0] * 1_000_000
    too_long = partitions(1_000_001, version) + bytes(4_000_004) + end
    with pytest.raises(MalformedMessageError, match="1000001, which exceeds the maximum allowed"):
        read_request(_OFFSET_FETCH, version, too_long)


def test_an_array_beyond_the_message_is_told_of_before_one_that_is_too_long() -> None:
    with pytest.raises(MalformedMessageError, match="1000001, but there are only 5 bytes"):
        read_request(_OFFSET_FETCH, 6, partitions(1_000_001, 6) + bytes(5))


def _arrays(message: MessageCodec, prefix: tuple[Field, ...] = ()) -> Iterator[tuple[Field, ...]]:
    """The way to every array of a message."""
    for field in message.fields:
        if field.is_array:
            yield (*prefix, field)
        if field.kind == "struct":
            yield from _arrays(nested(message, field), (*prefix, field))


def _elements(path: tuple[Field, ...], count: int) -> dict[str, Any]:
    """A message with so many elements, at their defaults, in the last array of a path."""
    *outer, last = path
    default = {"string": "", "struct": {}, "uuid": UUID(int=0)}.get(last.kind, 0)
    values: dict[str, Any] = {last.attribute: [default] * count}
    for field in reversed(outer):
        values = {field.attribute: [values] if field.is_array else values}
    return values


def _with_count(message: MessageCodec, path: tuple[Field, ...], count: int) -> bytes:
    """A message in which an array claims so many elements, and bytes for as many after it."""
    one, two = (encode(message, _elements(path, some)) for some in (1, 2))
    at = next(at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1])
    if not message.is_flexible:
        return one[: at - 3] + struct.pack(">i", count) + bytes(count)
    tags = sum(field.tag is not None for field in path)  # their sizes differ before the count
    return one[: at + tags] + uvarint(count + 1) + bytes(count)


def test_every_array_of_every_message_is_bounded() -> None:
    found = 0
    for key, api in APIS.items():
        for version in range(api.min_version, api.max_version + 1):
            request, response = request_codec(key, version), response_codec(key, version)
            for message, path in chain(
                ((request, path) for path in _arrays(request)),
                ((response, path) for path in _arrays(response)),
            ):
                with pytest.raises(CorruptError, match="exceeds the maximum allowed size of 1000"):
                    message.read(_with_count(message, path, ARRAY_ELEMENTS_MAX + 1))
                found += 1
    assert found > 1000


# ---- tags


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x05\x02ab",
        b"\x02\x05\x02ab\x06\0",
        b"\x02\x05\x02ab\x05\0",
        b"\x02\x06\x02ab\x05\0",
        b"\x01\x05" + uvarint(70_000) + b"a" * 70_000,
        uvarint(TAGGED_FIELDS_MAX) + b"\x05\0" * TAGGED_FIELDS_MAX,
    ],
    ids=["one", "two", "twice", "descending", "large", "as many as may be"],
)
def test_unknown_tags_are_passed_over(tags: bytes) -> None:
    assert names(metadata(tags=tags)) == ["a"]
    assert names(metadata(topics=b"\x02\x02b" + tags)) == ["b"]


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x05\x09ab",
        b"\x02\x05\x02ab",
        b"\x01\x05\xff\xff\xff\xff\x0fab",
        b"\xff\xff\xff\xff\xff\x01",
    ],
    ids=["beyond the end", "fewer than said", "a negative size", "a varint of six bytes"],
)
def test_unknown_tags_that_do_not_fit_the_message_are_refused(tags: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        names(metadata(tags=tags))


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (b"\xff\xff\xff\xff\x0f", "Invalid negative number of tagged fields -1"),
        (b"\x09\x05\x02ab", "read 9 tagged fields, but there are only 4 bytes remaining"),
        (uvarint(10_001) + b"\x05\0" * 10_001, "10001 tagged fields, which exceeds the maximum"),
        (uvarint(10_001) + b"\x05\0", "10001 tagged fields, but there are only 2 bytes"),
    ],
    ids=["negative", "beyond the end", "too many", "both"],
)
def test_the_number_of_tagged_fields_is_bounded(tags: bytes, words: str) -> None:
    with pytest.raises(MalformedMessageError, match=words):
        names(metadata(tags=tags))
    with pytest.raises(MalformedMessageError, match=words):  # beside tags that are known
        read_request(_FETCH, 12, fetch(tags))
    with pytest.raises(MalformedMessageError, match=words):
        skip_tags(memoryview(tags), 0)


@pytest.mark.parametrize("size", [1, 3, 9], ids=["less", "right", "more"])
def test_a_known_tag_ends_where_its_type_says(size: int) -> None:
    request = read_request(_FETCH, 12, fetch(b"\x01\0" + bytes([size]) + b"\x03ab"))
    assert request.cluster_id == "ab"


def test_a_known_tag_beside_an_unknown_one_is_read() -> None:
    request = read_request(_FETCH, 12, fetch(b"\x02\0\x03\x03ab\x07\x01z"))
    assert request.cluster_id == "ab"


def test_the_size_of_a_known_tag_cannot_hide_an_array_from_the_check_of_lengths() -> None:
    hidden = b"\0" + b"\xff\xff\xff\xff\x0f" + bytes(20)
    partition = struct.pack(">iiqiqi", 0, 0, 0, 0, 0, 100)
    partition += b"\x01\0" + bytes([16 + len(hidden)]) + b"\x11" * 16 + hidden
    body = struct.pack(">iiibii", 10, 1, 1000, 0, 0, -1)
    body += b"\x02" + b"\x22" * 16 + b"\x02" + partition + b"\0\1\1\0"
    with pytest.raises(MalformedMessageError, match="forgottenTopicsData"):
        read_request(_FETCH, 17, body)


# ---- all messages


def test_a_request_with_an_unknown_tag_is_read_as_without() -> None:
    values = {
        "group_id": "g",
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 1, "committed_offset": 7, "committed_metadata": None}
                ],
            }
        ],
    }
    body = encode(request_codec(_OFFSET_COMMIT, 8), values)
    tagged = body[:-1] + b"\x01\x63\x01z"
    assert read_request(_OFFSET_COMMIT, 8, tagged) == read_request(_OFFSET_COMMIT, 8, body)


def test_every_request_with_an_unknown_tag_is_read_as_without() -> None:
    for key, api in APIS.items():
        for version in range(api.min_version, api.max_version + 1):
            message = request_codec(key, version)
            if not message.is_flexible:
                continue
            body = encode(message, {})
            assert body[-1] == 0
            assert read_request(key, version, body[:-1] + b"\x01\x63\x01z") == read_request(
                key, version, body
            ), message


# ---- headers


def header(client: bytes, tags: bytes = b"\0") -> memoryview:
    return memoryview(struct.pack(">hhi", 3, 9, 1) + client + tags)


def test_a_client_id_of_malformed_utf8_or_of_a_negative_length_is_taken_as_in_java() -> None:
    assert parse_start(header(b"\0\2\xff\xfe")).client_id == "\ufffd\ufffd"
    assert parse_start(header(b"\xff\xfe")).client_id is None


def test_a_client_id_beyond_the_end_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="byte array of 32767"):
        parse_start(header(b"\x7f\xff"))


def test_tags_of_a_header_are_passed_over_and_held_to_its_end() -> None:
    assert skip_tags(memoryview(b"\x02\x05\x01a\x05\x01b"), 0) == 7
    for tags in (b"\x01\x05\x7fa", b"\x01\x05\xff\xff\xff\xff\x0f", b"\x01", b""):
        with pytest.raises(MalformedMessageError):
            skip_tags(memoryview(tags), 0)
