"""The Python source of a function that writes one version of a message.

Fields of fixed size that follow each other are written by one `struct` call.

Source: org.apache.kafka.message.MessageDataGenerator.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cordwood.format.messages.message import Message, default_struct
from cordwood.format.messages.primitives import CONTEXT, STRING_BYTES_MAX, TABLE_SIZE, WRITE_STEPS
from cordwood.format.messages.schema import LAYOUTS, Field, MessageSchema, has_records
from cordwood.format.messages.source import Source
from cordwood.model.uuids import ZERO_UUID

_NUMBERS: Final = frozenset(LAYOUTS) - {"uuid"}
_MISSING: Final = object()


class WriterSource:
    """Writes the source of `write(values)`, which returns the bytes of a message in parts.

    With `structs`, by name, structs are objects of those classes, and null is written as empty in
    versions of a field that cannot be null if others can. Without they are mappings by the schema's
    names, in which a field that is left out has its default, or is null if it can be and the schema
    names no default. Records that are not bytes are parts of their own. `context` has the values
    that the source names.
    """

    def __init__(
        self, schema: MessageSchema, version: int, structs: Mapping[str, type[Message]] | None
    ) -> None:
        self._version = version
        self._is_flexible = version in schema.flexible
        self._structs = structs
        self.context: dict[str, Any] = {
            **CONTEXT,
            "EMPTY": {},
            "MISSING": _MISSING,
            "ZERO_UUID": ZERO_UUID,
        }
        self._source = Source("def write(values):")
        self._out = "out"
        # Fields of fixed size that are not written yet: type and expression.
        self._pending: list[tuple[str, str]] = []
        has_parts = has_records(schema.fields)
        self._source.add("out = bytearray()")
        if has_parts:
            self._source.add("parts = []")
        self._struct(schema.fields, "values")
        if has_parts:
            with self._source.block("if out or not parts:"):
                self._source.add("parts.append(finished(out))")
        self._source.add("return parts" if has_parts else "return [finished(out)]")

    def text(self) -> str:
        """The source."""
        return self._source.text()

    # ---- structs

    def _struct(self, fields: Sequence[Field], values: str) -> None:
        """Writes the struct that the expression `values` gives; nothing is pending afterwards."""
        here = [field for field in fields if self._version in field.versions]
        if self._structs is None:
            get = self._source.name("get")
            self._source.add(f"{get} = {values}.get")
            given = {
                field.name: f"{get}({field.name!r}, "
                f"{self._default(field) if field.tag is None else 'MISSING'})"
                for field in here
            }
        else:
            given = {field.name: f"{values}.{field.attribute}" for field in here}
        for field in here:
            if field.tag is None:
                self._field(field, given[field.name])
        tagged = [field for field in here if field.tag is not None]
        if not here:
            self._source.add("pass")
        if self._is_flexible and not tagged:
            self._pending.append(("B", "0"))
        self._flush()
        if self._is_flexible and tagged:
            self._tags(sorted(tagged, key=lambda field: field.tag or 0), given)

    def _default(self, field: Field) -> str:
        default = field.default
        if default is None:
            return "None"
        if field.is_nullable(self._version) and field.default_text is None:
            return "None"
        if field.is_array:
            return "()"
        if field.kind == "struct":
            return "EMPTY"
        return "ZERO_UUID" if field.kind == "uuid" else repr(default)

    def _tags(self, fields: Sequence[Field], given: Mapping[str, str]) -> None:
        add, block, name = self._source.add, self._source.block, self._source.name
        count, section, payload = name("count"), name("section"), name("payload")
        add(f"{count} = 0")
        out = self._out
        for field in fields:
            value = name("value")
            add(f"{value} = {given[field.name]}")
            there = f"{value} is not MISSING and " if self._structs is None else ""
            with block(f"if {there}{self._differs(field, value)}:"):
                with block(f"if not {count}:"):
                    add(f"{section} = bytearray()")
                add(f"{count} += 1", f"{payload} = bytearray()")
                self._out = payload
                self._field(field, value)
                self._flush()
                self._out = out
                add(f"write_uvarint({section}, {field.tag})")
                add(f"write_uvarint({section}, len({payload}))")
                add(f"{section} += {payload}")
        add(f"{out}.append({count})")
        with block(f"if {count}:"):
            add(f"{out} += {section}")

    def _differs(self, field: Field, value: str) -> str:
        """The condition that a tagged field is not at its default."""
        default = field.default
        if default is None:
            return f"{value} is not None"
        if field.is_array or field.kind in {"bytes", "records"}:
            return f"({value} or {value} is None)"
        if field.kind == "struct":
            name = self._source.name("defaults")
            self.context[name] = self._defaults(field.fields)
            differs = f"not is_default_struct({value}, {name})"
            if self._structs is not None:
                name = self._source.name("default")
                self.context[name] = default_struct(self._structs[field.struct])
                differs = f"{value} is not {name} and {differs}"
            return differs
        if field.kind == "uuid":
            return f"{value} is not None and {value} != ZERO_UUID"
        return f"{value} != {default!r}"

    def _defaults(self, fields: Sequence[Field]) -> dict[str, Any]:
        return {
            (field.name if self._structs is None else field.attribute): self._defaults(field.fields)
            if field.kind == "struct" and not field.is_array and field.default is not None
            else field.default
            for field in fields
            if self._version in field.versions
        }

    # ---- fields

    def _field(self, field: Field, value: str) -> None:
        if field.is_array:
            self._array(field, value)
        elif field.kind == "struct":
            self._single_struct(field, value, is_nullable=field.is_nullable(self._version))
        elif field.kind in LAYOUTS:
            self._fixed(field.kind, value)
        else:
            self._text(field.kind, field.name, value, null=self._null(field))

    def _fixed(self, kind: str, value: str) -> None:
        if kind == "uuid":
            value = f'({value} or ZERO_UUID).int.to_bytes(16, "big")'
        self._pending.append((LAYOUTS[kind], value))

    def _flush(self) -> None:
        """Writes what is pending."""
        self._pack(self._taken())

    def _taken(self) -> list[tuple[str, str]]:
        """The fields that were pending, which the caller writes with what follows them."""
        pending, self._pending = self._pending, []
        return pending

    def _pack(self, fields: Sequence[tuple[str, str]]) -> None:
        """Writes fields of fixed size, given as type and expression, by one call."""
        values = ", ".join(value for _, value in fields)
        layout = "".join(code for code, _ in fields)
        if layout == "B":
            self._source.add(f"{self._out}.append({values})")
        elif layout == LAYOUTS["uuid"]:
            self._source.add(f"{self._out} += {values}")
        elif layout:
            name = self._source.name("pack")
            self.context[name] = struct.Struct(f">{layout}").pack
            self._source.add(f"{self._out} += {name}({values})")

    def _single_struct(self, field: Field, value: str, *, is_nullable: bool) -> None:
        variable = self._source.name("struct")
        self._flush()
        self._source.add(f"{variable} = {value}")
        if not is_nullable:
            with self._source.block(f"if {variable} is None:"):
                self._source.add(f'raise null_value_error("{field.name}")')
            self._struct(field.fields, variable)
            return
        with self._source.block(f"if {variable} is None:"):
            self._source.add(f"{self._out}.append({0xFF if field.tag is None else 0})")
        with self._source.block("else:"):
            self._source.add(f"{self._out}.append(1)")
            self._struct(field.fields, variable)

    def _null(self, field: Field) -> int | None:
        """The length that is written for null; None if null is an error."""
        if field.is_nullable(self._version):
            return -1
        return 0 if field.can_be_null and self._structs is not None else None

    def _text(self, kind: str, name: str, value: str, *, null: int | None) -> None:
        add, block = self._source.add, self._source.block
        data, size = self._source.name("data"), self._source.name("size")
        is_string = kind == "string"
        before = self._taken() if self._is_flexible else []
        add(f"{data} = {value}")
        with block(f"if {data} is None:"):
            self._absent(name, size, null, before)
            if null is not None and not self._is_flexible:
                add(f'{data} = b""')
        with block("else:"):
            if is_string:
                add(f"{data} = {data}.encode()")
            length = f"len({data})"
            if kind == "records":
                length += f" if type({data}) in BYTES else {data}.size_bytes"
            add(f"{size} = {length}")
            too_long = f"{size} > {STRING_BYTES_MAX}" if is_string else ""
            error = f'raise long_value_error("{name}", {size})'
            if self._is_flexible:
                self._compact_length(size, before, too_long, error)
                self._bytes(kind, data)
            elif too_long:
                with block(f"if {too_long}:"):
                    add(error)
        if not self._is_flexible:
            self._pending.append(("h" if is_string else "i", size))
            self._flush()
            self._bytes(kind, data)

    def _bytes(self, kind: str, data: str) -> None:
        """Writes bytes; records that are not in memory are put between what is written."""
        add, block = self._source.add, self._source.block
        if kind != "records":
            add(f"{self._out} += {data}")
            return
        with block(f"if type({data}) in BYTES:"):
            add(f"{self._out} += {data}")
        with block("else:"):
            add(f"parts += (bytes({self._out}), {data})", f"{self._out}.clear()")

    def _absent(
        self, name: str, size: str, null: int | None, before: Sequence[tuple[str, str]]
    ) -> None:
        """Writes the length of a null, or has it refused; if not flexible, it is only noted.

        `before` are the fields of fixed size that stand before it.
        """
        if null is None:
            self._source.add(f'raise null_value_error("{name}")')
        elif self._is_flexible:
            self._pack([*before, ("B", str(null + 1))])
        else:
            self._source.add(f"{size} = {null}")

    def _compact_length(
        self, size: str, before: Sequence[tuple[str, str]], too_long: str = "", error: str = ""
    ) -> None:
        """Writes a compact length, by one call with the fields `before` it if it is one byte."""
        add, block = self._source.add, self._source.block
        with block(f"if {size} < 127:"):
            self._pack([*before, ("B", f"{size} + 1")])
        if too_long:
            with block(f"elif {too_long}:"):
                add(error)
        with block("else:"):
            self._pack(before)
            add(f"write_uvarint({self._out}, {size} + 1)")

    def _array(self, field: Field, value: str) -> None:
        add, block = self._source.add, self._source.block
        items, count = self._source.name("items"), self._source.name("count")
        null = self._null(field)
        before = self._taken() if self._is_flexible else []
        add(f"{items} = {value}")
        with block(f"if {items}:"):
            if self._structs is None:
                with block(f"if type({items}) is not list:"):
                    add(f"{items} = iterated({items})")
            add(f"{count} = len({items})")
            if self._is_flexible:
                self._compact_length(count, before)
                self._elements(field, items, count)
        with block(f"elif {items} is None:"):
            self._absent(field.name, count, null, before)
        with block("else:"):
            if self._is_flexible:
                self._pack([*before, ("B", "1")])
            else:
                add(f"{count} = 0")
        if not self._is_flexible:
            self._pending.append(("i", count))
            self._flush()
            with block(f"if {count} > 0:"):
                self._elements(field, items, count)

    def _elements(self, field: Field, items: str, count: str) -> None:
        if field.kind in _NUMBERS:
            code = LAYOUTS[field.kind]
            with self._source.block(f"if {count} < {TABLE_SIZE}:"):
                self._source.add(f'{self._out} += PACKERS["{code}"][{count}](*{items})')
            with self._source.block("else:"):
                self._source.add(f'write_numbers({self._out}, {items}, "{code}")')
            return
        element = self._source.name("element")
        with self._source.block(
            f"for {element} in {items} if {count} < {WRITE_STEPS} or not is_pausing()"
            f" else in_steps({items}, every={WRITE_STEPS}):"
        ):
            if field.kind == "struct":
                self._struct(field.fields, element)
            elif field.kind == "uuid":
                self._fixed(field.kind, element)
            else:
                self._text(field.kind, f"{field.name} element", element, null=None)
            self._flush()
