"""Names of topics: which are legal, which are Kafka's own, and which a new topic may have.

Every way in which a topic can be created asks `NewTopicNames`: the CreateTopics request, the
automatic creation by Metadata, and the coordinators' own topics.

Source: org.apache.kafka.common.internals.Topic, kafka.server.ControllerApis.createTopics,
org.apache.kafka.controller.ReplicationControlManager.createTopics; Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from cordwood.model.kafka_errors import (
    InvalidRequestError,
    InvalidTopicError,
    TopicAlreadyExistsError,
)

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The name of the metadata log. No topic may have it: its partition 0 would be that log."""

ALL_TOPICS = "*"
"""As the topic of a setting: every topic but Kafka's internal ones."""

INTERNAL_TOPICS = frozenset(
    {GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}
)
"""The coordinators' topics. Source: Topic.isInternal, which excludes the metadata log."""

TOPIC_NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_fault(name: str) -> str | None:
    """Why the name is illegal, in Kafka's words; None if it is legal.

    Source: Topic.validate.
    """
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'"
        )
    return None


def require_topic_name(name: str) -> None:
    """Checks that a name is legal.

    Raises:
        InvalidTopicError: it is not.
    """
    fault = topic_name_fault(name)
    if fault is not None:
        raise InvalidTopicError(f"Topic name is invalid: {fault}")


def is_reserved(name: str) -> bool:
    """Whether the name is that of the metadata log, which is reserved."""
    return name == CLUSTER_METADATA_TOPIC


class NewTopicNames:
    """The names that are free beside the topics that exist."""

    def __init__(self, existing: Collection[str]) -> None:
        """`existing` are the names of all topics: a set, or a mapping by name."""
        self._existing = existing
        self._by_metric_name: dict[str, str] | None = None

    def require_free(self, name: str) -> None:
        """Checks that a new topic may have this name.

        Raises:
            InvalidRequestError: the name is reserved for the metadata log.
            TopicAlreadyExistsError: a topic has this name.
            InvalidTopicError: the name is illegal, or differs from another topic's name only in
                dots and underscores, which are the same in metric names.
        """
        if is_reserved(name):
            raise InvalidRequestError(f"Creation of internal topic {name} is prohibited.")
        if name in self._existing:
            raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
        require_topic_name(name)
        if "." not in name and "_" not in name:
            return
        other = self._metric_names().get(name.replace(".", "_"))
        if other is not None:
            raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")

    def _metric_names(self) -> dict[str, str]:
        if self._by_metric_name is None:
            self._by_metric_name = {}
            for name in self._existing:
                if "." in name or "_" in name:
                    self._by_metric_name.setdefault(name.replace(".", "_"), name)
        return self._by_metric_name
