"""`meta.properties`: the node and cluster that a log directory belongs to.

Source: org.apache.kafka.metadata.properties.MetaProperties.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from cordwood.format.properties import parse_properties
from cordwood.format.varint import Buffer
from cordwood.model.errors import ConfigError, CorruptError, UnsupportedVersionError
from cordwood.model.uuids import parse_uuid, uuid_text


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Version 1 is KRaft's; version 0 (ZooKeeper mode) names the node `broker.id`."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: UUID | None


def parse_meta_properties(data: Buffer | str, *, reads_directory_id: bool = True) -> MetaProperties:
    """The file's content.

    Args:
        data: the file's bytes, or their text.
        reads_directory_id: if not, the directory's id may be malformed, and the result has none.

    Raises:
        CorruptError: an escape, a number or the directory's id is malformed, or version 1 lacks
            its cluster or node id.
        UnsupportedVersionError: the version is above 1.
    """
    # Java reads the bytes of a properties file as Latin-1.
    text = data if isinstance(data, str) else bytes(data).decode("latin-1")
    try:
        found = parse_properties(text, name="meta.properties")
    except ConfigError as error:
        raise CorruptError(str(error)) from error
    version = _number(found, "version") or 0
    if version not in {0, 1}:
        raise UnsupportedVersionError(f"meta.properties of version {version}")
    node_id = _number(found, "node.id" if version == 1 else "broker.id")
    cluster_id = found.get("cluster.id")
    if version == 1 and (cluster_id is None or node_id is None):
        raise CorruptError("meta.properties of version 1 lacks cluster.id or node.id")
    directory_id = found.get("directory.id") if reads_directory_id else None
    return MetaProperties(
        version=version,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=None if directory_id is None else _uuid(directory_id),
    )


def build_meta_properties(properties: MetaProperties) -> bytes:
    """The file's bytes; the first line is a comment, as java.util.Properties writes it."""
    node = "node.id" if properties.version == 1 else "broker.id"
    directory_id = properties.directory_id
    values = {
        node: properties.node_id,
        "directory.id": None if directory_id is None else uuid_text(directory_id),
        "version": properties.version,
        "cluster.id": properties.cluster_id,
    }
    lines = [f"{key}={value}" for key, value in values.items() if value is not None]
    return "".join(f"{line}\n" for line in ["#", *lines]).encode()


def _uuid(text: str) -> UUID:
    try:
        return parse_uuid(text)
    except CorruptError as error:
        raise CorruptError(f"Unable to read directory.id as a Uuid: {error.reason}") from error


def _number(found: dict[str, str], key: str) -> int | None:
    text = found.get(key)
    if text is None:
        return None
    digits = text.strip().removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        raise CorruptError(f"Unable to read {key} as a base-10 number.")
    return int(text)
