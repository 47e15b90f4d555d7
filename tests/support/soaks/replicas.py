"""Whether the replicas of a partition hold the same, as Kafka's own dump-log shows it.

What must be the same: the batches of a topic that is not compacted; of a compacted one the batches
above all replicas' cleaner checkpoints, and below them the newest record of each key, since every
replica is cleaned by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.kafka_tools import KafkaTools

_BATCH: Final = re.compile(r"^baseOffset: (\d+) ")
_RECORD: Final = re.compile(r"^\| offset: (\d+) .* key: (\S+)(?: payload: (.*))?$")
_POSITION: Final = re.compile(r"position: \d+ ")


@dataclass(slots=True)
class Dump:
    """A replica: its batches by base offset, with their records' lines; the records of each key."""

    batches: dict[int, list[str]] = field(default_factory=dict)
    records: dict[str, list[tuple[int, str | None]]] = field(default_factory=dict)

    def above(self, offset: int) -> dict[int, list[str]]:
        """The batches from an offset on."""
        return {base: lines for base, lines in self.batches.items() if base >= offset}

    def newest_below(self, offset: int) -> dict[str, tuple[int, str | None]]:
        """The newest record of each key below an offset."""
        newest = {}
        for key, records in self.records.items():
            below = [each for each in records if each[0] < offset]
            if below:
                newest[key] = max(below)
        return newest


def dump(tools: KafkaTools, directory: Path) -> Dump:
    """Parses the output of Kafka's dump-log for a partition's segments."""
    found = Dump()
    files = ",".join(str(path) for path in sorted(directory.glob("*.log")))
    done = tools.run("dump-log", "--print-data-log", "--files", files)
    if done.code != 0:
        raise AssertionError(f"dump-log of {directory} has failed: {done.err}")
    lines: list[str] = []
    for line in done.out.splitlines():
        if batch := _BATCH.match(line):
            lines = found.batches.setdefault(int(batch[1]), [])
        elif record := _RECORD.match(line):
            found.records.setdefault(record[2], []).append((int(record[1]), record[3]))
        elif not line.startswith("| "):
            continue
        lines.append(_POSITION.sub("", line))
    return found


def difference(dumps: Mapping[int, Dump], horizon: int) -> str:
    """Difference between the first replica and another; empty if none differs.

    Args:
        dumps: the replicas by their brokers.
        horizon: the highest of their cleaner checkpoints; 0 if the topic is not compacted.
    """
    (first, one), *others = dumps.items()
    for node_id, other in others:
        if one.above(horizon) != other.above(horizon):
            return f"brokers {first} and {node_id} have other batches from {horizon} on"
        if one.newest_below(horizon) != other.newest_below(horizon):
            return f"brokers {first} and {node_id} have other values of keys below {horizon}"
    return ""
