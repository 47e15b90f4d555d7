"""The APIs of Kafka's protocol, and the schemas of their requests and responses.

The schemas are in `kafka_4_4.txt` beside this module; one is parsed when it is first asked for.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from cordwood.format.messages.schema import MessageSchema, VersionRange, schemas, snake_case

_FILE: Final = "kafka_4_4.txt"
_MESSAGE: Final = re.compile(r"^message (\w+) key=(\d+) versions=(\S+)", re.MULTILINE)
_REQUEST: Final = "Request"


class KnownApi(NamedTuple):
    """An API: Kafka's name, the same in snake case, and its versions, both inclusive."""

    name: str
    snake_name: str
    min_version: int
    max_version: int


def _read() -> tuple[dict[int, KnownApi], dict[str, str]]:
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    apis: dict[int, KnownApi] = {}
    messages: dict[str, str] = {}
    heads = list(_MESSAGE.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=True):
        message, key, versions = head.groups()
        messages[message] = text[head.start() : end]
        if message.endswith(_REQUEST):
            name = message.removesuffix(_REQUEST)
            there = VersionRange.parse(versions)
            apis[int(key)] = KnownApi(name, snake_case(name), there.lowest, there.highest)
    return apis, messages


APIS, _TEXTS = _read()
"""Every API by its key; the notation of every message by its name."""


@cache
def schema_of(message: str) -> MessageSchema:
    """The schema of a request or response by its name, such as `FetchResponse`.

    Raises:
        KeyError: there is no such message.
    """
    return schemas(_TEXTS[message])[message]
