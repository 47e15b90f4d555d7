"""Topics whose `retention.ms` is taken for Kafka's default, as nothing says what the broker's is.

A log directory holds the settings of topics and the broker's dynamic ones, but not its
`server.properties`. Without that file it is not known how long records of a topic without a setting
of its own are kept: a missing file must never mean that they go after seven days.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.plan.request import Resolved
from cordwood.cleanup.rules.retention import TIME
from cordwood.model.errors import ConfigError

SETTING: Final = "retention.ms"
_NAMED_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRetention:
    """The topics, in order of their names; false if there are none."""

    topics: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.topics)

    def __str__(self) -> str:
        named = ", ".join(self.topics[:_NAMED_MAX])
        if len(self.topics) > _NAMED_MAX:
            named += f" and {len(self.topics) - _NAMED_MAX} more"
        return (
            f"{SETTING} of {named} is taken for Kafka's default, 7 days, as nothing says what the "
            "broker's is: give its file with --server-properties FILE, or say with --defaults "
            "that it has none"
        )

    def among(self, topics: Collection[str]) -> AssumedRetention:
        """The topics that are among others."""
        return AssumedRetention(topics=tuple(each for each in self.topics if each in topics))

    def require_none(self) -> None:
        """Refuses to remove records for it.

        Raises:
            ConfigError: there are such topics.
        """
        if self:
            raise ConfigError(f"{self}. Nothing was changed: retention would remove records")


def assumed_of(resolved: Iterable[tuple[str, Resolved]]) -> AssumedRetention:
    """The topics that retention by time applies to; each is given with its settings."""
    found = {topic for topic, each in resolved if each.is_retention_assumed and each.config.delete}
    return AssumedRetention(topics=tuple(sorted(found)))


def removes_by_time(check: CheckPlan, *, compacts: bool) -> bool:
    """Whether a check removes records for their age, or may once the log has been compacted."""
    return compacts or any(each.rule == TIME for each in check.plan.expired)
