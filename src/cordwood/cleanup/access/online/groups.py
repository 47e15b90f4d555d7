"""The groups that running logs wait for: what they have consumed, and what they have lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN, Consumed, GroupLoss
from cordwood.cleanup.rules.group_losses import GroupLosses
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)

#: Gives the committed offsets of these groups for each partition. It may wait, and is called by any
#: thread but the event loop's. What it does not know it says, and what it leaves out is not known.
OffsetSource = Callable[[Mapping[TopicPartition, Sequence[str]]], Mapping[TopicPartition, Consumed]]

KnownOffsets = Mapping[TopicPartition, Consumed]


class OnlineGroups:
    """Looks committed offsets up for each check of retention, and notes losses.

    `source` is that of the broker; without one nothing is known, so that every segment waits.
    """

    def __init__(self) -> None:
        """Has no source yet."""
        self.source: OffsetSource | None = None
        self.losses = GroupLosses()

    def look_up(self, logs: Iterable[PartitionLog]) -> KnownOffsets:
        """Looks up the offsets of the groups that these logs wait for; nothing is kept of it.

        It waits for coordinators, so no lock is to be held, and no log to be paused.
        """
        return self.look_up_for((log.topic_partition, log.config) for log in logs)

    def look_up_for(self, settings: Iterable[tuple[TopicPartition, LogConfig]]) -> KnownOffsets:
        """The same for the groups of these settings, of which a partition may have several."""
        wanted: dict[TopicPartition, tuple[str, ...]] = {}
        for partition, config in settings:
            if config.cordwood_retention_groups and config.delete:
                groups = (*wanted.get(partition, ()), *config.cordwood_retention_groups)
                wanted[partition] = tuple(dict.fromkeys(groups))
        if not wanted or self.source is None:
            return {}
        try:
            return self.source(wanted)
        except CordwoodError:
            _log.exception("Error while looking up the committed offsets of groups")
            return {}

    def note(self, log: PartitionLog, losses: Sequence[GroupLoss]) -> None:
        """Logs what groups have lost of a log, and remembers it."""
        partition = log.topic_partition
        for loss in losses:
            _log.warning(
                "[UnifiedLog partition=%s, dir=%s] %s: %s",
                partition,
                log.log_dir,
                partition,
                loss.text,
            )
        self.losses.note(partition, losses, log.context.clock.now_ms())


def consumed_of(known: KnownOffsets, log: PartitionLog) -> Consumed:
    """The known offsets for one log."""
    return known.get(log.topic_partition, NOTHING_KNOWN)
