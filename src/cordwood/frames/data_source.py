"""`spark.read.format("cordwood")`: logs of directories as DataFrames, and DataFrames as logs.

A task reads its part of a table itself, and hands Arrow batches to Spark. Filters on topic,
partition, offset and timestamp become searches in indexes, if Spark passes filters on
(`register` sees to that), and are evaluated by Spark besides. A task that writes turns Arrow
batches into segments, which `frames/writing/commit.py` puts in place.

Source: pyspark.sql.datasource (SPARK-44076).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from cordwood.frames.catalog import table_of
from cordwood.frames.options import FrameOptions, parse_options
from cordwood.frames.records import RECORDS
from cordwood.frames.streaming.positions import build_positions, parse_positions
from cordwood.frames.streaming.stream import RecordStream
from cordwood.frames.streaming.stream_options import (
    StreamOptions,
    parse_stream_options,
    refuse_stream_options,
)
from cordwood.frames.table import Table
from cordwood.frames.tasks import tasks_of
from cordwood.frames.wanted import Wanted
from cordwood.frames.writing.attempt import Staged, write_attempt
from cordwood.frames.writing.columns import require_columns
from cordwood.frames.writing.commit import commit_write, discard
from cordwood.frames.writing.options import parse_write_options
from cordwood.frames.writing.plan import WritePlan, plan_write
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.model.rng import SystemRng
from cordwood.model.uuids import fresh_uuid
from cordwood.storage.log_dir_urls import mount_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME: Final = "cordwood"

_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("cordwood")` known to a session, with filters passed on."""
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(CordwoodDataSource)


class CordwoodDataSource(DataSource):  # type: ignore[misc]  # PySpark is not followed
    """The source; see the module, and `FrameOptions` for its options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The columns.

        Raises:
            ConfigError: an option cannot be used.
        """
        options = parse_options(self.options)
        return from_arrow_schema(table_of(options.table).schema_of(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of one DataFrame.

        Raises:
            ConfigError: an option cannot be used, or is one of a stream.
        """
        del schema
        refuse_stream_options(self.options)
        return _Reader(parse_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """The reader of one DataFrame that grows with the directories.

        Raises:
            ConfigError: an option cannot be used, or the table cannot be read as a stream.
        """
        del schema
        return _StreamReader(parse_options(self.options), parse_stream_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of one DataFrame.

        Raises:
            ConfigError: an option or a column cannot be used, or records were to be replaced.
            TopicWriteError: the topic cannot be written to.
            DirectoryInUseError: a broker has the log directory open.
            OSError: the log directory cannot be read.
        """
        if overwrite:
            raise ConfigError("mode overwrite: the records of a topic are not replaced, use append")
        require_columns(to_arrow_schema(schema, timezone="UTC"))
        options = parse_write_options(self.options)
        return _Writer(plan_write(options, clock=SystemClock(), rng=SystemRng()))


@dataclass
class _Task(InputPartition):  # type: ignore[misc]  # as above
    """The parts that one task reads."""

    parts: tuple[Any, ...]

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        super().__init__(parts)


class _PushFilters:
    """`pushFilters` of a reader, which is not called where Spark passes no filters on.

    There Spark refuses a reader with another function than that of the base class, which
    `__func__` is compared with.

    Source: pyspark.sql.worker.plan_data_source_read (DATA_SOURCE_PUSHDOWN_DISABLED).
    """

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        # Of the object: an attribute of the class would be bound to it.
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows what the reader reads; Spark evaluates all filters besides."""
        for each in filters:
            self._reader.narrow(each)
        return filters


class _Reader(DataSourceReader):  # type: ignore[misc]  # as above
    def __init__(self, options: FrameOptions) -> None:
        self._options = options
        self._table = table_of(options.table)
        self._wanted = options.wanted

    @property
    def pushFilters(self) -> _PushFilters:  # noqa: N802
        return _PushFilters(self)

    def narrow(self, each: Filter) -> None:
        """Leaves out what a filter shows not to be wanted."""
        self._wanted = narrowed(self._wanted, each, self._table)

    def partitions(self) -> Sequence[InputPartition]:
        parts = self._table.parts(self._options, self._wanted)
        return [_Task(each) for each in tasks_of(parts, self._options.slice_bytes)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None:  # there are no partitions
            return iter(())
        return _batches(partition, self._options)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # as above
    """Hands a stream's positions to Spark; one object lives as long as the query runs."""

    def __init__(self, options: FrameOptions, stream_options: StreamOptions) -> None:
        if table_of(options.table) is not RECORDS:
            raise ConfigError(
                f"option table: {options.table} cannot be read as a stream, only {RECORDS.name}"
            )
        self._options = options
        self._limits = stream_options
        self._stream = RecordStream(options, stream_options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return build_positions(self._stream.first())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark knows one limit of a source; `latestOffset` observes all of them.
        limits = self._limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        is_limited = not isinstance(limit, ReadAllAvailable)
        return build_positions(self._stream.latest(parse_positions(start), is_limited=is_limited))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        newest = self._stream.newest
        return None if newest is None else build_positions(newest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._stream.stop_at_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        parts = self._stream.parts(parse_positions(start), parse_positions(end))
        return [_Task(each) for each in tasks_of(parts, self._options.slice_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(partition, self._options)


def _batches(partition: InputPartition, options: FrameOptions) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Task), "a partition of a reader of this source"
    mount_again(options.log_dirs)
    spare_the_collector()
    table = table_of(options.table)
    return chain.from_iterable(table.batches(each, options) for each in partition.parts)


@cache
def spare_the_collector() -> None:
    """Hides from the garbage collector what a worker has loaded.

    After every task a worker of Spark looks for garbage, among all that is imported: a tenth of a
    second, in which a task could read 100 MB.

    Source: pyspark.daemon.manager.
    """
    gc.collect()
    gc.freeze()


@dataclass
class _Written(WriterCommitMessage):  # type: ignore[misc]  # as above
    """The segments that one task has written."""

    staged: Staged


class _Writer(DataSourceArrowWriter):  # type: ignore[misc]  # as above
    """Writes a DataFrame; Spark calls `write` in tasks, and one of the others when all ended."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None, "Spark calls it in a task"
        attempt = fresh_uuid(SystemRng()).hex[:16]
        return _Written(
            write_attempt(self._plan.attempts, iterator, task=task.partitionId(), attempt=attempt)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = [each.staged for each in messages if isinstance(each, _Written)]
        commit_write(self._plan, staged, clock=SystemClock(), rng=SystemRng())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        del messages  # also what those have left that say nothing
        discard(self._plan)


def narrowed(wanted: Wanted, each: Filter, table: Table) -> Wanted:
    """The wanted part, of which a filter that is not known leaves all."""
    if not isinstance(each, _COLUMN_FILTERS) or len(each.attribute) != 1:
        return wanted
    option = _OPTIONS.get(each.attribute[0])
    if option is None or not table.has_option(option):
        return wanted
    value = frozenset(each.value) if isinstance(each, In) else each.value
    narrow = _NARROWS.get((type(each), option))
    return wanted if narrow is None else narrow(wanted, value)


def _ms(moment: datetime) -> int:
    """The milliseconds since the epoch, rounded down."""
    return int(moment.timestamp() * 1000)


_COLUMN_FILTERS: Final = (EqualTo, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
#: The option of a table that leaves out the same rows as a filter on a column, of a batch, a
#: segment or a transaction at least those without a wanted offset.
_OPTIONS: Final[Mapping[str, str]] = {
    "topic": "topics",
    "partition": "partitions",
    **dict.fromkeys(("offset", "baseOffset", "firstOffset", "lastOffset"), "startingOffset"),
    **dict.fromkeys(("timestamp", "maxTimestamp"), "startingTimestamp"),
}
_NARROWS: Final[Mapping[tuple[type[Filter], str], Callable[[Wanted, Any], Wanted]]] = {
    (In, "topics"): Wanted.of_topics,
    (In, "partitions"): Wanted.of_partitions,
    (EqualTo, "topics"): lambda wanted, value: wanted.of_topics(frozenset({value})),
    (EqualTo, "partitions"): lambda wanted, value: wanted.of_partitions(frozenset({value})),
    (EqualTo, "startingOffset"): lambda wanted, value: wanted.from_offset(value).before_offset(
        value + 1
    ),
    (GreaterThan, "startingOffset"): lambda wanted, value: wanted.from_offset(value + 1),
    (GreaterThanOrEqual, "startingOffset"): Wanted.from_offset,
    (LessThan, "startingOffset"): Wanted.before_offset,
    (LessThanOrEqual, "startingOffset"): lambda wanted, value: wanted.before_offset(value + 1),
    (EqualTo, "startingTimestamp"): lambda wanted, value: wanted.from_ms(_ms(value)),
    (GreaterThan, "startingTimestamp"): lambda wanted, value: wanted.from_ms(_ms(value)),
    (GreaterThanOrEqual, "startingTimestamp"): lambda wanted, value: wanted.from_ms(_ms(value)),
}
