"""Committed records are never lost, and replicas are equal below the high watermark."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from cordwood.model.topic_partition import TopicPartition
from support.simulation.events import (
    Acknowledged,
    Committed,
    Earliest,
    Elected,
    Ended,
    Event,
    Read,
    Replica,
    Sent,
    StoredBatch,
)
from support.simulation.history import ViolationError


class _Partition:
    """The batches of a partition that some leader has had committed, without gaps between them."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.offsets: list[int] = []

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def put(self, batch: StoredBatch) -> None:
        self.batches.append(batch)
        self.offsets.append(batch.offset)

    def at(self, offset: int) -> StoredBatch | None:
        place = bisect_left(self.offsets, offset)
        return self.batches[place] if place < len(self.batches) else None


class CommittedRecords:
    """No committed batch is ever replaced or lost.

    - Two leaders never have committed different batches at one offset.
    - An elected leader has everything that is committed.
    - A replica that the controller holds for in sync has everything that is committed.
    - Below its high watermark, a replica has the committed batches and nothing else.
    - In the end every replica is in sync, and has all that is committed.
    """

    name = "committed records"

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = defaultdict(_Partition)
        #: The newest epoch in which a leader has committed something.
        self._epochs: dict[TopicPartition, int] = defaultdict(int)

    def take(self, event: Event) -> None:
        """Checks an event."""
        match event:
            case Committed():
                self._commit(event)
            case Elected():
                known = self._partitions[event.partition].end
                is_over = event.epoch < self._epochs[event.partition]  # it learns of it late
                if event.end < known and not is_over:
                    raise self._violation(
                        f"{event.partition} is led by broker {event.broker} in epoch "
                        f"{event.epoch}, whose log ends at {event.end}, and {known} is committed"
                    )
            case Replica():
                self._replica(event)

    def _violation(self, text: str) -> ViolationError:
        return ViolationError(self.name, text)

    def _commit(self, event: Committed) -> None:
        self._epochs[event.partition] = max(self._epochs[event.partition], event.epoch)
        known = self._partitions[event.partition]
        for batch in event.batches:
            found = known.at(batch.offset)
            if found is None:
                if batch.offset != known.end:
                    raise self._violation(
                        f"{event.partition} of broker {event.broker} has a gap before {batch}"
                    )
                known.put(batch)
            elif found != batch:
                raise self._violation(
                    f"broker {event.broker} has committed {batch} of {event.partition} in epoch "
                    f"{event.epoch}, where {found} was committed"
                )

    def _replica(self, event: Replica) -> None:
        known = self._partitions[event.partition]
        for batch in event.batches:
            found = known.at(batch.offset)
            if found is not None and found != batch and self._must_agree(event, batch, known):
                raise self._violation(
                    f"broker {event.broker} has {batch} in {event.partition}, where {found} is "
                    f"committed; its high watermark is {event.high_watermark}"
                )
            if found is None and batch.last_offset < event.high_watermark:
                raise self._violation(
                    f"broker {event.broker} holds {batch} of {event.partition} for committed, and "
                    f"no leader has committed more than {known.end}"
                )
        if event.is_in_sync and event.end < known.end:
            raise self._violation(
                f"{event.partition} of broker {event.broker} is in sync and ends at {event.end}, "
                f"and {known.end} is committed"
            )
        if event.state is not None:
            self._require_complete(event, known)

    @staticmethod
    def _must_agree(event: Replica, batch: StoredBatch, known: _Partition) -> bool:
        return event.is_in_sync or batch.last_offset < min(event.high_watermark, known.end)

    def _require_complete(self, event: Replica, known: _Partition) -> None:
        if not event.is_in_sync:
            raise self._violation(
                f"in the end, {event.partition} of broker {event.broker} is not in sync"
            )
        if event.end != known.end or event.high_watermark != known.end:
            raise self._violation(
                f"in the end, {event.partition} of broker {event.broker} ends at {event.end}, with "
                f"the high watermark {event.high_watermark}, and {known.end} is committed"
            )


class ExactlyOnce:
    """An idempotent producer's values are in the log once each, where they were acknowledged.

    Judged by a reader that has read everything when the run ends.
    """

    name = "exactly once"

    def __init__(self, final_reader: str) -> None:
        """`final_reader` is the one that reads everything in the end."""
        self._reader = final_reader
        self._acknowledged: dict[tuple[TopicPartition, int], bytes] = {}
        self._sent: dict[bytes, TopicPartition] = {}
        self._read: dict[tuple[TopicPartition, int], bytes] = {}
        self._places: dict[bytes, int] = {}
        #: Below these offsets records were deleted.
        self._first: dict[TopicPartition, int] = {}

    def take(self, event: Event) -> None:
        """Checks an event."""
        match event:
            case Sent():
                for value in event.values:
                    self._sent[value] = event.partition
            case Acknowledged():
                for number, value in enumerate(event.values):
                    self._note(event.partition, event.offset + number, value)
            case Earliest():
                self._first[event.partition] = event.offset
            case Read():
                self._take_read(event)
            case Ended():
                for (partition, offset), value in self._acknowledged.items():
                    if offset < self._first.get(partition, 0):
                        continue
                    if self._read.get((partition, offset)) != value:
                        raise ViolationError(
                            self.name,
                            f"{value!r} was acknowledged at offset {offset} of {partition}, where "
                            f"{self._read.get((partition, offset))!r} is",
                        )

    def _note(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        other = self._acknowledged.setdefault((partition, offset), value)
        if other != value:
            raise ViolationError(
                self.name, f"{other!r} and {value!r} were acknowledged at {offset} of {partition}"
            )

    def _take_read(self, event: Read) -> None:
        if self._sent.get(event.value) != event.partition:
            raise ViolationError(
                self.name, f"{event.value!r} of {event.partition} was never sent to it"
            )
        acknowledged = self._acknowledged.get((event.partition, event.offset), event.value)
        if acknowledged != event.value:
            raise ViolationError(
                self.name,
                f"{event.reader} has read {event.value!r} at {event.offset} of {event.partition}, "
                f"where {acknowledged!r} was acknowledged",
            )
        if event.reader != self._reader or event.is_committed:
            return
        self._read[event.partition, event.offset] = event.value
        place = self._places.setdefault(event.value, event.offset)
        if place != event.offset:
            raise ViolationError(
                self.name,
                f"{event.value!r} is at {place} and at {event.offset} of {event.partition}",
            )
