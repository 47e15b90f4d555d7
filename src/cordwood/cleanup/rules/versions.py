"""Decides which record of a key survives where records have versions: KIP-280.

A pure rule; `cordwood.cleanup.rules.record_longs` reads versions of whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.configs.log_config import LogConfig
from cordwood.format.record import Record
from cordwood.format.record_longs import header_long


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRule:
    """The version of a record, of which the highest survives.

    The value of the last header with the key `header`, a big-endian integer of 8 bytes, or, where
    that is None, the timestamp. A record without a version loses against any with one. Of equal
    versions that of the higher offset survives.
    """

    header: str | None = None

    @classmethod
    def of(cls, config: LogConfig) -> VersionRule | None:
        """The rule of a topic; None where the newest record survives, as in Kafka."""
        if config.cordwood_compaction_strategy == "timestamp":
            return cls()
        header = config.cordwood_compaction_strategy_header
        if config.cordwood_compaction_strategy == "header" and header:
            return cls(header=header)
        return None

    def version_of(self, record: Record) -> int | None:
        """The version of a record, None if it has none."""
        return record.timestamp if self.header is None else header_long(record, self.header)
