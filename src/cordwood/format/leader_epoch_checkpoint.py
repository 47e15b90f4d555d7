"""`leader-epoch-checkpoint`: the offset at which each leader epoch began.

Source: org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile.
"""

from __future__ import annotations

from collections.abc import Iterable

from cordwood.format.checkpoint_text import (
    build_checkpoint_text,
    parse_checkpoint_text,
    parse_number,
)
from cordwood.format.varint import Buffer


def parse_leader_epoch_checkpoint(data: Buffer | str) -> list[tuple[int, int]]:
    """Every entry as (epoch, start offset), in the order stored.

    Raises:
        CorruptError: the text is malformed.
        UnsupportedVersionError: its version is not 0.
    """
    return [
        (parse_number(epoch), parse_number(start_offset))
        for epoch, start_offset in parse_checkpoint_text(data, fields_per_entry=2)
    ]


def build_leader_epoch_checkpoint(entries: Iterable[tuple[int, int]]) -> bytes:
    """The bytes of a file with entries (epoch, start offset)."""
    return build_checkpoint_text(f"{epoch} {start_offset}" for epoch, start_offset in entries)
