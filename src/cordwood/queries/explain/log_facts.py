"""The facts about one log that questions are answered from: a view, and what is around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.rules.blockers import Blocker
from cordwood.cleanup.rules.group_losses import NotedLoss
from cordwood.cleanup.rules.log_view import LogView
from cordwood.configs.levels import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction without a marker. `started_ms` is None where its first batch was not read."""

    producer_id: int
    producer_epoch: int
    start_offset: int
    started_ms: int | None = None
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Longest delays between the moment at which a plan is due and its effect, in ms.

    `check_ms` is between two checks of retention, `backoff_ms` between two checks of the cleaner,
    `file_delete_ms` until the files of a removed segment go. A broker's trash keeps them from the
    removal on for `trash_ms`, 0 without one, and looks every `check_ms`. They are 0 for a stopped
    log, which is cleaned when `cordwood clean` runs.
    """

    check_ms: int = 0
    backoff_ms: int = 0
    file_delete_ms: int = 0
    trash_ms: int = 0

    @property
    def removal_ms(self) -> int:
        """The time from the removal of a segment until no file has its records."""
        in_trash_ms = self.trash_ms + self.check_ms if self.trash_ms else 0
        return max(self.file_delete_ms, in_trash_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """One log at one moment.

    `origins` says where each setting in force comes from, by Kafka's name of the topic setting.
    `cleaner` is what keeps the cleaner from this log, whatever the log holds: it is quarantined,
    paused, or the cleaner is off. `throttle_bytes` is how many bytes a second a cleaning may read
    and write, None for no limit. `losses` are what groups have lost of it, as far as is remembered.
    `check` is the plan of the next check of retention.
    """

    view: LogView
    log_dir: str
    check: CheckPlan
    origins: Mapping[str, Origin] = field(default_factory=dict)
    transactions: tuple[OpenTransaction, ...] = ()
    cleaner: tuple[Blocker, ...] = ()
    delays: Delays = field(default_factory=Delays)
    throttle_bytes: int | None = None
    losses: tuple[NotedLoss, ...] = ()
    warnings: tuple[str, ...] = ()


def bytes_a_second(rate: float) -> int | None:
    """The limit of log.cleaner.io.max.bytes.per.second; None where it is the default, no limit."""
    return int(rate) if rate < 1 << 62 else None
