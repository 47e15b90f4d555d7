"""The topics and regular expressions that the members of a group subscribe to.

Source: org.apache.kafka.coordinator.group.modern.SubscriptionCount,
consumer.ResolvedRegularExpression.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cordwood.coordinator.group.consumer.member import ConsumerMember


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matches, as of a version of the metadata and a time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscribers(NamedTuple):
    """Numbers of the members that name a topic, and of the regular expressions that match it."""

    by_name: int = 0
    by_regex: int = 0


class Subscriptions:
    """The topics of a group, and its regular expressions with the number of their members."""

    def __init__(self) -> None:
        self.topics: dict[str, Subscribers] = {}
        self.regexes: dict[str, int] = {}

    def copy(self) -> Subscriptions:
        """One that can be changed without changing this one."""
        other = Subscriptions()
        other.topics = self.topics.copy()
        other.regexes = self.regexes.copy()
        return other

    def count_member(self, member: ConsumerMember, by: int) -> None:
        """Counts a member that has come, or is gone if `by` is -1."""
        for topic in member.topics:
            self._count_topic(topic, by, 0)
        if member.regex:
            count = self.regexes.get(member.regex, 0) + by
            if count > 0:
                self.regexes[member.regex] = count
            else:
                self.regexes.pop(member.regex, None)

    def count_resolved(self, topics: Iterable[str], by: int) -> None:
        """Counts the topics of a regular expression that was resolved, or is not any more."""
        for topic in topics:
            self._count_topic(topic, 0, by)

    def _count_topic(self, topic: str, by_name: int, by_regex: int) -> None:
        before = self.topics.get(topic, Subscribers())
        after = Subscribers(before.by_name + by_name, before.by_regex + by_regex)
        if after.by_name > 0 or after.by_regex > 0:
            self.topics[topic] = after
        else:
            self.topics.pop(topic, None)

    def are_alike(self, member_count: int) -> bool:
        """Whether all members subscribe to the same topics.

        Source: ConsumerGroup.subscriptionType.
        """
        if not self.regexes:
            return all(each.by_name == member_count for each in self.topics.values())
        if next(iter(self.regexes.values())) != member_count:
            return False
        return all(each.by_regex == 1 and each.by_name <= 0 for each in self.topics.values())
