"""APIs of Kafka 4.3's brokers that are not served, and why; ApiVersions does not name them.

`docs/apis.md` is made from this table and the handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SHARE = "share groups are not supported (KIP-932)"
_STREAMS = "streams groups are not supported; Kafka Streams uses classic groups (KIP-1071)"
_QUORUM = "this node is the whole quorum; no voter joins or leaves"
_TELEMETRY = "Kafka advertises it only if a plugin receives client metrics (KIP-714)"
_BETWEEN_BROKERS = "only between brokers and controllers; there is one node"

UNSERVED: Final[Mapping[int, str]] = {
    51: "there is no authentication: passwords would have no use",
    52: _BETWEEN_BROKERS,
    53: _BETWEEN_BROKERS,
    54: _BETWEEN_BROKERS,
    56: _BETWEEN_BROKERS,
    58: _BETWEEN_BROKERS,
    59: _BETWEEN_BROKERS,
    62: _BETWEEN_BROKERS,
    63: _BETWEEN_BROKERS,
    67: _BETWEEN_BROKERS,
    70: _BETWEEN_BROKERS,
    71: _TELEMETRY,
    72: _TELEMETRY,
    73: _BETWEEN_BROKERS,
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
