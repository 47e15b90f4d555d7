"""The topics of directories at one moment, as a stream sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cordwood.cleanup.plan.captured import Captured
from cordwood.frames.options import FrameOptions
from cordwood.frames.survey import captured_logs
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError
from cordwood.storage.trash import topic_id_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """The logs of a topic, by partition; `topic_id` is None if no directory has it."""

    logs: Mapping[int, Captured]
    topic_id: str | None


#: By name.
Topics: TypeAlias = Mapping[str, Topic]


def captured_topics(options: FrameOptions, *, clock: Clock) -> dict[str, Topic]:
    """The topics that are wanted; none if there is none.

    Raises:
        CordwoodError: a log cannot be read, or partitions of a topic have ids that differ.
        OSError: a directory cannot be read.
    """
    found = captured_logs(options, options.wanted, may_lack_topics=True, clock=clock)
    logs: dict[str, dict[int, Captured]] = defaultdict(dict)
    ids: dict[str, set[str]] = defaultdict(set)
    for captured in found:
        partition = captured.view.topic_partition
        logs[partition.topic][partition.partition] = captured
        topic_id = topic_id_of(captured.directory)
        ids[partition.topic] |= {topic_id} if topic_id is not None else set()
    for topic, several in ids.items():
        if len(several) > 1:
            raise CordwoodError(
                f"{topic}: its partitions are of topics with the ids {', '.join(sorted(several))}: "
                "it is being made again, or the directory of an older one was left"
            )
    return {
        topic: Topic(logs=dict(sorted(by_number.items())), topic_id=next(iter(ids[topic]), None))
        for topic, by_number in sorted(logs.items())
    }
