"""UUIDs of topics, directories and nodes, and the texts that Kafka prints for them.

Source: org.apache.kafka.common.Uuid.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from functools import lru_cache

from cordwood.format.message_schema import uuid_text
from cordwood.model.rng import Rng


def text_of(each: uuid.UUID) -> str:
    """A UUID as Kafka prints it."""
    return uuid_text(each.bytes)


def texts_of(them: Iterable[uuid.UUID]) -> list[str]:
    """UUIDs as Kafka prints them."""
    return [text_of(each) for each in them]


@lru_cache(maxsize=1 << 16)
def uuid_of(text: str) -> uuid.UUID:
    """The UUID that Kafka prints as `text`."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def fresh_uuid(rng: Rng) -> uuid.UUID:
    """A new random UUID; as Kafka's, its text does not begin with a dash.

    Source: org.apache.kafka.common.Uuid.randomUuid.
    """
    while True:
        found = uuid.UUID(hex=rng.unique_id())
        if not text_of(found).startswith("-"):
            return found
