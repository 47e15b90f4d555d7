"""Addresses as sockets have them and as people write them."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple


class Address(NamedTuple):
    """A host, which is an address or a name, and a port."""

    host: str
    port: int


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone, by its name or its address; no name is looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether a host is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_wildcard(host: str) -> bool:
    """Whether a host stands for every address of this machine."""
    if not host:
        return True
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def unmapped(host: str) -> str:
    """The IPv4 address in an IPv6 one (`::ffff:10.0.0.1`), by which a client of IPv4 knows it."""
    return host.removeprefix("::ffff:") if "." in host else host


def in_url(host: str) -> str:
    """A host as it stands before a port: an IPv6 address has brackets."""
    return f"[{host}]" if ":" in host else host


def machine_name() -> str:
    """The name by which other machines know this one."""
    return socket.getfqdn()


def addresses_of(host: str) -> frozenset[str]:
    """The addresses that a host has now.

    Raises:
        OSError: it is not known.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return frozenset(str(each[4][0]) for each in found)
