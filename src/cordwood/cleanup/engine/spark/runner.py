"""Runs functions as tasks of Spark, and merges what they give by shard.

On a session of Spark's own, tasks are partitions of an RDD: rows pass the virtual machine as opaque
bytes, and it needs neither a planner nor Arrow, which together take longer than a small compaction.
Spark Connect has DataFrames alone.

Source: pyspark.core.rdd; pyspark.sql.DataFrame.mapInArrow, GroupedData.applyInArrow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Row(NamedTuple):
    """A part of a task's result; `kind` and `payload` are for the caller."""

    task: int
    kind: int
    payload: bytes


class Block(NamedTuple):
    """A part of a task's result that is merged with those of the same shard."""

    shard: int
    chunk: int
    generation: int
    kind: int
    payload: bytes


Task = Callable[[int], Iterable[Row]]
IndexTask = Callable[[int], Iterable[Block]]
Merge = Callable[[Sequence[Block]], Iterable[Row]]


class Runner(Protocol):
    """Runs tasks; functions are pickled. Any error of Spark is raised as it is."""

    @property
    def slots(self) -> int:
        """The number of tasks that run at once."""

    @property
    def cores(self) -> int:
        """The number of cores that a task may use that runs alone."""

    def session(self) -> Any:
        """The session for DataFrames, whose times are UTC; started when it is first asked for."""

    def run(self, count: int, task: Task) -> list[Row]:
        """The rows of `count` tasks, each of which is given its number."""

    def merge(self, count: int, index: IndexTask, shards: int, merge: Merge) -> list[Row]:
        """The rows that `merge` makes of each shard's blocks, which `count` tasks give.

        Shards are numbers below `shards`; negative ones are shards of their own.
        """


class RddRunner:
    """`Runner` on a SparkContext."""

    def __init__(self, context: Any) -> None:
        self.context = context

    @property
    def slots(self) -> int:
        """The default parallelism of the context."""
        return max(1, int(self.context.defaultParallelism))

    @property
    def cores(self) -> int:
        """All cores of a local Spark; on a cluster those that it gives a task."""
        if self.context.master.startswith("local"):
            return self.slots
        return max(1, int(self.context.getConf().get("spark.task.cpus", "1")))

    def session(self) -> Any:
        """A session on the context, in UTC."""
        from pyspark.sql import SparkSession  # noqa: PLC0415  # only an SQL expression needs it

        session = SparkSession(self.context)
        session.conf.set("spark.sql.session.timeZone", "UTC")
        return session

    def run(self, count: int, task: Task) -> list[Row]:
        """Runs tasks as partitions of an RDD."""

        def rows(numbers: Iterator[int]) -> Iterator[Row]:
            for number in numbers:
                yield from task(number)

        return self._collected(self._numbers(count).mapPartitions(rows))

    def merge(self, count: int, index: IndexTask, shards: int, merge: Merge) -> list[Row]:
        """Shuffles blocks of an RDD to shards, and merges each."""

        def blocks(numbers: Iterator[int]) -> Iterator[tuple[int, Block]]:
            for number in numbers:
                for block in index(number):
                    yield block.shard, block

        def merged(pairs: Iterator[tuple[int, Block]]) -> Iterator[Row]:
            found: dict[int, list[Block]] = {}
            for shard, block in pairs:
                found.setdefault(shard, []).append(block)
            while found:  # a shard's memory is free when it is merged
                yield from merge(found.pop(next(iter(found))))

        keyed = self._numbers(count).mapPartitions(blocks)
        return self._collected(keyed.partitionBy(shards, int).mapPartitions(merged))

    def _numbers(self, count: int) -> Any:
        return self.context.parallelize(range(count), count)

    @staticmethod
    def _collected(rdd: Any) -> list[Row]:
        found: list[Row] = rdd.collect()
        return found


_ROW_DDL = "task int, kind byte, payload binary"
_BLOCK_DDL = "shard int, chunk int, generation int, kind byte, payload binary"


class DataFrameRunner:
    """`Runner` on a session of Spark Connect."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @property
    def slots(self) -> int:
        """The number of cores here: the server's is unknown."""
        return os.cpu_count() or 1

    @property
    def cores(self) -> int:
        """One: the server's number is unknown."""
        return 1

    def session(self) -> Any:
        """The session, in UTC."""
        self._session.conf.set("spark.sql.session.timeZone", "UTC")
        return self._session

    def run(self, count: int, task: Task) -> list[Row]:
        """Runs tasks by mapInArrow."""

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from map(_arrow_of_row, task(number))

        return self._collected(self._numbers(count).mapInArrow(rows, _ROW_DDL))

    def merge(self, count: int, index: IndexTask, shards: int, merge: Merge) -> list[Row]:
        """Shuffles rows of a DataFrame to shards, and merges each."""

        def blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from map(_arrow_of_block, index(number))

        def merged(table: pa.Table) -> pa.Table:
            import pyarrow as pa  # noqa: PLC0415  # in a worker

            found = [Block(**row) for row in table.to_pylist()]
            return pa.Table.from_pylist([row._asdict() for row in merge(found)], _row_schema())

        self._session.conf.set("spark.sql.shuffle.partitions", str(shards))
        frame = self._numbers(count).mapInArrow(blocks, _BLOCK_DDL)
        return self._collected(frame.groupBy("shard").applyInArrow(merged, _ROW_DDL))

    def _numbers(self, count: int) -> Any:
        return self._session.range(0, count, 1, count)

    @staticmethod
    def _collected(frame: Any) -> list[Row]:
        return [Row(**row) for row in frame.toArrow().to_pylist()]


def _row_schema() -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415  # in a worker

    return pa.schema([("task", pa.int32()), ("kind", pa.int8()), ("payload", pa.binary())])


def _arrow_of_row(row: Row) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415  # in a worker

    return pa.RecordBatch.from_pylist([row._asdict()], _row_schema())


def _arrow_of_block(block: Block) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415  # in a worker

    fields = [pa.field(name, pa.int32()) for name in ("shard", "chunk", "generation")]
    schema = pa.schema([*fields, ("kind", pa.int8()), ("payload", pa.binary())])
    return pa.RecordBatch.from_pylist([block._asdict()], schema)
