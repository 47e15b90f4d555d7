"""A stream of the records of directories that grow: which offsets it reads next.

Directories are read again for each batch of the stream, as the process that plans is one that
lives long. Below a position that was given out every record was committed, as far as the isolation
asks for that; so a batch that is planned again has the same records.

Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from cordwood.cleanup.plan.captured import Captured
from cordwood.frames.options import FrameOptions
from cordwood.frames.records import RecordReader
from cordwood.frames.slices import Slice, committed_below, end_within, slices_of, visible_end
from cordwood.frames.streaming.limits import shares
from cordwood.frames.streaming.positions import Positions, TopicPosition
from cordwood.frames.streaming.stream_options import EARLIEST, LATEST, StreamOptions
from cordwood.frames.streaming.topics import Topics, captured_topics
from cordwood.frames.wanted import Wanted
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import ConfigError, DataLossError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.reread import reread

_log = logging.getLogger(__name__)

_NOWHERE = TopicPosition(offsets={})
#: Larger than any segment.
_WHOLE_SEGMENTS = 1 << 62


class RecordStream:
    """The positions of one stream, and the parts between two of them.

    All methods raise CordwoodError where a log cannot be read, OSError where a file cannot.
    """

    def __init__(
        self, options: FrameOptions, stream: StreamOptions, *, clock: Clock | None = None
    ) -> None:
        # Records are left out by no offset and by no timestamp.
        wanted = Wanted(topics=options.wanted.topics, partitions=options.wanted.partitions)
        self._options = replace(options, wanted=wanted)
        self._stream = stream
        self._clock = clock or SystemClock()
        self._target: Positions | None = None
        self._newest: Positions | None = None
        self._planned: tuple[Positions, Topics] | None = None
        self._triggered_s: float | None = None
        self._warned: set[str] = set()

    @property
    def newest(self) -> Positions | None:
        """The end of what was there when the directories were last read, None before that."""
        return self._newest

    def first(self) -> Positions:
        """The positions at which the stream begins.

        Raises:
            ConfigError: `startingOffsets` names other partitions than those that are there.
        """
        topics = self._captured()
        starts = self._stream.starts
        if starts is not None and self._stream.first_ms is None:
            _require_all(starts, topics)
        return {
            name: TopicPosition(
                offsets={
                    number: self._first_of(captured) for number, captured in topic.logs.items()
                },
                topic_id=topic.topic_id,
            )
            for name, topic in topics.items()
        }

    def _first_of(self, captured: Captured) -> int:
        view, stream = captured.view, self._stream
        if stream.first_ms is not None:
            wanted = Wanted(first_ms=stream.first_ms)
            found = self._first_offset(captured, wanted)
            return self._end_of(captured) if found is None else found
        start = stream.start
        if stream.starts is not None:
            start = stream.starts[view.topic_partition]
        if start == EARLIEST:
            return view.log_start_offset
        return self._end_of(captured) if start == LATEST else start

    def _first_offset(self, captured: Captured, wanted: Wanted) -> int | None:
        reader = RecordReader(("offset",))
        for part in slices_of(captured, wanted, self._options.isolation):
            for batch in reader.read(part):
                found: int = batch.column(0)[0].as_py()
                return found
        return None

    def stop_at_end(self) -> None:
        """Ends the stream at what is there now; partitions that come later are not read."""
        self._captured()
        self._target = self._newest

    def latest(self, start: Positions, *, is_limited: bool) -> Positions:
        """The end of the next batch of the stream, `start` if there is nothing to read.

        Args:
            start: where it begins.
            is_limited: the limits of the options hold.

        Raises:
            DataLossError: records at `start` are gone, and the options do not allow for that.
        """
        # A segment may be replaced between the capture and the search in its index.
        found = reread(lambda: self._latest(start, is_limited=is_limited))
        return start if found is None else found

    def _latest(self, start: Positions, *, is_limited: bool) -> Positions | None:
        """Does what `latest` says; None if there is too little to read."""
        topics = self._captured()
        begins = self._continued(start, topics)
        ends = {
            partition: max(begin, self._end_within_target(partition, topics))
            for partition, begin in begins.items()
        }
        count = sum(ends.values()) - sum(begins.values())
        if is_limited:
            ends = self._limited(begins, ends, topics)
            if self._waits(count):
                return None
        found: dict[str, TopicPosition] = {}
        for name in sorted({*start, *topics}):
            known, topic = start.get(name, _NOWHERE), topics.get(name)
            topic_id = known.topic_id if topic is None else topic.topic_id or known.topic_id
            # A partition that is not there now may come back, and continues then.
            offsets = dict(known.offsets) if known.is_of(topic_id) else {}
            for number in () if topic is None else topic.logs:
                partition = TopicPartition(name, number)
                if number in offsets or ends[partition] > begins[partition]:
                    offsets[number] = ends[partition]
            if offsets:
                found[name] = TopicPosition(offsets=offsets, topic_id=topic_id)
        self._planned = found, topics
        return found

    def parts(self, start: Positions, end: Positions) -> list[Slice]:
        """The parts of a batch of the stream, for tasks: the records from `start` to before `end`.

        Raises:
            DataLossError: records between them are gone, and the options do not allow for that.
        """
        return reread(lambda: self._parts(start, end))

    def _parts(self, start: Positions, end: Positions) -> list[Slice]:
        planned, self._planned = self._planned, None
        topics = planned[1] if planned and planned[0] == end else self._captured()
        begins = self._continued(_of_same_topics(start, end), topics)
        parts: list[Slice] = []
        for name, position in end.items():
            topic = topics.get(name)
            if topic is None or not position.is_of(topic.topic_id):
                continue  # was reported as lost
            for number, before in position.offsets.items():
                captured, begin = topic.logs.get(number), begins.get(TopicPartition(name, number))
                if captured is not None and begin is not None and begin < before:
                    reaching = self._reaching(captured, before)
                    parts += self._slices(reaching, begin, before, self._options.slice_bytes)
        return parts

    def _reaching(self, captured: Captured, end: int) -> Captured:
        """The log with offsets below `end` committed: they were when `end` was given out."""
        view = captured.view
        if view.log_end_offset < end:
            self._lose(view.topic_partition, end, "ends", view.log_end_offset)
            end = view.log_end_offset
        return committed_below(captured, end)

    # ---- what is there

    def _captured(self) -> Topics:
        topics = captured_topics(self._options, clock=self._clock)
        self._newest = {
            name: TopicPosition(
                offsets={number: self._end_of(captured) for number, captured in topic.logs.items()},
                topic_id=topic.topic_id,
            )
            for name, topic in topics.items()
        }
        return topics

    def _end_of(self, captured: Captured) -> int:
        """The end of what the stream may read; above the high watermark a log may be truncated."""
        view = captured.view
        return min(visible_end(view, self._options.isolation), view.high_watermark)

    def _end_within_target(self, partition: TopicPartition, topics: Topics) -> int:
        topic = topics[partition.topic]
        end = self._end_of(topic.logs[partition.partition])
        if self._target is None:
            return end
        target = self._target.get(partition.topic, _NOWHERE)
        if not target.is_of(topic.topic_id):
            return 0
        return min(end, target.offsets.get(partition.partition, 0))

    def _slices(
        self, captured: Captured, begin: int, end: int, slice_bytes: int
    ) -> Iterator[Slice]:
        wanted = Wanted(first_offset=begin, end_offset=end)
        return slices_of(captured, wanted, self._options.isolation, slice_bytes=slice_bytes)

    # ---- limits

    def _waits(self, count: int) -> bool:
        """Whether so few new offsets are to wait for others."""
        at_least = self._stream.offsets_min
        # Nothing more comes before the end of a stream that stops there.
        if at_least is None or self._target is not None:
            return False
        now_s, last_s = self._clock.monotonic_s(), self._triggered_s
        is_due = last_s is None or (now_s - last_s) * 1000 >= self._stream.delay_ms
        if count < at_least and not is_due:
            return True
        self._triggered_s = now_s
        return False

    def _limited(
        self,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        topics: Topics,
    ) -> dict[TopicPartition, int]:
        limited = dict(ends)
        if self._stream.offsets_max is not None:
            sizes = {partition: ends[partition] - begin for partition, begin in begins.items()}
            for partition, count in shares(sizes, self._stream.offsets_max).items():
                limited[partition] = begins[partition] + count
        if self._stream.bytes_max is not None:
            slices = {
                partition: list(
                    self._slices(
                        topics[partition.topic].logs[partition.partition],
                        begin,
                        ends[partition],
                        _WHOLE_SEGMENTS,
                    )
                )
                for partition, begin in begins.items()
                if begin < ends[partition]
            }
            sizes = {
                partition: sum(each.size_bytes for each in found)
                for partition, found in slices.items()
            }
            for partition, size_bytes in shares(sizes, self._stream.bytes_max).items():
                if size_bytes < sizes[partition]:
                    end = end_within(slices[partition], size_bytes)
                    limited[partition] = min(limited[partition], end)
        return limited

    # ---- losses

    def _continued(self, start: Positions, topics: Topics) -> dict[TopicPartition, int]:
        """The offset from which each partition that is there is read on.

        Offsets that compaction has removed are no loss: the log start offset does not pass them.
        """
        begins: dict[TopicPartition, int] = {}
        for name in sorted({*start, *topics}):
            known, topic = start.get(name, _NOWHERE), topics.get(name)
            logs = {} if topic is None else topic.logs
            offsets = known.offsets
            if topic is not None and not known.is_of(topic.topic_id):
                for number, offset in offsets.items():
                    self._report(
                        DataLossError(
                            str(TopicPartition(name, number)),
                            offset,
                            f"the topic was made again: its id was {known.topic_id} and is "
                            f"{topic.topic_id}",
                        )
                    )
                offsets = {}
            for number in sorted({*offsets, *logs}):
                partition, offset = TopicPartition(name, number), offsets.get(number, 0)
                captured = logs.get(number)
                if captured is None:
                    self._report(DataLossError(str(partition), offset, "it is not there any more"))
                    continue
                view = captured.view
                if offset < view.log_start_offset:
                    self._lose(partition, offset, "begins", view.log_start_offset)
                elif offset > view.log_end_offset:
                    self._lose(partition, offset, "ends", view.log_end_offset)
                begins[partition] = min(max(offset, view.log_start_offset), view.log_end_offset)
        return begins

    def _lose(self, partition: TopicPartition, position: int, what: str, offset: int) -> None:
        self._report(
            DataLossError(
                str(partition), position, f"the log {what} at offset {offset}", log_offset=offset
            )
        )

    def _report(self, error: DataLossError) -> None:
        if self._stream.fails_on_data_loss:
            raise error
        if str(error) not in self._warned:
            self._warned.add(str(error))
            _log.warning("%s", error)


def _require_all(starts: Mapping[TopicPartition, int], topics: Topics) -> None:
    there = {TopicPartition(name, number) for name in topics for number in topics[name].logs}
    if there != {*starts}:
        unnamed, unknown = sorted(there - {*starts}), sorted({*starts} - there)
        raise ConfigError(
            "option startingOffsets: "
            + "; ".join(
                f"{what} {', '.join(map(str, partitions))}"
                for what, partitions in (("it names not", unnamed), ("there is no", unknown))
                if partitions
            )
        )


def _of_same_topics(start: Positions, end: Positions) -> Positions:
    """The positions at which the topics of `end` are begun with: new partitions at offset 0."""
    found: dict[str, TopicPosition] = {}
    for name, position in end.items():
        known = start.get(name, _NOWHERE)
        offsets = known.offsets if known.is_of(position.topic_id) else {}
        found[name] = replace(
            position, offsets={number: offsets.get(number, 0) for number in position.offsets}
        )
    return found
