"""Whether a broker is ready, so that an orchestrator may stop its neighbours."""

from __future__ import annotations

from typing import Final

from cordwood.metadata.image import MetadataImage
from cordwood.model.topic_partition import TopicPartition

_NAMED_MAX: Final = 5


def why_not_ready(image: MetadataImage, broker_id: int) -> str:
    """Why a broker is not ready; empty if it is: it is active, and its replicas are in sync.

    What other brokers lack does not count: one broker that is gone must not have all others taken
    for unready.
    """
    registration = image.brokers.get(broker_id)
    if registration is None or not registration.is_active:
        return f"broker {broker_id} is fenced, or being shut down"
    count, missing = 0, []
    for topic, known in image.topics.items():
        for number, each in known.partitions.items():
            if broker_id in each.replicas:
                count += 1
                if broker_id not in each.isr:
                    missing.append(str(TopicPartition(topic, number)))
    if not missing:
        return ""
    missing.sort()
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    return (
        f"{len(missing)} of the {count} replicas of broker {broker_id} are not in sync: "
        f"{', '.join(missing[:_NAMED_MAX])}{more}"
    )
