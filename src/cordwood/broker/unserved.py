"""APIs of Kafka 4.3's brokers that are not served, and why; ApiVersions does not name them.

`docs/apis.md` is made from this table and the handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SHARE = "share groups are not supported (KIP-932)"
_STREAMS = "streams groups are not supported; Kafka Streams uses classic groups (KIP-1071)"
_QUORUM = "a controller here is the only voter of its quorum"
_TELEMETRY = "Kafka advertises it only if a plugin receives client metrics (KIP-714)"
_AT_CONTROLLERS = "served at the listener of a controller"

UNSERVED: Final[Mapping[int, str]] = {
    51: "there is no authentication: passwords would have no use",
    52: _QUORUM,
    53: _QUORUM,
    54: _QUORUM,
    56: _AT_CONTROLLERS,
    58: _AT_CONTROLLERS,
    59: _AT_CONTROLLERS,
    62: _AT_CONTROLLERS,
    63: _AT_CONTROLLERS,
    67: _AT_CONTROLLERS,
    70: _QUORUM,
    71: _TELEMETRY,
    72: _TELEMETRY,
    73: _AT_CONTROLLERS,
    76: _SHARE,
    77: _SHARE,
    78: _SHARE,
    79: _SHARE,
    80: _QUORUM,
    81: _QUORUM,
    82: _QUORUM,
    83: _SHARE,
    84: _SHARE,
    85: _SHARE,
    86: _SHARE,
    87: _SHARE,
    88: _STREAMS,
    89: _STREAMS,
    90: _SHARE,
    91: _SHARE,
    92: _SHARE,
}
