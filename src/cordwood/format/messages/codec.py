"""Readers and writers of messages, compiled for each version at first use.

Source: org.apache.kafka.message.MessageDataGenerator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from cordwood.format.messages.message import Message, message_of
from cordwood.format.messages.primitives import COPIED_BYTES_MAX
from cordwood.format.messages.reader_source import ReaderSource
from cordwood.format.messages.schema import Field, MessageSchema, fields_of, has_records
from cordwood.format.messages.writer_source import WriterSource
from cordwood.format.varint import Buffer, CutOffError
from cordwood.model.errors import EncodingError, UnsupportedVersionError

Read = Callable[[Buffer, int], tuple[Any, int]]
Write = Callable[[Any], list[Any]]


class MessageCodec:
    """Reads and writes one version of a message.

    With `message_class`, structs are objects of it and its structs; without they are dicts.
    """

    def __init__(
        self,
        schema: MessageSchema,
        version: int,
        message_class: type[Message] | None = None,
    ) -> None:
        """Prepares the codec; nothing is compiled yet.

        Raises:
            UnsupportedVersionError: the version is not one of the schema's.
        """
        if version not in schema.versions:
            raise UnsupportedVersionError(f"{schema.name} of version {version}")
        self.schema = schema
        self.version = version
        self.is_flexible = version in schema.flexible
        self._class = message_class
        self._structs = None if message_class is None else message_class.structs
        self._copies = not has_records(schema.fields)
        self._readers: dict[tuple[bool, str], Read] = {}
        self._write: Write | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that this version has."""
        return fields_of(self.schema.fields, self.version)

    def __repr__(self) -> str:
        return f"{self.schema.name} of version {self.version}"

    def read(self, data: Buffer, position: int = 0, *, distinct: str = "") -> tuple[Any, int]:
        """The message at `position`, and the position after it.

        Args:
            data: the buffer. Records are views of it, everything else is copied.
            position: where the message begins.
            distinct: an array of the message of whose equal elements one is kept.

        Raises:
            CorruptError: the bytes are malformed.
        """
        try:
            if self._copies and len(data) - position <= COPIED_BYTES_MAX:
                # Bytes are quicker to index and to decode than a view.
                try:
                    return self._reader(distinct, of_bytes=True)(bytes(data), position)
                except UnicodeDecodeError:
                    pass
            return self._reader(distinct, of_bytes=False)(data, position)
        except (struct.error, IndexError):
            raise CutOffError(f"{self} is cut off", position=len(data)) from None

    def _reader(self, distinct: str, *, of_bytes: bool) -> Read:
        read = self._readers.get((of_bytes, distinct))
        if read is None:
            source = ReaderSource(
                self.schema, self.version, self._structs, distinct=distinct, of_bytes=of_bytes
            )
            read = _compiled(source.text(), source.context, "read", repr(self))
            self._readers[of_bytes, distinct] = read
        return read

    def message(self, values: Mapping[str, Any]) -> Message:
        """The message with those fields by name; structs may be mappings, too."""
        assert self._class is not None, "structs are dicts"
        return message_of(self._class, values)

    def write(self, values: Any) -> list[Any]:
        """The bytes of a message in parts, with the records between them that are not bytes.

        Args:
            values: an object of the message's class, or a mapping, and so for structs in it.

        Raises:
            EncodingError: a value does not fit its field: a string of more than 32,767 bytes,
                null where there must be a value, a number out of range.
        """
        write = self._write
        if write is None:
            source = WriterSource(self.schema, self.version, self._structs)
            write = self._write = _compiled(source.text(), source.context, "write", repr(self))
        try:
            made = self._class
            if type(values) is not made and made is not None and not isinstance(values, Message):
                values = message_of(made, values)
            return write(values)
        except (struct.error, AttributeError, TypeError, UnicodeError) as error:
            raise EncodingError(f"{self}: {error}") from error


def _compiled(source: str, context: dict[str, Any], name: str, what: str) -> Any:
    exec(compile(source, f"<{name} {what}>", "exec"), context)  # noqa: S102  # our own source
    return context[name]


@cache
def codec_of(schema: MessageSchema, version: int) -> MessageCodec:
    """The codec of a message whose structs are dicts.

    Raises:
        UnsupportedVersionError: the version is not one of the schema's.
    """
    return MessageCodec(schema, version)
