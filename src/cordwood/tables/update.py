"""Brings a table up to date with its topic: one run, one commit with rows and offsets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from cordwood.frames.decoding.column import ColumnDecoder
from cordwood.frames.decoding.encoding import NAMES as DECODING_OPTIONS
from cordwood.frames.options import FrameOptions, parse_options
from cordwood.frames.records import RECORDS
from cordwood.frames.streaming.topics import Topic, captured_topics
from cordwood.frames.table import decoded
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError, TableError
from cordwood.tables.columns import COLUMNS, as_columns, grown
from cordwood.tables.newest import newest_records
from cordwood.tables.ranges import ISOLATION, Range, rows_ranges, state_ranges
from cordwood.tables.report import TableForm, TableReport, TableRequest
from cordwood.tables.topic_table import GONE, Changes, Contents, Read, TopicTable

_STRATEGY: Final = "offset"


def update_table(request: TableRequest, *, clock: Clock) -> TableReport:
    """Adds to a table what its topic has that the table has not; makes the table if there is none.

    Raises:
        ConfigError: the topic is not there, an option has a wrong value, or the table is another
            one's.
        TableGapError: records of a table of rows are gone, and that is not allowed.
        TableSchemaError: a type of a column is not that of the table any more.
        TableConflictError: another writer was first.
        TableError: the table cannot be read or written.
        MalformedValueError: a value cannot be decoded.
        CordwoodError: a log cannot be read.
        OSError: a directory cannot be read.
    """
    started_s, now_ms = clock.monotonic_s(), clock.now_ms()
    options = _options(request)
    # The snapshot is older than what is read: who commits later than it is in conflict.
    table = TopicTable.opened(request.into)
    topic = _topic(request, options, clock)
    run = _Run(request, options, topic, now_ms)
    is_created = table is None
    table = run.created() if table is None else run.checked(table)
    schema = grown(table.schema, RECORDS.schema_of(options))
    ranges = run.ranges(table)
    changes = run.commit(table, schema, ranges)
    expired = 0
    if request.expire_hours is not None:
        expired = table.expire(request.expire_hours)
    return TableReport(
        path=str(request.into),
        topic=request.topic,
        form=table.contents.form,
        version=table.version,
        is_created=is_created,
        partitions=[each.reported() for each in ranges],
        inserted=changes.inserted,
        updated=changes.updated,
        deleted=changes.deleted,
        expired_files=expired,
        elapsed_s=clock.monotonic_s() - started_s,
    )


def _options(request: TableRequest) -> FrameOptions:
    known = {name.lower() for name in DECODING_OPTIONS}
    unknown = [name for name in request.decoding if name.lower() not in known]
    if unknown:
        raise ConfigError(
            f"option {', '.join(unknown)}: none of {', '.join(DECODING_OPTIONS)}, which decode"
        )
    return parse_options(
        {
            **request.decoding,
            "paths": json.dumps([str(each) for each in request.log_dirs]),
            "topics": request.topic,
            "columns": ",".join(COLUMNS),
            "isolation": ISOLATION,
        }
    )


def _topic(request: TableRequest, options: FrameOptions, clock: Clock) -> Topic:
    topics = captured_topics(options, clock=clock)
    if request.topic not in topics:
        near = f"; a table has one topic, not {', '.join(topics)}" if topics else ""
        raise ConfigError(
            f"topic {request.topic} is not in {', '.join(map(str, request.log_dirs))}{near}"
        )
    return topics[request.topic]


class _Run:
    """One run: the request, the topic as it is, and the time."""

    def __init__(
        self, request: TableRequest, options: FrameOptions, topic: Topic, now_ms: int
    ) -> None:
        self._request = request
        self._options = options
        self._topic = topic
        self._now_ms = now_ms

    def created(self) -> TopicTable:
        """A new table, which begins where each log does."""
        form = self._request.form
        if form is None:
            is_state = any(each.view.config.compact for each in self._topic.logs.values())
            form = TableForm.STATE if is_state else TableForm.ROWS
        self._require_form(form)
        reads = {
            number: Read(next_offset=each.view.log_start_offset, at_ms=self._now_ms)
            for number, each in self._topic.logs.items()
        }
        contents = Contents(topic=self._request.topic, topic_id=self._topic.topic_id, form=form)
        schema = RECORDS.schema_of(self._options)
        return TopicTable.created(self._request.into, schema, contents, reads)

    def checked(self, table: TopicTable) -> TopicTable:
        """The table, which must be of this topic."""
        known, path, topic_id = table.contents, self._request.into, self._topic.topic_id
        if known.topic != self._request.topic:
            raise ConfigError(f"{path} is a table of topic {known.topic}")
        if known.topic_id is not None and topic_id is not None and known.topic_id != topic_id:
            raise TableError(
                f"{path}: topic {known.topic} was made again: its id is {topic_id}, and the "
                f"table is of the one with id {known.topic_id}. Make another table"
            )
        if self._request.form not in {None, known.form}:
            raise ConfigError(f"{path} is a table of the form {known.form}")
        self._require_form(known.form)
        return table

    def _require_form(self, form: TableForm) -> None:
        if form is TableForm.ROWS:
            return
        if any(each.column == "key" for each in self._options.encodings):
            raise ConfigError("the keys of a table of the form state are not decoded")
        for each in self._topic.logs.values():
            strategy = each.view.config.cordwood_compaction_strategy
            if strategy != _STRATEGY:
                raise ConfigError(
                    f"{each.view.topic_partition}: a table of the form state has the newest record "
                    f"by offset of each key, and cordwood.compaction.strategy is {strategy}"
                )

    def ranges(self, table: TopicTable) -> list[Range]:
        """The offsets of each partition that are read."""
        reads = {number: table.read_of(number) for number in self._topic.logs}
        if table.contents.form is TableForm.ROWS:
            return rows_ranges(self._topic, reads, allows_gaps=self._request.allows_gaps)
        return state_ranges(self._topic, reads, is_full=self._request.is_full, now_ms=self._now_ms)

    def commit(self, table: TopicTable, schema: pa.Schema, ranges: Sequence[Range]) -> Changes:
        """Commits the rows of the ranges; nothing if there is nothing new."""
        reads = {
            each.partition: Read(next_offset=each.end_offset, at_ms=self._now_ms)
            for each in ranges
            if self._is_due(each, table)
        }
        if table.contents.form is TableForm.ROWS:
            if not reads:
                return Changes()
            return table.append(schema, self._rows(ranges, schema), reads)
        missing = self._missing(table, ranges)
        if not reads and missing is None:
            return Changes()
        return table.merge(schema, self._state(ranges, schema), reads, missing=missing)

    def _is_due(self, each: Range, table: TopicTable) -> bool:
        """Whether what was read of a partition is to be noted."""
        read = table.read_of(each.partition)
        if each.first_offset < each.end_offset or each.full_because or each.gap:
            return True
        if read is None:
            return True
        if table.contents.form is TableForm.ROWS:
            return False
        # Before the time that is noted would ask for all of the log.
        return (self._now_ms - read.at_ms) * 2 >= each.captured.view.config.delete_retention_ms

    def _rows(self, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for each in ranges:
            for part in each.slices(self._options.slice_bytes):
                for batch in RECORDS.batches(part, self._options):
                    yield as_columns(batch, schema)

    def _state(self, ranges: Sequence[Range], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        decoders = {each.column: ColumnDecoder(each) for each in self._options.encodings}
        for each in ranges:
            for batch in newest_records([*each.slices(self._options.slice_bytes)], COLUMNS):
                # Before it is decoded: what is malformed, or a null of JSON, is no tombstone.
                gone = batch.column("value").is_null()
                found = as_columns(decoded(batch, COLUMNS, decoders), schema)
                yield pa.RecordBatch.from_arrays([*found.columns, gone], [*schema.names, GONE])

    def _missing(self, table: TopicTable, ranges: Sequence[Range]) -> str | None:
        """The condition of rows whose records are in no log any more; None if there are none."""
        conditions = []
        for each in ranges:
            number, start = each.partition, each.captured.view.log_start_offset
            if each.full_because:
                conditions.append(f"{{0}}partition = {number}")
            elif start:
                below = f"{{0}}partition = {number} AND {{0}}offset < {start}"
                conditions += [f"({below})"] if table.has_rows(below.format("")) else []
        return " OR ".join(conditions).format("t.") if conditions else None
