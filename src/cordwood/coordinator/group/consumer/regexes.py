"""The topics that the regular expressions of a group match.

Source: org.apache.kafka.coordinator.group.modern.consumer.TopicRegexResolver.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from cordwood.coordinator.group.change import Change
from cordwood.coordinator.group.consumer import events
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import ConsumerMember
from cordwood.coordinator.group.consumer.member_checks import require_regex
from cordwood.coordinator.group.consumer.records import RecordType, tombstone
from cordwood.coordinator.group.consumer.subscriptions import ResolvedRegex
from cordwood.coordinator.group.consumer.topics import Topics
from cordwood.coordinator.group.settings import ConsumerGroupSettings
from cordwood.model.kafka_errors import InvalidRegularExpressionError
from cordwood.model.pauses import in_steps
from cordwood.model.regular_expressions import RegularExpression, compile_regular_expression

#: A pause is due after so many comparisons of a name with an expression: about half a millisecond.
_MATCHES_AT_ONCE: Final = 400
_REFRESH_INTERVAL_MIN_MS: Final = 10_000

_LOG = logging.getLogger(__name__)


class RegexChange(NamedTuple):
    """Whether a heartbeat changes a member's regular expression, to one that is resolved."""

    has_changed: bool = False
    is_resolved: bool = False


class GroupRegexes:
    """Keeps the regular expressions of groups resolved, for one change of the state."""

    def __init__(self, settings: ConsumerGroupSettings, topics: Topics, change: Change) -> None:
        """`change` collects records, and tasks that resolve expressions."""
        self._refresh_interval_ms = settings.regex_refresh_interval_ms
        self._topics = topics
        self._change = change

    def update(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        may_describe: Callable[[str], bool] | None,
    ) -> RegexChange:
        """Notices a changed regular expression, and has the group's be resolved if it is time.

        Raises:
            CoordinatorRequestError: INVALID_REGULAR_EXPRESSION.

        Source: maybeUpdateRegularExpressions.
        """
        old, new = member.regex, updated.regex
        is_new = False
        found = RegexChange()
        if old != new:
            found = RegexChange(has_changed=True)
            if old and group.subscribers_of(old) == 1:
                self._change.write(tombstone(RecordType.REGEX, group.group_id, old))
            if new and not group.subscribers_of(new):
                require_regex(new)
                is_new = True
            elif not new or new in group.resolved:
                found = RegexChange(has_changed=True, is_resolved=bool(new) or bool(old))
        if is_new or group.subscriptions.regexes:
            self._resolve_if_due(group, member, updated, is_new, may_describe)
        return found

    def _resolve_if_due(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        is_new: bool,
        may_describe: Callable[[str], bool] | None,
    ) -> None:
        group_id, now_ms = group.group_id, self._change.now_ms
        at_ms = group.resolved_at_ms
        if at_ms is not None and now_ms <= at_ms + _REFRESH_INTERVAL_MIN_MS:
            return
        subscribed = Counter(group.subscriptions.regexes)
        subscribed.subtract([member.regex] if member.regex else [])
        subscribed.update([updated.regex] if updated.regex else [])
        regexes = frozenset(regex for regex, count in subscribed.items() if count > 0)
        is_due = (
            is_new
            or len(regexes) != len(group.resolved)
            or group.resolved_version < self._topics.newest_topics_version
            or at_ms is None
            or now_ms > at_ms + self._refresh_interval_ms
        )
        if is_due and regexes:
            topics = self._topics

            def run(now_ms: int) -> events.RegexesResolved:
                found = resolve(group_id, regexes, topics, may_describe, now_ms)
                return events.RegexesResolved(group_id=group_id, found=found)

            self._change.start_task(("regex", group_id), run)


def resolve(
    group_id: str,
    regexes: Collection[str],
    topics: Topics,
    may_describe: Callable[[str], bool] | None,
    now_ms: int,
) -> Mapping[str, ResolvedRegex]:
    """The topics of each expression, with pauses in which other work comes first.

    All topics are those of the image at the beginning. An expression that is none is logged, and
    matches nothing.
    """
    names, version = topics.names(), topics.version
    found: dict[str, set[str]] = {regex: set() for regex in sorted(regexes)}
    patterns = _compiled(group_id, found)
    for name in in_steps(names, every=max(1, _MATCHES_AT_ONCE // max(1, len(patterns)))):
        matching = [regex for regex, each in patterns.items() if each.fullmatch(name) is not None]
        if matching and (may_describe is None or may_describe(name)):
            for regex in matching:
                found[regex].add(name)
    return {
        regex: ResolvedRegex(frozenset(matched), version, now_ms)
        for regex, matched in found.items()
    }


def _compiled(group_id: str, regexes: Collection[str]) -> Mapping[str, RegularExpression]:
    """Compiles the valid expressions; a log that another version wrote may have others."""
    found = {}
    for regex in regexes:
        try:
            found[regex] = compile_regular_expression(regex)
        except InvalidRegularExpressionError as error:
            _LOG.error("[GroupId %s] Ignoring a regular expression: %s", group_id, error)
    return found
