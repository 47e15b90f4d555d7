"""The offsets that groups have committed, as the log directories of a cleaning have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cordwood.cleanup.access.capture import capture_offline
from cordwood.cleanup.access.committed_offsets import Committed, read_committed
from cordwood.cleanup.access.offline.directories import Place
from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.rules.group_guard import Consumed
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import LOG_SUFFIX
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.reread import reread


class OfflineGroups:
    """The committed offsets in the partitions of `__consumer_offsets` of some log directories.

    They are read when they are first asked for, once. A broker may run on the directories.
    """

    def __init__(
        self, places: Sequence[Place] = (), *, producer_expiration_ms: int = -1, now_ms: int = 0
    ) -> None:
        """Takes all partitions of the directories; those of `__consumer_offsets` are read.

        Args:
            places: as `find_places` returns them.
            producer_expiration_ms: producer.id.expiration.ms.
            now_ms: the time of the cleaning.
        """
        self._places = [
            place
            for place in places
            if place.partition.topic_partition.topic == GROUP_METADATA_TOPIC
            and place.refused is None
            and place.partition.left_alone is None
        ]
        self._producer_expiration_ms = producer_expiration_ms
        self._now_ms = now_ms
        self._found: tuple[Committed, str] | None = None

    @property
    def has_partitions(self) -> bool:
        """Whether there is a partition to read."""
        return bool(self._places)

    @property
    def size_bytes(self) -> int:
        """Bytes of the logs to be read."""
        return sum(
            OS.facts_of(place.partition.path / name).size_bytes
            for place in self._places
            for name in OS.names_in(place.partition.path)
            if name.endswith(LOG_SUFFIX)
        )

    def consumed(self, partition: TopicPartition) -> Consumed:
        """The offsets that all groups have committed for a partition.

        A group without an offset may have one in a partition of `__consumer_offsets` that is not
        here: how far it is, is not known.
        """
        if self._found is None:
            self._found = self._read()
        committed, others = self._found
        name = str(partition)
        offsets = {group: offset for (group, place), offset in committed.items() if place == name}
        return Consumed(committed=offsets, others=others)

    def _read(self) -> tuple[Committed, str]:
        """The committed offsets, and the reason why those of other groups are unknown."""
        committed: Committed = {}
        failed = []
        for place in self._places:
            try:
                committed |= self._read_one(place)
            except (CordwoodError, OSError) as error:
                failed.append(f"{place.partition.topic_partition} cannot be read: {error}")
        count = len(self._places) - len(failed)
        if not count and not failed:
            others = f"no partition of {GROUP_METADATA_TOPIC} is in the log directories"
        else:
            others = (
                f"no committed offset of it is in the {count} partitions of {GROUP_METADATA_TOPIC} "
                "in the log directories"
            )
        return committed, "; ".join([others, *failed])

    def read(self, progress: Callable[[int], None] = lambda _: None) -> Committed:
        """All committed offsets; `progress` receives how many bytes were read.

        Raises:
            As `read_committed`, and what the opening of a log raises.
        """
        committed: Committed = {}
        for place in self._places:
            committed |= self._read_one(place, progress)
        return committed

    def _read_one(
        self, place: Place, progress: Callable[[int], None] = lambda _: None
    ) -> Committed:
        path, partition = place.partition.path, place.partition.topic_partition

        def read() -> Committed:
            checkpoints, _ = place.log_dir.checkpoints()
            offline = load_offline_log(
                path,
                partition,
                config=LogConfig(),
                checkpoints=checkpoints,
                clean_shutdown=place.log_dir.is_whole,
                producer_expiration_ms=self._producer_expiration_ms,
                now_ms=self._now_ms,
            )
            captured = capture_offline(offline, cleaner_checkpoint=None)
            return read_committed(captured.sources, progress=progress)

        return reread(read, directory=path)
