"""The format of every checkpoint file: a version, the number of entries, one entry to a line.

Source: org.apache.kafka.server.common.CheckpointFile.
"""

from __future__ import annotations

from collections.abc import Iterable

from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, UnsupportedVersionError

VERSION = 0


def parse_checkpoint_text(data: Buffer | str, *, fields_per_entry: int) -> list[list[str]]:
    """The fields of every entry; none if the file is empty or has only a version line.

    Raises:
        CorruptError: a line is malformed, or the number of entries differs from the declared one.
        UnsupportedVersionError: the version is not 0.
    """
    lines = _decode(data).splitlines()
    if not lines:
        return []
    version = parse_number(lines[0])
    if version != VERSION:
        raise UnsupportedVersionError(f"checkpoint of version {version}")
    if len(lines) == 1:
        return []
    count = parse_number(lines[1])
    entries = []
    for line in lines[2:]:
        fields = line.split()
        if len(fields) != fields_per_entry:
            raise CorruptError(f"malformed line in checkpoint: {line!r}")
        entries.append(fields)
    if len(entries) != count:
        raise CorruptError(f"checkpoint declares {count} entries and has {len(entries)}")
    return entries


def build_checkpoint_text(lines: Iterable[str]) -> bytes:
    """The bytes of a checkpoint with those entries."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(entries)), *entries]).encode()


def parse_number(text: str) -> int:
    """The int64 that `text` represents.

    Raises:
        CorruptError: it is not an int64.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        raise CorruptError(f"{text!r} in a checkpoint is not a number")
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise CorruptError(f"{text!r} in a checkpoint is out of range")
    return number


def _decode(data: Buffer | str) -> str:
    if isinstance(data, str):
        return data
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise CorruptError("checkpoint is not UTF-8", position=error.start) from None
