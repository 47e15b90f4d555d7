"""Records that leaders commit and replicas hold, as events: read from the real logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from cordwood.broker.partition import Partition
from cordwood.broker.replica_manager import ReplicaManager
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.metadata.image import MetadataImage, PartitionImage
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from support.simulation.event_loop import Process
from support.simulation.events import (
    Committed,
    Decided,
    Elected,
    Note,
    Registered,
    Replica,
    ReplicaState,
    Starts,
    StoredBatch,
)
from support.simulation.history import History

_READ_BYTES = 1 << 20


class LogWatcher:
    """Watches logs, and reports to the history what is in them."""

    def __init__(self, history: History) -> None:
        """Has seen nothing."""
        self._history = history
        self._committed: dict[tuple[Process, TopicPartition], int] = {}
        self._checked: dict[tuple[Process, TopicPartition], tuple[int, int]] = {}

    def elected(self, broker_id: int, process: Process, partition: Partition) -> None:
        """A broker leads a partition in a new epoch."""
        if process.is_dead:
            return
        log = partition.log
        place = log.topic_partition
        self._committed.pop((process, place), None)
        self.changed(broker_id, process, partition)
        self._history.note(
            process.name,
            Elected(broker_id, place, partition.leader_epoch, log.log_end_offset),
        )

    def changed(self, broker_id: int, process: Process, partition: Partition) -> None:
        """The high watermark of a partition that is led may have moved."""
        log = partition.log
        place = log.topic_partition
        end, begin = log.high_watermark, self._committed.get((process, place), 0)
        if process.is_dead or end <= begin:
            return
        self._committed[process, place] = end
        batches = tuple(each for each in stored(log, begin) if each.last_offset < end)
        self._history.note(
            process.name, Committed(broker_id, place, partition.leader_epoch, end, batches)
        )

    def replica(
        self,
        broker_id: int,
        process: Process,
        log: PartitionLog,
        *,
        is_in_sync: bool,
        is_final: bool = False,
    ) -> None:
        """Shows what a log has more than the last time; all of it in the end."""
        place = log.topic_partition
        key = process, place
        begin, cuts = self._checked.get(key, (0, log.offsets.truncation_count))
        if cuts != log.offsets.truncation_count or is_final:
            begin = 0
        batches = tuple(stored(log, begin))
        # What is above the high watermark is looked at again.
        self._checked[key] = (
            min(log.high_watermark, log.log_end_offset),
            log.offsets.truncation_count,
        )
        self._history.note(
            process.name,
            Replica(
                broker_id,
                place,
                log.high_watermark,
                log.log_end_offset,
                batches,
                is_in_sync,
                _state_of(log) if is_final else None,
            ),
        )

    def starts(self, broker_id: int, process: Process, incarnation: UUID, previous: int) -> None:
        """A broker is about to register."""
        self._history.note(process.name, Starts(broker_id, incarnation, previous))


class Decisions:
    """A `MetadataPublisher` that notes what the controller decides of partitions and brokers."""

    def __init__(self, history: History) -> None:
        """Has noted nothing."""
        self._history = history

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Reports the decisions of an update as events."""
        before = update.before or MetadataImage()
        for broker_id, broker in update.after.brokers.items():
            known = before.brokers.get(broker_id)
            if known is None or (known.epoch, known.is_active) != (broker.epoch, broker.is_active):
                state = "active" if broker.is_active else "not active"
                text = f"broker {broker_id} with epoch {broker.epoch} is {state}"
                self._history.note("controller", Note(text))
        self._note_registrations(before, update.after)
        fenced = frozenset(each.broker_id for each in update.after.brokers.values() if each.fenced)
        for topic in update.after.topics.values():
            for number, partition in topic.partitions.items():
                place = TopicPartition(topic.name, number)
                self._history.note("controller", _decided(place, partition, fenced))
                if before.partition(topic.name, number) != partition:
                    self._history.note(
                        "controller",
                        Note(
                            f"{topic.name}-{number}: leader {partition.leader}, epoch "
                            f"{partition.leader_epoch}, ISR {list(partition.isr)}, ELR "
                            f"{list(partition.elr)}, last known {list(partition.last_known_elr)}"
                        ),
                    )

    def _note_registrations(self, before: MetadataImage, after: MetadataImage) -> None:
        for broker_id, broker in after.brokers.items():
            known = before.brokers.get(broker_id)
            if known is not None and known.epoch == broker.epoch:
                continue
            still_in = tuple(
                TopicPartition(topic.name, number)
                for topic in after.topics.values()
                for number, partition in topic.partitions.items()
                if broker_id in (*partition.isr, *partition.elr)
            )
            self._history.note(
                "controller",
                Registered(broker_id, broker.epoch, broker.incarnation_id, still_in),
            )


def _decided(place: TopicPartition, image: PartitionImage, fenced: frozenset[int]) -> Decided:
    return Decided(
        place,
        image.leader,
        image.leader_epoch,
        image.partition_epoch,
        tuple(image.replicas),
        tuple(image.isr),
        tuple(image.elr),
        tuple(image.last_known_elr),
        fenced,
    )


def _state_of(log: PartitionLog) -> ReplicaState:
    return ReplicaState(
        log.log_start_offset,
        tuple((each.epoch, each.start_offset) for each in log.leader_epochs.epoch_entries),
        tuple(sorted(log.producer_state.entries(), key=lambda each: each.producer_id)),
        log.last_stable_offset,
        tuple(
            (each.producer_id, each.first_offset, each.last_offset)
            for segment in log.segments
            for each in segment.indexes.transactions.all_aborted()
        ),
    )


def stored(log: PartitionLog, begin: int) -> Iterator[StoredBatch]:
    """The batches of a log that end at or behind an offset."""
    offset = max(begin, log.log_start_offset)
    while offset < log.log_end_offset:
        data = log.reader.read(offset, _READ_BYTES, isolation=Isolation.LOG_END).read()
        before = offset
        for _, batch in iter_batches(data):
            assert isinstance(batch, RecordBatch), "no old messages"
            header = batch.header
            yield StoredBatch(
                header.base_offset,
                header.last_offset,
                header.crc,
                header.partition_leader_epoch,
            )
            offset = header.next_offset
        if offset == before:
            return


class WatchedReplicas(ReplicaManager):
    """The replica manager, watched."""

    def __init__(self, process: Process, log_watcher: LogWatcher, **parts: Any) -> None:
        """Takes the arguments of `ReplicaManager`."""
        super().__init__(**parts)
        self._process = process
        self._log_watcher = log_watcher

    def lead(
        self, log: PartitionLog, topic_id: Any, image: PartitionImage
    ) -> tuple[Partition, bool]:
        """Leads, and reports an election."""
        partition, is_elected = super().lead(log, topic_id, image)
        if is_elected:
            self._log_watcher.elected(self.node_id, self._process, partition)
        return partition, is_elected

    def partition_changed(self, partition: Partition, size_bytes: int) -> None:
        """Reports a change, before anybody is answered."""
        self._log_watcher.changed(self.node_id, self._process, partition)
        super().partition_changed(partition, size_bytes)
