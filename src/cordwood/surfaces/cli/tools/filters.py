"""Filters of topics for tools.

Source: org.apache.kafka.tools.filter.TopicFilter; org.apache.kafka.common.internals.Topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cordwood.client.admin import Admin
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_names import INTERNAL_TOPICS, topic_name_fault
from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.tool import ToolError


class BadTopicError(CordwoodError):
    """An illegal topic name, or an invalid regular expression."""


class TopicFilter:
    """Topics whose whole name matches a regular expression; commas separate alternatives."""

    def __init__(self, expression: str) -> None:
        """Reads the expression.

        Raises:
            BadTopicError: it is no regular expression.
        """
        text = expression.strip().replace(",", "|").replace(" ", "")
        text = re.sub(r"^[\"']+|[\"']+$", "", text)
        try:
            self._pattern = re.compile(text)
        except re.error as error:
            raise BadTopicError(f"{text} is an invalid regex.") from error

    def allows(self, topic: str, *, exclude_internal: bool = False) -> bool:
        """True if the topic matches."""
        if exclude_internal and topic in INTERNAL_TOPICS:
            return False
        return self._pattern.fullmatch(topic) is not None


def topics_meant(
    names: Iterable[str], expression: str | None, *, exclude_internal: bool
) -> list[str]:
    """The names that match, sorted.

    Source: TopicCommand.doGetTopics.
    """
    ordered = sorted(names)
    if expression is not None:
        wanted = TopicFilter(expression)
        return [name for name in ordered if wanted.allows(name, exclude_internal=exclude_internal)]
    return [name for name in ordered if not (exclude_internal and name in INTERNAL_TOPICS)]


def require_legal_name(name: str) -> None:
    """Raises BadTopicError for a name that no topic can have.

    Raises:
        BadTopicError: it cannot.

    Source: Topic.validate.
    """
    fault = topic_name_fault(name)
    if fault is not None:
        raise BadTopicError(f"Topic name is invalid: {fault}")


def named_topics(options: Options, admin: Admin) -> list[str]:
    """The names of the topics that --topic and --exclude-internal select."""
    names = [topic.name for topic in admin.topics()]
    return topics_meant(
        names, options.value("topic"), exclude_internal=options.has("exclude-internal")
    )


def existing_topics(options: Options, admin: Admin) -> list[str]:
    """The same, of which there is at least one.

    Raises:
        ToolError: --topic selects none, without --if-exists.
    """
    names = named_topics(options, admin)
    topic = options.value("topic")
    if topic and not names and not options.has("if-exists"):
        raise ToolError(f"Topic '{topic}' does not exist as expected")
    return names
