"""Content of a log after one side's cleaning, to be compared with the other's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordwood.storage.reading.segment_reader import SegmentReader
from loggen import TOPIC
from phases import sources_of
from support.kafka import read_checkpoint


def contents_of(log_dir: Path) -> dict[str, Any]:
    """Records and bytes of the topic's segments, their names, and the cleaner's checkpoint."""
    records = size = 0
    names = []
    for partition in sorted(log_dir.glob(f"{TOPIC}-*")):
        for source in sources_of(partition):
            names.append(f"{partition.name}/{source.base_offset}")
            size += source.size_bytes
            for block in SegmentReader().blocks(source):
                records += block.records_count
    checkpoints = {
        name: offset
        for name, offset in read_checkpoint(log_dir / "cleaner-offset-checkpoint").items()
        if name.startswith(f"{TOPIC}-")
    }
    return {"records": records, "bytes": size, "segments": names, "checkpoints": checkpoints}


def require_agreement(kafka: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Checks that both sides left as many records in the same segments.

    Raises:
        AssertionError: they did not.
    """
    for what in ("records", "segments", "checkpoints"):
        assert kafka[what] == ours[what], f"{what}: Kafka {kafka[what]}, ours {ours[what]}"
