"""Protobuf as Arrow columns: bytes that Google's library writes, and bytes written by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from cordwood.frames.decoding.protobuf_values import ProtobufDecoder
from cordwood.model.errors import ConfigError

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
)


def field(message: Any, name: str, kind: str, *, label: str = "OPTIONAL", **more: Any) -> Any:
    """Adds a field; `kind` is a scalar's name, or the full name of a message behind a dot."""
    added = message.field.add(
        name=name,
        number=len(message.field) + 1,
        label=Field.Label.Value(f"LABEL_{label}"),
        **more,
    )
    if kind.startswith("."):
        added.type = Field.TYPE_ENUM if kind.endswith("Kind") else Field.TYPE_MESSAGE
        added.type_name = kind
    else:
        added.type = Field.Type.Value(f"TYPE_{kind.upper()}")
    return added


def schema() -> descriptor_pb2.FileDescriptorSet:
    """The set that protoc writes of a file in proto3, without that of Timestamp, an import."""
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "lines.proto"],
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="OLD", number=1)
    order = file.message_type.add(name="Order")
    for scalar in SCALARS:
        field(order, f"f_{scalar}", scalar)
    field(order, "kind", ".shop.Kind")
    field(order, "at", ".google.protobuf.Timestamp")
    field(order, "lines", ".shop.Line", label="REPEATED")
    field(order, "numbers", "int32", label="REPEATED")
    field(order, "kinds", ".shop.Kind", label="REPEATED")
    order.oneof_decl.add(name="who")
    field(order, "person", "string", oneof_index=0)
    field(order, "firm", ".shop.Line", oneof_index=0)
    order.oneof_decl.add(name="_maybe")
    field(order, "maybe", "int32", oneof_index=1, proto3_optional=True)
    entry = order.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    field(entry, "key", "string")
    field(entry, "value", ".google.protobuf.Timestamp")
    field(order, "by_name", ".shop.Order.ByNameEntry", label="REPEATED")
    lines = found.file.add(name="lines.proto", package="shop", syntax="proto3")
    field(lines.message_type.add(name="Line"), "sku", "string")
    return found


def message_class(name: str = "shop.Order") -> Any:
    """The class of a message, made without the decoder."""
    from google.protobuf import timestamp_pb2  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    stamps = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamps)
    for each in (stamps, *reversed(schema().file)):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def decoded(
    *values: bytes, has_indexes: bool = False, message: str = "shop.Order"
) -> tuple[list[Any], dict[int, str]]:
    bad: dict[int, str] = {}
    decoder = ProtobufDecoder(schema().SerializeToString(), message, has_indexes=has_indexes)
    found = decoder.decode(
        pa.array(values, pa.binary()), (), lambda row, reason: bad.update({row: reason})
    )
    assert found.type == decoder.type
    return found.to_pylist(), bad


def test_all_fields_are_those_that_were_written() -> None:
    order = message_class()(
        f_double=1.5,
        f_float=0.5,
        f_int64=-(1 << 63),
        f_uint64=(1 << 64) - 1,
        f_int32=-1,
        f_fixed64=1 << 63,
        f_fixed32=(1 << 32) - 1,
        f_bool=True,
        f_string="é",
        f_bytes=b"\xff",
        f_uint32=(1 << 32) - 1,
        f_sfixed32=-2,
        f_sfixed64=-3,
        f_sint32=-4,
        f_sint64=-5,
        kind=1,
        lines=[{"sku": "a"}, {}],
        numbers=[1, 2],
        kinds=[0, 1, 7],
        person="p",
        maybe=0,
    )
    order.at.FromDatetime(datetime(2026, 1, 31, 12, 0, 0, 123456))  # noqa: DTZ001  # UTC
    order.by_name["x"].seconds = -1
    (row,), bad = decoded(order.SerializeToString())
    assert not bad
    assert row == {
        "f_double": 1.5,
        "f_float": 0.5,
        "f_int64": -(1 << 63),
        "f_uint64": Decimal((1 << 64) - 1),
        "f_int32": -1,
        "f_fixed64": Decimal(1 << 63),
        "f_fixed32": (1 << 32) - 1,
        "f_bool": True,
        "f_string": "é",
        "f_bytes": b"\xff",
        "f_uint32": (1 << 32) - 1,
        "f_sfixed32": -2,
        "f_sfixed64": -3,
        "f_sint32": -4,
        "f_sint64": -5,
        "kind": "OLD",
        "at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
        "lines": [{"sku": "a"}, {"sku": ""}],
        "numbers": [1, 2],
        "kinds": ["NEW", "OLD", "7"],
        "person": "p",
        "firm": None,
        "maybe": 0,
        "by_name": [("x", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC))],
    }


def test_what_a_message_can_lack_is_null_and_the_rest_has_its_default() -> None:
    (row,), bad = decoded(b"")
    assert not bad
    assert {name for name, value in row.items() if value is None} == {
        *("at", "person", "firm", "maybe")
    }
    assert (row["f_int32"], row["f_string"], row["kind"]) == (0, "", "NEW")
    assert (row["lines"], row["by_name"]) == ([], [])


def test_bytes_that_were_written_by_hand_are_decoded() -> None:
    # Field 1, text of two bytes; an unknown field 5 is skipped.
    assert decoded(b"\x0a\x02ab\x28\x07", message="shop.Line") == ([{"sku": "ab"}], {})


@pytest.mark.parametrize("indexes", [b"\0", b"\x02\x00", b"\x04\x02\x80\x01"])
def test_indexes_of_the_message_are_skipped(indexes: bytes) -> None:
    rows, bad = decoded(indexes + b"\x0a\x01a", has_indexes=True, message="shop.Line")
    assert (rows, bad) == ([{"sku": "a"}], {})


@pytest.mark.parametrize("value", [b"", b"\x80", b"\x02", b"\x01", b"\xff\xff\xff\xff\xff\xff"])
def test_indexes_that_end_too_early_are_malformed(value: bytes) -> None:
    rows, bad = decoded(b"\0", value, has_indexes=True, message="shop.Line")
    assert rows == [{"sku": ""}, None]
    assert list(bad) == [1]


@pytest.mark.parametrize(
    "value",
    [b"\x0a\x05ab", b"\xff", b"\x0a\x01\xff", b"\x0b"],
    ids=["short", "tag", "utf8", "group"],
)
def test_a_malformed_value_is_null(value: bytes) -> None:
    rows, bad = decoded(b"\x0a\x01a", value, b"", message="shop.Line")
    assert rows == [{"sku": "a"}, None, {"sku": ""}]
    assert list(bad) == [1]


def test_a_timestamp_beyond_those_of_arrow_is_malformed() -> None:
    order = message_class()()
    order.at.seconds = 1 << 62
    rows, bad = decoded(order.SerializeToString(), b"")
    assert rows[0] is None
    assert rows[1] is not None
    assert list(bad) == [0]


def wrong(**change: Any) -> bytes:
    found = schema()
    file = found.file[0]
    if change.get("imports"):
        file.dependency.append("elsewhere.proto")
    if change.get("recursive"):
        field(file.message_type[0], "parent", ".shop.Order")
    text: bytes = found.SerializeToString()
    return text


@pytest.mark.parametrize(
    ("descriptor_set", "message", "why"),
    [
        (b"\xff\xff", "shop.Order", "no FileDescriptorSet"),
        (wrong(), "shop.Missing", "shop.Missing"),
        (wrong(imports=True), "shop.Order", "imports elsewhere.proto, which is not in it"),
        (wrong(recursive=True), "shop.Order", "shop.Order: it contains itself"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(
    descriptor_set: bytes, message: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        ProtobufDecoder(descriptor_set, message, has_indexes=False)
