"""What a topic may be called.

Source: org.apache.kafka.common.internals.Topic.validate, Kafka 4.3.
"""

from __future__ import annotations

import re

from cordwood.model.kafka_errors import InvalidTopicError

TOPIC_NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def require_topic_name(name: str) -> None:
    """Checks the name of a topic.

    Raises:
        InvalidTopicError: no topic can be called so.
    """
    said = "Topic name is invalid: "
    if not name:
        raise InvalidTopicError(f"{said}the empty string is not allowed")
    if name in {".", ".."}:
        raise InvalidTopicError(f"{said}'{name}' is not allowed")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopicError(
            f"{said}the length of '{name}' is longer than the max allowed length "
            f"{TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicError(
            f"{said}'{name}' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'"
        )
