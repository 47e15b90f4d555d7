"""One leader in each epoch, and high watermarks that never go back for a reader."""

from __future__ import annotations

from cordwood.model.topic_partition import TopicPartition
from support.simulation.events import Committed, Elected, Event, Latest, Read, ReadOn, Watermark
from support.simulation.history import ViolationError


class OneLeader:
    """Guarantee: in each leader epoch of a partition, one broker appends and commits."""

    name = "one leader per epoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[TopicPartition, int], int] = {}

    def take(self, event: Event) -> None:
        """Checks an event."""
        if isinstance(event, (Elected, Committed)):
            key = event.partition, event.epoch
            leader = self._leaders.setdefault(key, event.broker)
            if leader != event.broker:
                raise ViolationError(
                    self.name,
                    f"{event.partition} is led by brokers {leader} and {event.broker} in epoch "
                    f"{event.epoch}",
                )


class Watermarks:
    """Guarantee: the committed end of a partition never goes back for a reader.

    The high watermark in fetches does so within a leader epoch only: a new leader learns by and by
    what is committed. The latest offset (ListOffsets) never does (KIP-207), and readers do not
    read behind it what they have read.
    """

    name = "high watermark"

    def __init__(self) -> None:
        self._marks: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        self._latest: dict[tuple[str, TopicPartition], int] = {}
        self._positions: dict[tuple[str, TopicPartition, bool], int] = {}

    def take(self, event: Event) -> None:
        """Checks an event."""
        match event:
            case Watermark():
                key = event.reader, event.partition
                epoch, offset = self._marks.get(key, (-1, -1))
                if epoch == event.epoch and event.offset < offset:
                    raise ViolationError(
                        self.name,
                        f"{event.reader} was given {offset} and then {event.offset} for "
                        f"{event.partition} in epoch {epoch}",
                    )
                self._marks[key] = event.epoch, event.offset
            case Latest():
                key = event.reader, event.partition
                known = self._latest.get(key, 0)
                if event.offset < known:
                    raise ViolationError(
                        self.name,
                        f"the latest offset of {event.partition} went from {known} back to "
                        f"{event.offset} for {event.reader}",
                    )
                self._latest[key] = event.offset
            case Read():
                place = event.reader, event.partition, event.is_committed
                if event.offset < self._positions.get(place, 0):
                    raise ViolationError(self.name, f"{event.reader} was sent back to {event}")
                self._positions[place] = event.offset + 1
            case ReadOn():
                place = event.reader, event.partition, event.is_committed
                self._positions[place] = max(self._positions.get(place, 0), event.end)
