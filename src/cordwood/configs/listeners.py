"""Listeners of a broker, read from its settings.

Source: org.apache.kafka.network.SocketServerConfigs.listenerListToEndPoints,
kafka.server.KafkaConfig.listeners, kafka.server.DynamicListenerConfig, Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from cordwood.configs.broker_config import (
    BrokerConfig,
    parse_pairs,
)
from cordwood.configs.resource import (
    Texts,
)
from cordwood.model.errors import ConfigError
from cordwood.model.security_protocol import SecurityProtocol

#: Whether a broker that is alone in its cluster, and listens at every address of its machine, names
#: to each client the address that this client has reached.
ADVERTISE_REACHED: Final = "cordwood.advertise.reached.address"
_MAP: Final = "listener.security.protocol.map"
_ENDPOINT = re.compile(r"([^:/]+)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?\d{1,10})")


class Listener(NamedTuple):
    """A name with an address; `host` '' is every interface, `port` 0 any free one."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


def listeners_of(
    values: BrokerConfig, given: Texts, *, setting: str = "listeners"
) -> tuple[Listener, ...]:
    """The listeners that `setting` names, those of the controller among them.

    `given` are the settings as written: without a map of protocols, that of the controller's
    listeners is optional.

    Raises:
        ConfigError: Kafka would not take them.
    """
    protocols = listener_protocols(values, given)
    entries = values.strings(setting)
    shown = ", ".join(entries)
    try:
        found = tuple(_listener(entry, protocols) for entry in entries)
        _require_distinct(setting, found, shown)
    except ConfigError as error:
        raise ConfigError(f"Error creating broker listeners from '[{shown}]': {error}") from error
    return found


def listener_protocols(values: BrokerConfig, given: Texts) -> dict[str, SecurityProtocol]:
    """The security protocol of each listener name, those of the controllers' listeners among them.

    Raises:
        ConfigError: a protocol is unknown.
    """
    found: dict[str, SecurityProtocol] = {}
    for name, protocol in parse_pairs(_MAP, values.text(_MAP) or "").items():
        if protocol.upper() not in SecurityProtocol.__members__:
            raise ConfigError(
                "No enum constant org.apache.kafka.common.security.auth.SecurityProtocol."
                f"{protocol.upper()}"
            )
        found[name.upper()] = SecurityProtocol[protocol.upper()]
    if _MAP not in given:
        for name in values.strings("controller.listener.names"):
            found.setdefault(name.upper(), SecurityProtocol.PLAINTEXT)
    return found


def require_controller_listener(
    old: Iterable[Listener], new: Iterable[Listener], values: BrokerConfig
) -> None:
    """Checks that a controller with a listener, `old`, keeps one.

    Kafka requires the listener of every controller; here one may serve its own broker alone.

    Raises:
        ConfigError: none of `new` is the controller's.
    """
    names = {name.upper() for name in values.strings("controller.listener.names")}
    if any(old) and names.isdisjoint(each.name for each in new):
        raise ConfigError(
            "requirement failed: controller.listener.names must contain at least one value "
            "appearing in the 'listeners' configuration when running the KRaft controller role"
        )


def require_same_listeners(old: Iterable[Listener], new: Iterable[Listener]) -> None:
    """Checks that a running broker can go from `old` to `new`; addresses are not looked at.

    Raises:
        ConfigError: names come or go, which Cordwood cannot do, or a protocol changes.
    """
    before = {each.name: each.protocol for each in old}
    after = {each.name: each.protocol for each in new}
    for name, protocol in after.items():
        if before.get(name, protocol) != protocol:
            raise ConfigError(
                f"Security protocol cannot be updated for existing listener ListenerName({name})"
            )
    if before.keys() != after.keys():
        raise ConfigError("Listeners cannot be added or removed while the broker runs")


def _listener(entry: str, protocols: Mapping[str, SecurityProtocol]) -> Listener:
    match = _ENDPOINT.fullmatch(entry.strip())
    if match is None or not -1 <= int(match[3]) <= 65535:
        raise ConfigError(f"Unable to parse {entry} to a broker endpoint")
    name = match[1].upper()
    if name not in protocols:
        raise ConfigError(f"No security protocol defined for listener {name}")
    return Listener(name, match[2], int(match[3]), protocols[name])


def _require_distinct(setting: str, found: Sequence[Listener], shown: str) -> None:
    if len({each.name for each in found}) != len(found):
        raise ConfigError(f"Each listener must have a different name, {setting}: [{shown}]")
    ports = [each.port for each in found if each.port]
    if setting == "listeners" and len(set(ports)) != len(ports):
        raise ConfigError(
            "Each listener must have a different port unless exactly one listener has an IPv4 "
            f"address and the other IPv6 address, {setting}: [{shown}]"
        )
