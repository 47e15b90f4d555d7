"""The Python source of a function that reads one version of a message.

The function is one straight line but for arrays and tags. Fields of fixed size that follow each
other are read by one `struct` call, together with the length of the string or array after them,
which in flexible versions is first taken for a varint of one byte.

Every length is held to the bounds of Kafka's generated readers before it is used, and arrays grow
element by element, never by a claimed count.

Source: org.apache.kafka.message.MessageDataGenerator, ByteBufferAccessor.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cordwood.format.messages.primitives import ARRAY_ELEMENTS_MAX, CONTEXT, READ_STEPS
from cordwood.format.messages.schema import LAYOUTS, Field, MessageSchema, default_of
from cordwood.format.messages.source import Source
from cordwood.model.uuids import ZERO_UUID

_JAVA_UTF8: Final = '"utf-8", "cordwood.java-replace"'
_NUMBERS: Final = frozenset(LAYOUTS) - {"uuid"}


class ReaderSource:
    """Writes the source of `read(data, at)`, which gives the message and where it ends.

    With `classes` structs are made into objects of those, without into dicts by the schema's names.
    Equal elements of the array `distinct` are kept once. With `of_bytes`, `data` is of type bytes
    and malformed UTF-8 raises UnicodeDecodeError, which is quicker; without, it is any buffer and
    malformed UTF-8 is replaced as Java replaces it. `context` has the values that the source names.
    """

    def __init__(
        self,
        schema: MessageSchema,
        version: int,
        classes: Mapping[str, type] | None,
        *,
        distinct: str,
        of_bytes: bool,
    ) -> None:
        self._version = version
        self._is_flexible = version in schema.flexible
        self._classes = classes
        self._distinct = distinct
        self._of_bytes = of_bytes
        self.context: dict[str, Any] = {**CONTEXT, "ZERO_UUID": ZERO_UUID}
        self._source = Source("def read(data, at):")
        # Fields of fixed size that are not read yet: type and variable.
        self._pending: list[tuple[str, str]] = []
        self._uuids: list[str] = []
        self._write(schema)

    def text(self) -> str:
        """The source."""
        return self._source.text()

    def _write(self, schema: MessageSchema) -> None:
        add = self._source.add
        add("end = len(data)")
        self._struct(schema.name, schema.fields, "message")
        add("return message, at")

    # ---- structs

    def _struct(self, name: str, fields: Sequence[Field], target: str) -> None:
        """Reads a struct into the variable `target`; nothing is pending afterwards."""
        variables = {field.name: self._source.name(f"{field.attribute}_") for field in fields}
        tagged: list[Field] = []
        absent: list[Field] = []
        for field in fields:
            if field.tag is not None:
                tagged.append(field)
                absent.append(field)
            elif self._version in field.versions:
                self._field(field, variables[field.name])
            else:
                absent.append(field)
        section = self._source.name("tags") if self._is_flexible else ""
        if section:
            self._pending.append(("B", section))
        self._flush()
        for field in absent:
            self._source.add(f"{variables[field.name]} = {self._default(field)}")
        if section:
            with self._source.block(f"if {section}:"):
                self._tags(tagged, variables)
        self._made(name, fields, variables, target)

    def _made(
        self, name: str, fields: Sequence[Field], variables: Mapping[str, str], target: str
    ) -> None:
        add = self._source.add
        if self._classes is None:
            items = ", ".join(f'"{field.name}": {variables[field.name]}' for field in fields)
            add(f"{target} = {{{items}}}")
            return
        self.context[name] = self._classes[name]
        add(f"{target} = new({name})")
        add(*(f"{target}.{field.attribute} = {variables[field.name]}" for field in fields))

    def _tags(self, fields: Sequence[Field], variables: Mapping[str, str]) -> None:
        add, block, name = self._source.add, self._source.block, self._source.name
        if not fields:
            add("at = skip_tags(data, at - 1)")
            return
        count, tag, size = name("count"), name("tag"), name("size")
        add(f"{count}, at = read_tag_count(data, at - 1)")
        with block(f"for _ in range({count}):"):
            add(f"{tag}, at = read_uvarint(data, at)", f"{size}, at = read_uvarint(data, at)")
            word = "if"
            for field in fields:
                with block(f"{word} {tag} == {field.tag}:"):
                    if self._version in field.versions:
                        # As in Kafka, the value ends where its type says, whatever its size is.
                        self._field(field, variables[field.name])
                        self._flush()
                    else:
                        add(f"raise tag_error({tag}, {self._version})")
                word = "elif"
            with block("else:"):
                add(f"at = skip_tag(data, at, {size})")

    def _default(self, field: Field) -> str:
        default = field.default
        if default is None:
            return "None"
        if field.is_array:
            return "[]"
        if field.kind == "struct":
            name = self._source.name("default_")
            if self._classes is None:
                self.context[name] = lambda: default_of(field)
                return f"{name}()"
            self.context[name] = self._default_object(field.struct, field.fields)
            return name
        return "ZERO_UUID" if field.kind == "uuid" else repr(default)

    def _default_object(self, name: str, fields: Sequence[Field]) -> Any:
        assert self._classes is not None
        made: Any = object.__new__(self._classes[name])
        for field in fields:
            value = field.default
            if field.kind == "struct" and not field.is_array and value is not None:
                value = self._default_object(field.struct, field.fields)
            setattr(made, field.attribute, value)
        return made

    # ---- fields

    def _field(self, field: Field, variable: str) -> None:
        is_nullable = field.is_nullable(self._version)
        if field.is_array:
            self._array(field, variable, is_nullable=is_nullable)
        elif field.kind == "struct":
            self._single_struct(field, variable, is_nullable=is_nullable)
        elif field.kind in LAYOUTS:
            self._fixed(field.kind, variable)
        else:
            self._text(field.kind, field.name, variable, is_nullable=is_nullable)

    def _fixed(self, kind: str, variable: str) -> None:
        self._pending.append((LAYOUTS[kind], variable))
        if kind == "uuid":
            self._uuids.append(variable)

    def _flush(self) -> None:
        """Reads what is pending."""
        pending, self._pending = self._pending, []
        add = self._source.add
        if len(pending) == 1 and pending[0][0] == "B":
            add(f"{pending[0][1]} = data[at]", "at += 1")
        elif pending:
            layout = struct.Struct(">" + "".join(code for code, _ in pending))
            name = self._source.name("unpack")
            self.context[name] = layout.unpack_from
            add(f"{', '.join(each for _, each in pending)}, = {name}(data, at)")
            add(f"at += {layout.size}")
        add(*(f"{each} = uuid_of_bytes({each})" for each in self._uuids))
        self._uuids = []

    def _single_struct(self, field: Field, variable: str, *, is_nullable: bool) -> None:
        if not is_nullable:
            self._struct(field.struct, field.fields, variable)
            return
        present = self._source.name("present")
        if field.tag is None:
            self._pending.append(("b", present))
            self._flush()
            condition = f"{present} < 0"
        else:
            self._flush()
            self._source.add(f"{present}, at = read_uvarint(data, at)")
            condition = f"{present} <= 0"
        with self._source.block(f"if {condition}:"):
            self._source.add(f"{variable} = None")
        with self._source.block("else:"):
            self._struct(field.struct, field.fields, variable)

    def _text(self, kind: str, name: str, variable: str, *, is_nullable: bool) -> None:
        add, block = self._source.add, self._source.block
        size, stop = self._source.name("size"), self._source.name("stop")
        is_string = kind == "string"
        value = {
            "string": f"data[at:{stop}].decode()"
            if self._of_bytes
            else f"str(data[at:{stop}], {_JAVA_UTF8})",
            "bytes": f"bytes(data[at:{stop}])",
            "records": f"memoryview(data)[at:{stop}]",
        }[kind]

        def take(length: str) -> None:
            add(f"{stop} = at + {length}")
            with block(f"if {stop} > end:"):
                add(f"raise bytes_error({length}, at, end)")
            add(f"{variable} = {value}", f"at = {stop}")

        def null() -> None:
            add(f"{variable} = None" if is_nullable else f'raise null_error("{name}")')

        self._length(size, "h" if is_string else "i")
        if self._is_flexible and is_string:
            with block(f"if 0 < {size} < 128:"):
                take(f"{size} - 1")
            if is_nullable:
                with block(f"elif not {size}:"):
                    null()
            with block("else:"):
                add(
                    f'{variable}, at = read_long_string(data, at - 1, end, "{name}", {is_nullable})'
                )
            return
        self._compact(size)
        with block(f"if {size} >= 0:"):
            take(size)
        with block("else:"):
            null()

    def _length(self, variable: str, code: str) -> None:
        """Reads a length; a compact one as the first byte of a varint alone."""
        self._pending.append(("B" if self._is_flexible else code, variable))
        self._flush()

    def _compact(self, variable: str) -> None:
        """Makes a length of the first byte of a compact one."""
        if not self._is_flexible:
            return
        with self._source.block(f"if {variable} < 128:"):
            self._source.add(f"{variable} -= 1")
        with self._source.block("else:"):
            self._source.add(f"{variable}, at = read_length(data, at - 1)")

    # ---- arrays

    def _array(self, field: Field, variable: str, *, is_nullable: bool) -> None:
        add, block = self._source.add, self._source.block
        count = self._source.name("count")
        self._length(count, "i")
        self._compact(count)
        with block(f"if {count} < 0:"):
            add(f"{variable} = None" if is_nullable else f'raise null_error("{field.name}")')
        with block(f"elif {count} > end - at or {count} > {ARRAY_ELEMENTS_MAX}:"):
            add(f"raise array_error({count}, at, end)")
        with block("else:"):
            self._elements(field, variable, count)

    def _elements(self, field: Field, variable: str, count: str) -> None:
        add, block = self._source.add, self._source.block
        if field.kind in _NUMBERS:
            code = LAYOUTS[field.kind]
            add(f'{variable}, at = read_numbers(data, at, {count}, "{code}")')
            return
        if field.kind == "uuid":
            add(f"{variable}, at = read_uuids(data, at, {count})")
            return
        element, append = self._source.name("element"), self._source.name("append")
        is_distinct = field.attribute == self._distinct
        if is_distinct:
            add(f"{variable} = {{}}", f"{append} = {variable}.setdefault")
        else:
            add(f"{variable} = []", f"{append} = {variable}.append")
        if self._is_row(field):
            self._rows(field, element, append, count)
        else:
            steps = f"range({count})"
            with block(
                f"for _ in {steps} if {count} < {READ_STEPS} or not is_pausing()"
                f" else in_steps({steps}, every={READ_STEPS}):"
            ):
                if field.kind == "struct":
                    self._struct(field.struct, field.fields, element)
                else:
                    name = f"{field.name} element"
                    self._text(field.kind, name, element, is_nullable=False)
                add(f"{append}({element})")
        if is_distinct:
            add(f"{variable} = list({variable})")

    def _is_row(self, field: Field) -> bool:
        """Whether the elements are structs of fixed size."""
        return (
            not self._is_flexible
            and all(
                inner.kind in LAYOUTS and not inner.is_array and inner.tag is None
                for inner in field.fields
                if self._version in inner.versions
            )
            and any(self._version in inner.versions for inner in field.fields)
        )

    def _rows(self, field: Field, element: str, append: str, count: str) -> None:
        here = [inner for inner in field.fields if self._version in inner.versions]
        layout = struct.Struct(">" + "".join(LAYOUTS[inner.kind] for inner in here))
        name = self._source.name("row")
        self.context[name] = layout
        variables = {inner.name: self._source.name(f"{inner.attribute}_") for inner in field.fields}
        for inner in field.fields:
            if inner not in here:
                self._source.add(f"{variables[inner.name]} = {self._default(inner)}")
        targets = ", ".join(variables[inner.name] for inner in here)
        with self._source.block(f"for {targets}, in read_rows({name}, data, at, {count}):"):
            for inner in here:
                if inner.kind == "uuid":
                    each = variables[inner.name]
                    self._source.add(f"{each} = uuid_of_bytes({each})")
            self._made(field.struct, field.fields, variables, element)
            self._source.add(f"{append}({element})")
        self._source.add(f"at += {layout.size} * {count}")
