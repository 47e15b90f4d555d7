"""Principals of clients, and their bytes in forwarded requests (KIP-590).

Source: org.apache.kafka.common.security.auth.KafkaPrincipal,
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cordwood.format.messages.primitives import read_uvarint, write_uvarint
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError
from cordwood.model.utf8 import decode_utf8

_VERSION: Final = b"\0\0"
_BYTES_MIN: Final = 6


class Principal(NamedTuple):
    """The type of a principal, as `User`, and its name."""

    type: str
    name: str


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A client whose connection is not authenticated."""


def read_principal(data: Buffer | None) -> Principal | None:
    """Reads the principal of a forwarded request; None if it is malformed.

    Source: DefaultKafkaPrincipalBuilder.deserialize.
    """
    if data is None or len(data) < _BYTES_MIN or bytes(data[:2]) != _VERSION:
        return None
    texts = []
    at = len(_VERSION)
    try:
        for _ in range(2):
            length, at = read_uvarint(data, at)
            texts.append(decode_utf8(memoryview(data)[at : at + length - 1]))
            at += length - 1
    except (CorruptError, IndexError):
        return None
    return None if at >= len(data) else Principal(*texts)


def principal_bytes(principal: Principal) -> bytes:
    """Serializes a principal for a forwarded request.

    Source: DefaultKafkaPrincipalBuilder.serialize, DefaultPrincipalData.json.
    """
    out = bytearray(_VERSION)
    for text in (principal.type, principal.name):
        data = text.encode()
        write_uvarint(out, len(data) + 1)
        out += data
    out += b"\0\0"  # not authenticated by a token; no tags
    return bytes(out)
