"""Listeners of a broker, read from its settings.

Source: org.apache.kafka.network.SocketServerConfigs.listenerListToEndPoints,
kafka.server.KafkaConfig, Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from cordwood.broker.configs.values import BrokerValues
from cordwood.model.errors import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final[Mapping[str, int]] = {
    "PLAINTEXT": 0,
    "SSL": 1,
    "SASL_PLAINTEXT": 2,
    "SASL_SSL": 3,
}
_ENDPOINT = re.compile(r"([^:/]+)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?\d{1,10})")


class Listener(NamedTuple):
    """A name with an address; `host` '' is every interface, `port` 0 any free one."""

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT

    @property
    def security_protocol(self) -> int:
        """The protocol as a registration has it."""
        return PROTOCOLS[self.protocol]


def protocols_of(values: BrokerValues, *, is_given: bool) -> dict[str, str]:
    """The protocol of each listener name; `is_given` says that the map is not the default.

    Raises:
        ConfigError: the map is not of the form that Kafka wants.
    """
    text = values.text("listener.security.protocol.map") or ""
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = entry.rpartition(":")
        if protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(
                "Invalid value for listener.security.protocol.map: "
                f"{entry} does not name one of {', '.join(PROTOCOLS)}"
            )
        found[name.strip().upper()] = protocol.strip().upper()
    if not is_given:
        for name in values.strings("controller.listener.names"):
            found.setdefault(name.upper(), PLAINTEXT)
    return found


def parse_listeners(
    setting: str, entries: Iterable[str], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """The listeners that `entries` of `setting` name.

    Raises:
        ConfigError: one that Kafka would not take, or two that share a name or a port.
    """
    found = tuple(_listener(setting, entry, protocols) for entry in entries)
    names = [each.name for each in found]
    if len(set(names)) != len(names):
        raise ConfigError(
            f"Each listener must have a different name, {setting}: {','.join(entries)}"
        )
    ports = [each.port for each in found if each.port]
    if setting == "listeners" and len(set(ports)) != len(ports):
        raise ConfigError(
            "Each listener must have a different port unless exactly one listener has an IPv4 "
            f"address and the other IPv6 address, {setting}: {','.join(entries)}"
        )
    return found


def _listener(setting: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    match = _ENDPOINT.fullmatch(entry.strip())
    if match is None or not -1 <= int(match[3]) <= 65535:
        raise ConfigError(f"Unable to parse {entry} to a broker endpoint ({setting})")
    name = match[1].upper()
    if name not in protocols:
        raise ConfigError(
            f"No security protocol defined for listener {name} ({setting}={entry}); "
            "add it to listener.security.protocol.map"
        )
    return Listener(name, match[2], int(match[3]), protocols[name])
