"""Every message in every version, against kio: the same bytes, and the same values read from them.

kio's classes are generated from Kafka's schemas, of a version before 4.4. They name a time without
its unit, and hold it as a `timedelta` or a `datetime`.
"""

from __future__ import annotations

import datetime as dt
import io
import random
import string
import uuid
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from cordwood.format.messages.message import Message
from cordwood.format.messages.schema import Field, fields_of
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.apis import APIS
from cordwood.protocol.messages import encode, read, request_codec, response_codec

VERSIONS = {key: range(api.min_version, api.max_version + 1) for key, api in APIS.items()}
KNOWN = {
    key: [version for version in versions if version in schema_name_map[api_key_map[key]]]
    for key, versions in VERSIONS.items()
    if key in api_key_map
}
NAMES = [(key, APIS[key].snake_name) for key in sorted(KNOWN)]
SINCE_4_4 = {18: 5, 28: 6, 42: 3, 88: 1, 89: 1, 93: 0, 94: 0}
"""The lowest version of each API that is new in Kafka 4.4."""
RENAMED = {
    "acceptable_recovery_lag": "acceptable_recovery_lag_legacy",
    "generation_id": "generation_id_or_member_epoch",
}
"""Fields that have another name in Kafka 4.4."""
NUMBER_MAX = 100
"""Any number up to it fits its field in kio, too: it is an error code, an enum, a time."""


def random_values(rng: random.Random, of: tuple[Field, ...], version: int) -> Mapping[str, Any]:
    """A value for each field that the version has."""
    return {field.attribute: random_field(rng, field, version) for field in fields_of(of, version)}


def random_field(rng: random.Random, field: Field, version: int) -> Any:
    if field.is_nullable(version) and rng.random() < 0.25:
        return None
    if field.is_array:
        return [random_element(rng, field, version) for _ in range(rng.randint(0, 2))]
    return random_element(rng, field, version)


def random_element(rng: random.Random, field: Field, version: int) -> Any:
    match field.kind:
        case "struct":
            return random_values(rng, field.fields, version)
        case "string":
            return "".join(rng.choices(string.ascii_letters, k=rng.randint(1, 9)))
        case "bytes" | "records":
            return rng.randbytes(rng.randint(1, 9))
        case "uuid":
            return uuid.UUID(bytes=rng.randbytes(16))
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.random()
        case _:
            return rng.randint(0, NUMBER_MAX)


def assert_same(entity: Any, message: Message, version: int) -> None:
    """Compares all fields of a version."""
    own = {field.attribute for field in fields_of(message.schema_fields, version)}
    for known in fields(entity):
        name = known.name.removesuffix("_")
        name = name if name in own else RENAMED.get(name, f"{name}_ms")
        own.remove(name)
        assert_same_value(getattr(entity, known.name), getattr(message, name), version)
    assert own == set()


def assert_same_value(theirs: Any, ours: Any, version: int) -> None:
    if is_dataclass(theirs):
        assert_same(theirs, ours, version)
    elif isinstance(theirs, tuple):
        assert len(theirs) == len(ours)
        for pair in zip(theirs, ours, strict=True):
            assert_same_value(*pair, version)
    elif theirs is None:
        assert ours in {None, ZERO_UUID, -1}, "null, no UUID, no time"
    else:
        assert plain(theirs) == ours


def plain(theirs: Any) -> Any:
    if isinstance(theirs, ErrorCode):
        return theirs.value
    if isinstance(theirs, dt.timedelta):
        return theirs // dt.timedelta(milliseconds=1)
    if isinstance(theirs, dt.datetime):
        return round(theirs.timestamp() * 1000)
    return theirs


def test_kio_lacks_what_is_new() -> None:
    missing = {
        key: [version for version in versions if version not in KNOWN.get(key, ())]
        for key, versions in VERSIONS.items()
    }
    new = {key: [each for each in VERSIONS[key] if each >= low] for key, low in SINCE_4_4.items()}
    assert {key: versions for key, versions in missing.items() if versions} == new


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize(("api_key", "name"), NAMES, ids=[name for _, name in NAMES])
def test_kio_writes_the_same_bytes_and_reads_the_same_values(
    api_key: int, name: str, kind: str
) -> None:
    is_request = kind == "request"
    rng = random.Random(name + kind)
    for version in KNOWN[api_key]:
        codec = (request_codec if is_request else response_codec)(api_key, version)
        schema: Any = (load_request_schema if is_request else load_response_schema)(
            api_key, version
        )
        for _ in range(3):
            data = encode(codec, random_values(rng, codec.schema.fields, version))
            entity, size = entity_reader(schema)(data, 0)
            assert size == len(data), f"version {version}"
            assert_same(entity, read(codec, data), version)
            out = io.BytesIO()
            entity_writer(schema)(out, entity)
            assert out.getvalue() == data, f"version {version}"
