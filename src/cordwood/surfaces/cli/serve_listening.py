"""Listeners of `cordwood serve`, and the addresses for its clients: options, settings, notices."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.model.errors import ConfigError

if TYPE_CHECKING:
    from cordwood.configs.server_properties import BrokerSettings

_PORT: Final = 9092
_PORT_MAX: Final = 65_535
_LOOPBACK: Final = "127.0.0.1"


def bare_host(text: str) -> str:
    """A host without the brackets that an IPv6 address may have."""
    return text.strip("[]")


BindOption = Annotated[
    str | None,
    typer.Option(
        "--bind",
        "--host",
        metavar="HOST",
        help="Listen at this address for Kafka's clients; 0.0.0.0 for every one, then each client "
        "gets the address that it has reached, unless --advertise is given. Default: 127.0.0.1.",
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Listen at this port of --bind; 0 for any free one. Default: the listeners of "
        "--config, else 9092.",
    ),
]
AdvertiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="The address that clients get, where that is not the one of --bind: a name in DNS, or "
        "the port that a container publishes.",
    ),
]
HttpBindOption = Annotated[
    str,
    typer.Option(
        parser=bare_host,
        metavar="HOST",
        help="Listen at this address for HTTP; 0.0.0.0 for every one.",
    ),
]
HttpPortOption = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Metrics (/metrics) and the cleaner's status are served at this port of --http-bind; "
        "0 for any free port, -1 for none. Default: 9464, or any free one if that is in use.",
    ),
]
HttpRemoteChangesOption = Annotated[
    bool,
    typer.Option(
        "--http-remote-changes",
        help="Take requests over HTTP that change something (holds, erasures, the trash, the test "
        "clock) from other machines, too.",
    ),
]

_log = logging.getLogger("cordwood.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPlace:
    """Address of HTTP: a port of None is the usual one or any free, a negative one is none.

    `remote_changes`: whether other machines may change something.
    """

    host: str = _LOOPBACK
    port: int | None = None
    remote_changes: bool = False


def require_ports(port: int | None, http_port: int | None) -> None:
    """Checks the numbers of ports.

    Raises:
        ConfigError: one is none.
    """
    for option, number, least in (("--port", port, 0), ("--http-port", http_port, -1)):
        if number is not None and not least <= number <= _PORT_MAX:
            raise ConfigError(f"{option} {number}: expected {least} to {_PORT_MAX}")


def listening_settings(bind: str | None, port: int | None, advertise: str | None) -> dict[str, str]:
    """The settings that the options stand for, over those of a server.properties.

    Raises:
        ConfigError: `advertise` is not of the form HOST[:PORT], or names no single machine.
    """
    from cordwood.configs.listeners import ADVERTISE_REACHED  # noqa: PLC0415
    from cordwood.serving.addresses import in_url, is_wildcard  # noqa: PLC0415

    found = {}
    if bind is not None or port is not None:
        host = _LOOPBACK if bind is None else bare_host(bind)
        found["listeners"] = f"PLAINTEXT://{in_url(host)}:{_PORT if port is None else port}"
        if is_wildcard(host) and advertise is None:
            found[ADVERTISE_REACHED] = "true"
    if advertise is not None:
        host, advertised_port = _parsed(advertise)
        found["advertised.listeners"] = f"PLAINTEXT://{in_url(host)}:{advertised_port}"
    return found


def without_reached(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, where what is advertised wins over what `--bind` stands for."""
    from cordwood.configs.listeners import ADVERTISE_REACHED  # noqa: PLC0415

    is_advertised = bool(settings.get("advertised.listeners"))
    return {
        name: value
        for name, value in settings.items()
        if not (is_advertised and name == ADVERTISE_REACHED)
    }


def _parsed(advertise: str) -> tuple[str, int]:
    """A host and a port, which is 0 for the one that is listened at."""
    from cordwood.serving.addresses import is_wildcard  # noqa: PLC0415

    host, colon, port = advertise.rpartition(":")
    if not colon or advertise.endswith("]") or (advertise.count(":") > 1 and "[" not in advertise):
        host, port = advertise, "0"
    host = bare_host(host)
    if is_wildcard(host) or not port.isdecimal() or int(port) > _PORT_MAX:
        raise ConfigError(
            f"--advertise {advertise}: expected HOST or HOST:PORT, with the one address or name at "
            "which clients reach this broker"
        )
    return host, int(port)


def notices(settings: BrokerSettings, http: HttpPlace) -> list[tuple[int, str]]:
    """Notices about the addresses, with levels of logging; none for loopback alone."""
    from cordwood.serving.addresses import is_loopback  # noqa: PLC0415

    said = []
    open_ones = [
        f"{each.name}://{each.host or '*'}:{each.port}"
        for each in (*settings.listeners, *settings.controller_listeners)
        if not is_loopback(each.host)
    ]
    if open_ones:
        said.append(
            (
                logging.WARNING,
                "No authentication, no encryption: every client that reaches "
                f"{', '.join(open_ones)} can read, write and delete everything. Let only a network "
                "that you trust reach it",
            )
        )
        said.append((logging.INFO, f"Clients get {_address(settings)}"))
    if (http.port is None or http.port >= 0) and not is_loopback(http.host):
        may = "read and change" if http.remote_changes else "read, but not change,"
        said.append(
            (
                logging.WARNING,
                f"No authentication for HTTP: every client that reaches {http.host} can {may} what "
                "is served there",
            )
        )
    return said


def _address(settings: BrokerSettings) -> str:
    if settings.advertises_reached:
        return (
            "the address that each has reached; where that is a published port or a translated "
            "address (a container, NAT), name the one that clients use by --advertise HOST[:PORT]"
        )
    advertised = settings.advertised_listeners or settings.advertised_controller_listeners
    return ", ".join(
        f"{each.name}://{each.host or 'the name of this machine'}:{each.port or 'its port'}"
        for each in advertised
    )


def say(settings: BrokerSettings, http: HttpPlace) -> None:
    """Logs the warnings about settings, and the notices about addresses."""
    for warning in settings.warnings:
        _log.warning("%s", warning)
    for level, line in notices(settings, http):
        _log.log(level, "%s", line)
