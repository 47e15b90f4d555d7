"""Kafka's requests and responses as typed classes: `FetchResponse`, `FetchResponse.PartitionData`.

A class is made of its schema when it is first imported. `data.pyi` declares the classes that the
code uses to type checkers; `tools/message_schemas.py` writes it.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message, message_type
from cordwood.protocol.apis import schema_of


def __getattr__(name: str) -> type[Message]:
    """The class of a message.

    Raises:
        AttributeError: there is no such message.
    """
    try:
        schema = schema_of(name)
    except KeyError:
        raise AttributeError(f"Kafka's protocol has no message {name}") from None
    made = globals()[name] = message_type(schema)
    made.__module__ = __name__
    return made
