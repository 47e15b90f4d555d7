"""Losses of groups by the limits of their guard, as far back as a broker remembers."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cordwood.cleanup.rules.group_guard import GroupLoss
from cordwood.model.topic_partition import TopicPartition

#: How many losses are remembered, of all groups and partitions.
_LOSSES_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedLoss:
    """A loss, and when it was noted (ms); one that a check continues is one with the check before.

    `since_ms` is when the first of its offsets went, `at_ms` when the last did.
    """

    loss: GroupLoss
    since_ms: int
    at_ms: int


class GroupLosses:
    """The last losses, and how many offsets each group has lost of each topic.

    Every method may be called by any thread.
    """

    def __init__(self) -> None:
        """Remembers nothing yet."""
        self._lock = threading.Lock()
        self._noted: OrderedDict[tuple[TopicPartition, str, int], NotedLoss] = OrderedDict()
        self._offsets: Counter[tuple[str, str]] = Counter()

    def note(self, partition: TopicPartition, losses: Iterable[GroupLoss], at_ms: int) -> None:
        """Remembers losses of a partition; those furthest back are forgotten."""
        with self._lock:
            for loss in losses:
                self._offsets[partition.topic, loss.group] += loss.offsets
                noted = NotedLoss(loss=loss, since_ms=at_ms, at_ms=at_ms)
                before = self._noted.pop((partition, loss.group, loss.first_offset), None)
                if before is not None and _is_continued(before.loss, loss):
                    whole = replace(loss, first_offset=before.loss.first_offset)
                    noted = replace(noted, loss=whole, since_ms=before.since_ms)
                # The next loss continues this one if it begins where this one ends.
                self._noted[partition, loss.group, loss.last_offset + 1] = noted
            while len(self._noted) > _LOSSES_MAX:
                self._noted.popitem(last=False)

    def of(self, partition: TopicPartition) -> tuple[NotedLoss, ...]:
        """The losses of a partition that are remembered, the oldest first."""
        with self._lock:
            return tuple([each for key, each in self._noted.items() if key[0] == partition])

    def offsets(self) -> Mapping[tuple[str, str], int]:
        """The number of offsets lost since the start, by (topic, group)."""
        with self._lock:
            return dict(self._offsets)


def _is_continued(before: GroupLoss, loss: GroupLoss) -> bool:
    return before.setting == loss.setting and bool(before.unknown) == bool(loss.unknown)
