"""The topics that the regular expressions of a group match.

Source: org.apache.kafka.coordinator.group.modern.consumer.TopicRegexResolver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from cordwood.coordinator.group.consumer.subscriptions import ResolvedRegex
from cordwood.coordinator.group.consumer.topics import Topics
from cordwood.model.kafka_errors import InvalidRegularExpressionError
from cordwood.model.pauses import in_steps
from cordwood.model.regular_expressions import RegularExpression, compile_regular_expression

#: A pause is due after so many comparisons of a name with an expression: about half a millisecond.
_MATCHES_AT_ONCE: Final = 400

_LOG = logging.getLogger(__name__)


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
