"""The question of what changed settings would do, to running brokers; their answers as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cordwood.model.errors import ConfigError
from cordwood.queries.brokers import Asked, BrokerQuestion
from cordwood.queries.whatif.answer import NotMeasured, WhatIf, totals_of

PATH: Final = "/whatif"
DAYS: Final = 7
DAYS_MAX: Final = 366


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfQuestion:
    """Changes of settings, as --set gives them, and their topics, all without a glob.

    `days` is how far to look ahead. With `alone`, other brokers are not asked: the answer warns of
    partitions that this one does not have.
    """

    changes: Sequence[str]
    topics: Sequence[str] = ()
    days: int = DAYS
    groups: bool = True
    alone: bool = True

    @classmethod
    def parse(cls, query: Mapping[str, Sequence[str]]) -> WhatIfQuestion:
        """The question in the query of an address.

        Raises:
            ConfigError: a parameter has another value than is expected.
        """
        days = query.get("days", [str(DAYS)])[-1]
        if not (days.isascii() and days.isdigit()) or len(days) > 3 or int(days) > DAYS_MAX:
            raise ConfigError(f"days={days}: expected 0 to {DAYS_MAX}")
        return cls(
            changes=query.get("set", ()),
            topics=query.get("topic", ()),
            days=int(days),
            groups=_flag(query, "groups"),
            alone=_flag(query, "alone"),
        )

    def to_brokers(self, *, alone: bool) -> BrokerQuestion[WhatIf]:
        """The question as one broker is asked, or several, each for its part."""
        return BrokerQuestion(
            path=PATH,
            answer=WhatIf,
            parameters={
                "set": self.changes,
                "topic": self.topics,
                "days": str(self.days),
                "groups": str(self.groups).lower(),
                "alone": str(alone).lower(),
            },
        )


def _flag(query: Mapping[str, Sequence[str]], name: str) -> bool:
    text = query.get(name, ["true"])[-1]
    if text not in {"true", "false"}:
        raise ConfigError(f"{name}={text}: expected true or false")
    return text == "true"


def merged(asked: Sequence[Asked[WhatIf]]) -> WhatIf:
    """The answers of brokers as one, by partition; with several each replica names its broker."""
    first = asked[0]
    if len(asked) == 1:
        return replace(first.answer, broker=first.broker)
    answers = [each.answer for each in asked]
    partitions = [
        replace(partition, node_id=each.broker.node_id)
        for each in asked
        for partition in each.answer.partitions
    ]
    partitions.sort(key=lambda each: (each.topic, each.partition, each.node_id or 0))
    groups = [lost for each in answers for lost in each.groups or ()]
    looked_at_groups = any(each.groups is not None for each in answers)
    return replace(
        first.answer,
        changes={topic: of for each in answers for topic, of in each.changes.items()},
        broker_changes={key: of for each in answers for key, of in each.broker_changes.items()},
        partitions=partitions,
        total=totals_of(partitions),
        not_measured=NotMeasured(
            now=[name for each in answers for name in each.not_measured.now],
            then=[name for each in answers for name in each.not_measured.then],
        ),
        overruled=list(dict.fromkeys(each for answer in answers for each in answer.overruled)),
        left_alone=[each for answer in answers for each in answer.left_alone],
        failed=[each for answer in answers for each in answer.failed],
        # Replicas of one partition may lose the same records.
        groups=list(dict.fromkeys(groups)) if looked_at_groups else None,
        warnings=list(dict.fromkeys(text for each in answers for text in each.warnings)),
        in_use=[each for answer in answers for each in answer.in_use],
        brokers=[each.broker for each in asked],
    )
