"""Restores deleted topics from the trash of a broker that is the only one of its cluster.

The steps, and what is found after a crash behind each:

1. What still waits for file.delete.delay.ms goes to the trash at once.
2. The partitions' directories move to their log directories, marked `-delete`. *After a crash:* the
   next start moves them back to the trash, as it finishes a deletion.
3. Under the lock of the metadata's changes: the directories get their names, the logs are opened,
   their checkpoints written. *After a crash:* they belong to no topic of the cluster, and to one
   that is noted in the trash: the next start marks them `-delete`, as above.
4. The topic's records are written to the metadata log, with its former id. *After a crash:* the
   topic exists; the next start does the rest.
5. The offsets that groups had committed are committed again, unless a group has committed since.
6. The topic's notes are removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from cordwood.broker.broker import Broker
from cordwood.broker.deleted_topics import kept_offsets
from cordwood.controller.local_channel import LocalControllerChannel
from cordwood.format.trash_notes import RemovedTopic
from cordwood.metadata.controller_requests import RestoredPartition, RestoredTopic
from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.broker_trash import TRASH_DIR, BrokerTrash
from cordwood.storage.directory_names import delete_directory_name
from cordwood.storage.trashed_logs import ReturnedLog
from cordwood.storage.trashed_topics import require_named

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restoration:
    """A restored topic; `offsets` of groups count again, None if they could not be written yet."""

    topic: RemovedTopic
    offsets: int | None


class TopicRestoration:
    """Restores topics; belongs to the event loop's thread."""

    def __init__(self, broker: Broker, channel: LocalControllerChannel | None) -> None:
        """Takes the broker, and the controller if it is in this process."""
        self._broker = broker
        self._logs = broker.replicas.logs
        self._channel = channel
        self._one_at_a_time = asyncio.Lock()

    # ---- requests

    async def restore(self, name: str, topic_id: UUID | None = None) -> Restoration:
        """Restores the topic that was deleted last of those with a name, or the one with that id.

        Raises:
            ConfigError: this broker has no trash.
            CordwoodError: it is not possible; the text says why, and nothing has changed.
        """
        trash = self._logs.context.trash
        if trash is None:
            raise ConfigError(f"this broker has no trash: {TRASH_DIR} is not set")
        channel = self._require_alone(name)
        async with self._one_at_a_time:
            topic = await self._in_thread(lambda: self._find(trash, name, topic_id))
            self._require_possible(topic)
            returned = await self._in_thread(lambda: self._stage(trash, topic))
            try:
                config = self._broker.configs.new_log_config(topic.settings)
                await channel.restore_topic(
                    self._restored(topic, returned),
                    lambda: self._logs.take_back(returned, config),
                )
            except BaseException:
                if topic.topic_id not in self._broker.metadata.image.topic_names:
                    await self._in_thread(lambda: self._give_back(trash, returned))
                raise
            _log.info("Restored topic %s with %s partitions", name, len(returned))
            return Restoration(topic, await self._finish(trash, topic))

    async def resume(self) -> None:
        """Does the last steps of restorations that were interrupted after the topic existed."""
        trash = self._logs.context.trash
        if trash is None:
            return
        try:
            with trash.access("reading the deleted topics"):
                topics = await self._in_thread(trash.topics.all)
            for topic in topics:
                if topic.topic_id in self._broker.metadata.image.topic_names:
                    await self._finish(trash, topic)
        except CordwoodError as error:
            _log.warning("%s", error)

    # ---- steps

    def _require_alone(self, name: str) -> LocalControllerChannel:
        brokers = self._broker.metadata.image.brokers
        if self._channel is None or len(brokers) > 1:
            raise CordwoodError(
                f"{name}: a topic is restored only where one node is the broker and the controller "
                f"of its cluster, which has {len(brokers)} brokers: each has its own trash, with "
                "the replicas that it had. Create the topic again, and produce the records of the "
                "segments in the trash"
            )
        return self._channel

    def _find(self, trash: BrokerTrash, name: str, topic_id: UUID | None) -> RemovedTopic:
        trash.bring_notes()
        with trash.access(f"looking for {name}"):
            topics = trash.topics.all()
        topic = require_named(topics, name, topic_id)
        self._logs.deleted.dispose_of_topic(topic.topic_id)
        with trash.access(f"looking for {name}"):
            missing = trash.topics.missing(topic)
        if missing:
            numbers = ", ".join(map(str, missing))
            raise CordwoodError(
                f"{name}: partition {numbers} is not in the trash: its deletion is not finished, "
                "its log directory was offline, or `cordwood erase` has removed it. Try again in a "
                "minute"
            )
        return topic

    def _require_possible(self, topic: RemovedTopic) -> None:
        name = topic.name
        if name in self._broker.metadata.image.topics:
            raise CordwoodError(
                f"{name}: there is a topic with this name; delete it or keep it, but both cannot be"
            )
        if topic.expires_ms <= self._logs.context.clock.now_ms():
            raise CordwoodError(f"{name}: its time in the trash is over; it is about to be deleted")
        if topic.replicas > 1:
            raise CordwoodError(f"{name}: it had {topic.replicas} replicas; this is one of them")
        numbers = sorted(each.partition for each in topic.partitions)
        if numbers != list(range(len(numbers))):
            raise CordwoodError(
                f"{name}: some of its partitions were not noted when it was deleted; only "
                f"{', '.join(map(str, numbers))} are in the trash"
            )
        known = {directory.path for directory in self._logs.directories}
        for each in topic.partitions:
            if Path(each.log_dir) not in known - self._logs.context.failures.offline.keys():
                raise CordwoodError(
                    f"{name}: its log directory {each.log_dir} is not one of this broker's, or is "
                    "offline"
                )

    def _stage(self, trash: BrokerTrash, topic: RemovedTopic) -> list[ReturnedLog]:
        found: list[ReturnedLog] = []
        try:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition)
                mark = delete_directory_name(partition, self._logs.context.rng.unique_id())
                staged = Path(each.log_dir) / mark
                returned = ReturnedLog(
                    partition=partition, topic_id=topic.topic_id, staged=staged, before=each
                )
                with trash.access(f"moving {partition} out of it"):
                    trash.topics.give(topic, each.partition, staged)
                found.append(returned)
        except CordwoodError:
            self._give_back(trash, found)
            raise
        return found

    def _give_back(self, trash: BrokerTrash, returned: Sequence[ReturnedLog]) -> None:
        fs = self._logs.context.fs
        served = []
        for each in returned:
            log = self._logs.get(each.partition)
            if log is not None and log.topic_id == each.topic_id:
                served.append(each.partition)
            elif fs.exists(each.staged):
                with trash.access(f"moving {each.partition} back into it"):
                    if not trash.topics.take(each.staged, each.topic_id, each.partition):
                        fs.remove_tree(each.staged)  # a copy
        self._logs.delete_all(served)

    def _restored(self, topic: RemovedTopic, returned: Sequence[ReturnedLog]) -> RestoredTopic:
        ids: dict[Path, UUID] = {
            directory.path: directory.directory_id
            for directory in self._logs.directories
            if directory.directory_id is not None
        }
        return RestoredTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            configs=topic.settings,
            partitions={
                each.partition.partition: RestoredPartition(
                    each.before.leader_epoch,
                    each.before.partition_epoch,
                    ids[each.staged.parent],
                )
                for each in returned
            },
            broker_id=self._broker.node_id,
        )

    async def _finish(self, trash: BrokerTrash, topic: RemovedTopic) -> int | None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int | None] = loop.create_future()
        offsets = kept_offsets(topic, now_ms=self._logs.context.clock.now_ms())

        def reply(count: int | None) -> None:
            if not done.done():
                done.set_result(count)

        self._broker.groups.maintenance.put_back_offsets(offsets, reply)
        count = await done
        if count is None:
            _log.warning(
                "The committed offsets of the restored topic %s are not written yet: they are "
                "when this broker starts next",
                topic.name,
            )
            return None
        with trash.access(f"removing the notes of {topic.name}"):
            await self._in_thread(lambda: trash.topics.forget(topic.topic_id))
        return count

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, work)
