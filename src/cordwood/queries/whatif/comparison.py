"""Cleanings with the settings in force and with changed ones, side by side.

Values, and the plan of both sides for logs that share limits: pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cordwood.cleanup.plan.check_plan import DAY_MS, CheckPlan, bytes_of_next_day, plan_check_of
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.shared_retention import DirectoryLimits, SharedLog
from cordwood.configs.levels import Level, Origin
from cordwood.configs.log_config import LogConfig
from cordwood.configs.static_topics import property_name
from cordwood.configs.table import TOPIC_SETTINGS
from cordwood.queries.partitions import SkippedPartition
from cordwood.queries.whatif.effects import Outcome, changed_settings
from cordwood.storage.log_directory import InUse

#: Settings that a log without `delete` in its policy does not use.
_OF_RETENTION: Final = ("retention.", "cordwood.retention.")
#: The settings in force, and the changed ones.
NOW, THEN = "now", "then"
SIDES: Final = (NOW, THEN)


@dataclass(slots=True, kw_only=True)
class Compared:
    """One partition; `now` and `then` are None if a side could not be found out: see `reason`.

    With `is_same`, the change does nothing, whatever the records are (`PlannedBoth.is_same`).
    `next_24h` is as that of `PlannedBoth`.
    """

    topic: str
    partition: int
    log_dir: str
    view: LogView
    then_view: LogView
    next_24h: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    now: Outcome | None = None
    then: Outcome | None = None
    reason: str = ""
    is_same: bool = False

    @property
    def name(self) -> str:
        """Topic and partition."""
        return f"{self.topic}-{self.partition}"

    def outcome(self, side: str) -> Outcome | None:
        """The outcome on one of `SIDES`, None if it is unknown."""
        return self.now if side == NOW else self.then

    def view_of(self, side: str) -> LogView:
        """The log with the settings of one of `SIDES`."""
        return self.view if side == NOW else self.then_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Overruled:
    """A changed setting of the broker that a topic has another value of, and from where."""

    topic: str
    setting: str
    value: str
    source: str


def overruled_by_topics(
    origins: Mapping[str, Mapping[str, Origin]], changed: Collection[str]
) -> list[Overruled]:
    """Topics' own values of settings that change for the broker, which the change does not affect.

    Args:
        origins: by topic and setting, where the value comes from.
        changed: the settings that change for the broker, by its names or those of topics.
    """
    names = [
        name
        for name, setting in TOPIC_SETTINGS.items()
        if {name, *(broker.name for broker in setting.broker_names)} & set(changed)
    ]
    return [
        Overruled(topic=topic, setting=name, value=origin.value, source=origin.source)
        for topic, of_topic in sorted(origins.items())
        for name in names
        if (origin := of_topic.get(name)) is not None
        and (origin.level is Level.TOPIC or origin.key == property_name(topic, name))
    ]


@dataclass(slots=True, kw_only=True)
class Comparison:
    """Partitions that the changes concern, the changes by topic, and the others with the reason.

    Those that could not be read are in `failed`, and what topics have of their own in `overruled`.
    `broker_changes` are those of the limits of log directories, which all topics share. `seconds`
    is how long the run of a side took that measured its compactions, without the start of the
    engine, which took `session_seconds`.
    """

    changes: Mapping[str, Mapping[str, tuple[str, str]]]
    broker_changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    partitions: list[Compared] = field(default_factory=list)
    left_alone: list[SkippedPartition] = field(default_factory=list)
    failed: list[SkippedPartition] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    in_use: list[InUse] = field(default_factory=list)
    unchanged_topics: int = 0
    overruled: list[Overruled] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    session_seconds: float = 0.0


# ---- plans


@dataclass(frozen=True, slots=True, kw_only=True)
class BothSettings:
    """A log with the settings in force, and the view of it with the changed settings."""

    log: SharedLog
    then_view: LogView

    @property
    def then(self) -> LogConfig:
        """The changed settings."""
        return self.then_view.config


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBoth:
    """Checks of retention of a log with both groups of settings.

    `next_24h` are the bytes, on each of `SIDES`, that checks of the next 24 hours remove beyond
    this one, if nothing is appended or compacted.
    """

    log: BothSettings
    now: CheckPlan
    then: CheckPlan
    next_24h: Mapping[str, int]

    @property
    def changes(self) -> dict[str, tuple[str, str]]:
        """The settings of the log that change."""
        return changed_settings(self.log.log.view.config, self.log.then)

    @property
    def is_concerned(self) -> bool:
        """Whether its settings change, or what others leave of a limit that they share."""
        return bool(self.changes) or self.now.plan.expired != self.then.plan.expired

    @property
    def is_same(self) -> bool:
        """Whether a cleaning does the same on both sides, whatever the records are.

        So it is where only settings of retention change, and the policy has no `delete`.
        """
        return (
            all(name.startswith(_OF_RETENTION) for name in self.changes)
            and not (self.log.log.view.config.delete or self.log.then.delete)
            and self.now.plan.expired == self.then.plan.expired
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The limits of log directories on each of `SIDES`, and the space that there is.

    `free_bytes` and `freeing` are as those of `plan_check_of`.
    """

    limits: Mapping[str, DirectoryLimits] = field(
        default_factory=lambda: dict.fromkeys(SIDES, DirectoryLimits())
    )
    free_bytes: Mapping[str, int] = field(default_factory=dict)
    freeing: Collection[str] = ()

    @property
    def changes(self) -> dict[str, tuple[str, str]]:
        """The limits that change, by their setting."""
        now, then = (self.limits[side].settings for side in SIDES)
        return {name: (str(now[name]), str(then[name])) for name in now if now[name] != then[name]}


def plan_both(logs: Sequence[BothSettings], space: Space, *, now_ms: int) -> list[PlannedBoth]:
    """Both plans of all logs that share limits, in their order.

    A topic whose data would be on tiered storage is left alone.
    """
    plans, next_24h = [], []
    for side in SIDES:
        shared = [
            each.log
            if side == NOW
            else replace(
                each.log,
                view=each.then_view,
                is_deletable=each.log.is_deletable and not each.then.remote_storage_enable,
            )
            for each in logs
        ]
        first, in_a_day = (
            plan_check_of(
                shared,
                space.limits[side],
                free_bytes=space.free_bytes,
                freeing=space.freeing,
                now_ms=moment_ms,
            )
            for moment_ms in (now_ms, now_ms + DAY_MS)
        )
        plans.append(first)
        next_24h.append(bytes_of_next_day(first, in_a_day))
    return [
        PlannedBoth(log=log, now=now, then=then, next_24h=dict(zip(SIDES, soon, strict=True)))
        for log, now, then, *soon in zip(logs, *plans, *next_24h, strict=True)
    ]
