"""An API with its handler, and what a handler returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from cordwood.format.messages.message import Message
from cordwood.serving.authorizer import Need
from cordwood.storage.reading.batch_heads import FileRange

C = TypeVar("C")
"""The context of a request: what its handler knows beside the request."""

Part = bytes | memoryview | FileRange


class Encoded(NamedTuple):
    """A response's body as it is sent: bytes, and ranges of files that need not be read."""

    parts: Sequence[Part]


Response = Message | Encoded | Awaitable[Message | Encoded | None] | None
"""None: the request wants no answer (Produce with acks=0)."""


class Parked(NamedTuple):
    """An answer that waits for what other clients do; it is given up when its client has gone.

    An answer that waits for work of this broker is a plain awaitable: the work is finished.
    """

    answer: Awaitable[Any]


def never(_context: object, _request: Any) -> bool:
    """No request is long because of what it asks."""
    return False


def always(_context: object, _request: Any) -> bool:
    """Every request may be long."""
    return True


INLINE_BYTES_MAX = 16 * 1024


class Api(NamedTuple, Generic[C]):
    """A served API, with the lowest and the highest version served, both inclusive.

    `handle` gets the context of the request, and the request, if the client may do all that it
    `needs`; where that depends on more than one field (topics, versions), `handle` authorizes. It
    runs in a turn of the event loop, or in slices (`cordwood.serving.slices`) if the request has
    more than `inline_bytes_max` bytes or `is_long` says so; `is_long` runs in a turn. Equal
    elements of the request's array `distinct` are read once. `parks` says that an awaitable which
    `handle` returns is of the kind that `Parked` describes. `is_last_unstable` says that Kafka may
    still change the highest version: it is served with `unstable.api.versions.enable` only.
    `counted_as` is the name under which metrics count a request, where that is not `name`.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handle: Callable[[C, Any], Response]
    needs: tuple[Need, ...] = ()
    parks: bool = False
    inline_bytes_max: int = INLINE_BYTES_MAX
    is_long: Callable[[C, Any], bool] = never
    distinct: str = ""
    is_last_unstable: bool = False
    counted_as: Callable[[Any], str] | None = None
