"""UUIDs of topics, directories and nodes: `uuid.UUID` everywhere, and the text that Kafka prints.

Kafka has no null UUID. Its zero UUID, which stands for "none", is `ZERO_UUID`.

Source: org.apache.kafka.common.Uuid.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from uuid import UUID

from cordwood.model.errors import CorruptError
from cordwood.model.rng import Rng

ZERO_UUID: Final = UUID(int=0)

_UUID_BYTES: Final = 16
_PADDED_SIZE: Final = 24
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}", re.ASCII)


@lru_cache(maxsize=1 << 14)
def uuid_of_bytes(data: bytes) -> UUID:
    """The UUID of 16 bytes. Cached: the same few hundred topics are named in every request."""
    return UUID(bytes=data)


def uuid_text(uuid: UUID) -> str:
    """A UUID as Kafka prints it: 22 characters of URL-safe base64.

    Source: org.apache.kafka.common.Uuid.toString.
    """
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def uuid_texts(uuids: Iterable[UUID]) -> list[str]:
    """UUIDs as Kafka prints them."""
    return [uuid_text(each) for each in uuids]


@lru_cache(maxsize=1 << 14)
def parse_uuid(text: str) -> UUID:
    """The UUID that Kafka prints as `text`; padding may follow.

    Raises:
        CorruptError: it is not 16 bytes in URL-safe base64; the reason in Kafka's words.

    Source: org.apache.kafka.common.Uuid.fromString.
    """
    if len(text) > _PADDED_SIZE:
        raise CorruptError(
            f"Input string with prefix `{text[:_PADDED_SIZE]}` is too long to be decoded as a "
            "base64 UUID"
        )
    if len(text) == 1:
        raise CorruptError("Input byte[] should at least have 2 bytes for base64 bytes")
    try:
        if not _BASE64.fullmatch(text) or (text.endswith("=") and len(text) % 4):
            raise ValueError
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise CorruptError(f"Illegal base64 in {text}") from None
    if len(data) != _UUID_BYTES:
        raise CorruptError(
            f"Input string `{text}` decoded as {len(data)} bytes, which is not equal to the "
            f"expected {_UUID_BYTES} bytes of a base64-encoded UUID"
        )
    return UUID(bytes=data)


def fresh_uuid(rng: Rng) -> UUID:
    """A new random UUID; as Kafka's since 4.4, its text has no dash.

    Source: org.apache.kafka.common.Uuid.randomUuid.
    """
    while True:
        found = UUID(hex=rng.unique_id())
        if "-" not in uuid_text(found):
            return found
