"""Whether a text is an IP address or the name of a host, as Java decides it.

Source: java.net.InetAddress.getByName, sun.net.util.IPAddressUtil (JDK 17), by which Kafka checks
the entities of IP quotas.

Differs: of a link-local address with the name of an interface as its zone, Java also requires that
the interface has a link-local address.
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import re
import socket
import string
from collections.abc import Iterable

_IPV4_LENGTH_MAX = 15
_IPV4_PARTS_MAX = 4
_ZEROS_BEFORE_DIGITS = re.compile(r"(?<![0-9a-fA-F])0+(?=[0-9a-fA-F])")


class HostText(enum.Enum):
    """The kind of a text, as found without a DNS lookup."""

    ADDRESS = enum.auto()
    NAME = enum.auto()
    INVALID = enum.auto()


def classify_host(text: str) -> HostText:
    """An IP address, a name that has to be looked up, or neither."""
    in_brackets = text.startswith("[")
    if in_brackets:
        if not text.endswith("]"):
            return HostText.INVALID
        text = text[1:-1]
    if not text:
        return HostText.INVALID
    if text[0] in string.hexdigits or text[0] == ":":
        if not in_brackets:
            if _is_decimal_ipv4(text):
                return HostText.ADDRESS
            if _is_other_ipv4(text):  # hexadecimal or octal: other programs read it differently
                return HostText.INVALID
        if _is_ipv6(text):
            return HostText.ADDRESS
        if ":" in text:
            return HostText.INVALID
    return HostText.INVALID if in_brackets else HostText.NAME


async def look_up_hosts(texts: Iterable[str]) -> frozenset[str]:
    """Returns the texts that are host names which the system's resolver can resolve."""
    loop = asyncio.get_running_loop()
    found = set()
    for text in dict.fromkeys(texts):
        try:
            await loop.getaddrinfo(text.encode(), None)
        except (OSError, ValueError):  # ValueError: a NUL, or a lone surrogate
            continue
        found.add(text)
    return frozenset(found)


def is_host(text: str) -> bool:
    """Whether a text is an IP address, or a host name that the system's resolver can resolve.

    The lookup may take seconds.
    """
    kind = classify_host(text)
    if kind is not HostText.NAME:
        return kind is HostText.ADDRESS
    try:
        socket.getaddrinfo(text.encode(), None)
    except (OSError, ValueError):
        return False
    return True


def _is_decimal_ipv4(text: str) -> bool:
    """One to four decimal numbers; the last one fills all remaining bytes."""
    parts = text.split(".")
    if len(text) > _IPV4_LENGTH_MAX or len(parts) > _IPV4_PARTS_MAX:
        return False
    if not all(part.isascii() and part.isdigit() for part in parts):
        return False
    *first, last = (int(part) for part in parts)
    return all(number < 1 << 8 for number in first) and last < 1 << 8 * (5 - len(parts))


def _is_other_ipv4(text: str) -> bool:
    try:
        socket.inet_aton(text)
    except (OSError, ValueError):
        return False
    return True


def _is_ipv6(text: str) -> bool:
    address, has_zone, zone = text.partition("%")
    try:
        found = ipaddress.IPv6Address(_ZEROS_BEFORE_DIGITS.sub("", address))
    except ValueError:
        return False
    if not has_zone:
        return True
    if found.ipv4_mapped is not None:
        return False
    return (zone.isascii() and zone.isdigit()) or _is_interface(zone)


def _is_interface(name: str) -> bool:
    try:
        socket.if_nametoindex(name)
    except (OSError, ValueError):
        return False
    return True
