"""What a handler of an API is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker

Fields = Mapping[str, object]
"""A response's fields, by the names that kio gives them; versions that lack one leave it out."""

Response = Fields | Awaitable[Fields | None] | None
"""None: the request wants no answer (Produce with acks=0)."""


class Call(NamedTuple):
    """Who asks, and in which version."""

    api_version: int
    client_id: str | None
    listener: str
    client_host: str
    correlation_id: int
    client_software: tuple[str, str]


class Api(NamedTuple):
    """A served API, with the lowest and the highest version served, both inclusive.

    `handle` runs on the event loop's thread.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handle: Callable[[Broker, Any, Call], Response]
