"""Times to live of records: cordwood.record.ttl.header.

A record expires at its timestamp (with LogAppendTime the batch's) and the milliseconds in its last
header of that key.
"""

from __future__ import annotations

from collections.abc import Iterator

from cordwood.cleanup.rules.removal_rule import RemovalRule
from cordwood.configs.log_config import LogConfig
from cordwood.format.native.record_longs import EXPIRY
from cordwood.format.record import Record
from cordwood.format.record_longs import expiry_ms


class TimeToLive(RemovalRule):
    """Removes records whose time to live has ended."""

    __slots__ = ()

    setting = "cordwood.record.ttl.header"
    name = "ttl_header"
    kind = EXPIRY
    why_due = "a dirty record has expired (cordwood.record.ttl.header)"

    def goes_ms(self, record: Record) -> int | None:
        """The moment at which the record expires."""
        return expiry_ms(record, self.header)

    def text(self, goes_ms: int, now_ms: int) -> str:
        """The end of its time to live, in words."""
        left_ms = goes_ms - now_ms
        return f"its time to live {f'ends in {left_ms} ms' if left_ms > 0 else 'has ended'}"

    @classmethod
    def remarks(cls, config: LogConfig) -> Iterator[tuple[str, str]]:
        """Remarks on lags that hold expired records back."""
        if cls.of(config) is not None and config.min_compaction_lag_ms > 0:
            yield (
                "lag-holds-expired-records",
                f"min.compaction.lag.ms {config.min_compaction_lag_ms} holds records back that "
                "have expired: they stay until their segment is older",
            )
