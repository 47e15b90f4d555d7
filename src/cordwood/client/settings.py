"""Settings of a client: addresses, timeouts and the transport.

Source: org.apache.kafka.clients.ClientUtils, CommonClientConfigs (4.3.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from cordwood.client.errors import BadAddressError
from cordwood.client.retry import Backoff
from cordwood.client.transport import PlainTransport, Transport

API_TIMEOUT_MS: Final = 60_000
REQUEST_TIMEOUT_MS: Final = 30_000
RETRY_BACKOFF_MS: Final = 100
RETRY_BACKOFF_MAX_MS: Final = 1_000
ADDRESS: Final = re.compile(r"(?:.*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
"""A host and a port (Utils.getPort)."""

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of a client of a cluster; times in ms.

    `name` is the client in warnings, such as `AdminClient clientId=adminclient-1`. `refused_ms` is
    how long the first connection is tried while all addresses refuse it, None as long as a call.
    """

    bootstrap_servers: str
    client_id: str = "adminclient-1"
    name: str = "AdminClient clientId=adminclient-1"
    transport: Transport = field(default_factory=PlainTransport)
    api_timeout_ms: int = API_TIMEOUT_MS
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    retry_backoff_ms: int = RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = RETRY_BACKOFF_MAX_MS
    refused_ms: int | None = None

    def named(self, name: str) -> ClientSettings:
        """The same, with another name in warnings."""
        return replace(self, name=name)

    def backoff(self) -> Backoff:
        """The times between the attempts of a call that begins now."""
        return Backoff(first_ms=self.retry_backoff_ms, max_ms=self.retry_backoff_max_ms)


class BootstrapAddress(NamedTuple):
    """A bootstrap address as given, and its IP address."""

    host: str
    ip: str
    port: int


def bootstrap_addresses(
    text: str, *, resolve: Callable[[str, int], str | None], warn: Warn
) -> list[BootstrapAddress]:
    """The addresses of `host:port,...` for which `resolve` has an IP address.

    Raises:
        BadAddressError: one has no port, or none can be resolved.
    """
    found = []
    for url in (part.strip() for part in text.split(",")):
        if not url:
            continue
        match = ADDRESS.fullmatch(url)
        if match is None:
            raise BadAddressError(f"Invalid url in bootstrap.servers: {url}")
        host, port = match[1], int(match[2])
        ip = resolve(host, port)
        if ip is None:
            warn(
                f"Couldn't resolve server {url} from bootstrap.servers as DNS resolution "
                f"failed for {host}"
            )
        else:
            found.append(BootstrapAddress(host, ip, port))
    if not found:
        raise BadAddressError("No resolvable bootstrap urls given in bootstrap.servers")
    return found
