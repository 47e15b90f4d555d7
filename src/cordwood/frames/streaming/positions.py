"""The positions of a stream, which Spark keeps in a checkpoint.

It is JSON as that of Spark's Kafka source, with the topic's id beside its partitions:
`{"orders": {"0": 12, "1": 7, "topicId": "b3JkZXJzAAAAAAAAAAAAAQ"}}`. Topics and partitions are in
their order: Spark takes texts that differ for other positions.

Source: org.apache.spark.sql.kafka010.KafkaSourceOffset, JsonUtils.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cordwood.model.errors import CorruptError

_TOPIC_ID: Final = "topicId"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPosition:
    """The offset of the next record of each partition of a topic.

    `topic_id` is in Kafka's Base64, None if it is not known.
    """

    offsets: Mapping[int, int]
    topic_id: str | None = None

    def is_of(self, topic_id: str | None) -> bool:
        """Whether the topic that has this id now may be the one that was read."""
        return topic_id is None or self.topic_id is None or topic_id == self.topic_id


#: By topic.
Positions: TypeAlias = Mapping[str, TopicPosition]


def build_positions(positions: Positions) -> dict[str, dict[str, int | str]]:
    """Positions as what `json.dumps` takes."""
    document: dict[str, dict[str, int | str]] = {}
    for topic, position in sorted(positions.items()):
        entry: dict[str, int | str] = {
            str(partition): offset for partition, offset in sorted(position.offsets.items())
        }
        if position.topic_id is not None:
            entry[_TOPIC_ID] = position.topic_id
        document[topic] = entry
    return document


def parse_positions(document: Mapping[str, Mapping[str, Any]]) -> dict[str, TopicPosition]:
    """Positions of what `json.loads` gives.

    Raises:
        CorruptError: it is something else.
    """
    try:
        return {
            topic: TopicPosition(
                offsets={int(name): int(entry[name]) for name in entry if name != _TOPIC_ID},
                topic_id=entry.get(_TOPIC_ID),
            )
            for topic, entry in document.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise CorruptError(f"a checkpoint of another source: {str(document)[:200]}") from None
