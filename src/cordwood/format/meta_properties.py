"""`meta.properties`: whose log directory it is.

Source: org.apache.kafka.metadata.properties.MetaProperties.
"""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.format.utf8 import decode_utf8
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, UnsupportedVersionError


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Version 1 is KRaft's; version 0 (of the ZooKeeper age) calls the node `broker.id`."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


def parse_meta_properties(data: Buffer | str) -> MetaProperties:
    """The file's content.

    Raises:
        CorruptError: a number is malformed, or version 1 lacks its cluster or node id.
        UnsupportedVersionError: the version is above 1.
    """
    found = parse_properties(data)
    version = _number(found, "version") or 0
    if version not in {0, 1}:
        raise UnsupportedVersionError(f"meta.properties of version {version}")
    node_id = _number(found, "node.id" if version == 1 else "broker.id")
    cluster_id = found.get("cluster.id")
    if version == 1 and (cluster_id is None or node_id is None):
        raise CorruptError("meta.properties of version 1 lacks cluster.id or node.id")
    return MetaProperties(
        version=version,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=found.get("directory.id"),
    )


def build_meta_properties(properties: MetaProperties) -> bytes:
    """The file's bytes; a comment line comes first, as java.util.Properties writes."""
    node = "node.id" if properties.version == 1 else "broker.id"
    values = {
        node: properties.node_id,
        "directory.id": properties.directory_id,
        "version": properties.version,
        "cluster.id": properties.cluster_id,
    }
    lines = [f"{key}={value}" for key, value in values.items() if value is not None]
    return "".join(f"{line}\n" for line in ["#", *lines]).encode()


def parse_properties(data: Buffer | str) -> dict[str, str]:
    r"""The keys and values of a Java properties text.

    `=`, `:` or white space divides key from value; a line that ends in an odd number of backslashes
    goes on in the next; `\t`, `\n`, `\r`, `\f`, `\uXXXX` are what they are in Java.

    Source: java.util.Properties.load.
    """
    text = data if isinstance(data, str) else decode_utf8(data)
    found: dict[str, str] = {}
    pending = ""
    for raw_line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw_line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        pending = ""
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        key, value = _split_property(line)
        found[key] = value
    if pending:
        key, value = _split_property(pending)
        found[key] = value
    return found


def _number(found: dict[str, str], key: str) -> int | None:
    text = found.get(key)
    if text is None:
        return None
    digits = text.strip().removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        raise CorruptError(f"{key}={text!r} is not a number")
    return int(text)


def _split_property(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(" \t\f")
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(" \t\f")
    return _unescape(key), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position >= len(text):
            out.append(character)
            continue
        escaped = text[position]
        position += 1
        digits = text[position : position + 4]
        if (
            escaped == "u"
            and len(digits) == 4
            and all(d in "0123456789abcdefABCDEF" for d in digits)
        ):
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append({"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escaped, escaped))
    return "".join(out)
