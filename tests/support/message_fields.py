"""The structs inside messages, as codecs of their own: tests walk every field of every message."""

from __future__ import annotations

from dataclasses import replace

from cordwood.format.messages.codec import MessageCodec
from cordwood.format.messages.message import message_type
from cordwood.format.messages.schema import Field


def nested(codec: MessageCodec, field: Field) -> MessageCodec:
    """The codec of the struct that a field holds, or an array of. It can only write."""
    schema = replace(codec.schema, name=field.attribute, fields=field.fields)
    return MessageCodec(schema, codec.version, message_type(schema))
