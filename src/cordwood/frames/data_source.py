"""`spark.read.format("cordwood")`: logs of directories as DataFrames.

A task reads its part of a table itself, and hands Arrow batches to Spark. Filters on topic,
partition, offset and timestamp become searches in indexes, if Spark passes filters on
(`register` sees to that), and are evaluated by Spark besides.

Source: pyspark.sql.datasource (SPARK-44076).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema

from cordwood.frames.catalog import table_of
from cordwood.frames.options import FrameOptions, parse_options
from cordwood.frames.wanted import Wanted

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
        """The reader of one DataFrame."""
        del schema
        return _Reader(parse_options(self.options))


@dataclass
class _Part(InputPartition):  # type: ignore[misc]  # as above
    """The part that one task reads."""

    part: Any

    def __init__(self, part: Any) -> None:
        self.part = part
        super().__init__(part)


class _Reader(DataSourceReader):  # type: ignore[misc]  # as above
    def __init__(self, options: FrameOptions) -> None:
        self._options = options
        self._table = table_of(options.table)
        self._wanted = options.wanted

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for each in filters:
            self._wanted = _narrowed(self._wanted, each)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [_Part(each) for each in self._table.parts(self._options, self._wanted)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None:  # there are no partitions
            return iter(())
        assert isinstance(partition, _Part), "a partition of this reader"
        return self._table.batches(partition.part, self._options)


def _narrowed(wanted: Wanted, each: Filter) -> Wanted:
    """The wanted part, of which a filter that is not known leaves all."""
    if isinstance(each, In) and len(each.attribute) == 1:
        narrow = _IN.get(each.attribute[0])
        return wanted if narrow is None else narrow(wanted, frozenset(each.value))
    for kind in (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual):
        if isinstance(each, kind) and len(each.attribute) == 1:
            compare = _COMPARED.get((kind, each.attribute[0]))
            return wanted if compare is None else compare(wanted, each.value)
    return wanted


def _ms(moment: datetime) -> int:
    """The milliseconds since the epoch, rounded down."""
    return int(moment.timestamp() * 1000)


_IN: Final[Mapping[str, Callable[[Wanted, frozenset[Any]], Wanted]]] = {
    "topic": Wanted.of_topics,
    "partition": Wanted.of_partitions,
}
_COMPARED: Final[Mapping[tuple[type[Filter], str], Callable[[Wanted, Any], Wanted]]] = {
    (EqualTo, "topic"): lambda wanted, value: wanted.of_topics(frozenset({value})),
    (EqualTo, "partition"): lambda wanted, value: wanted.of_partitions(frozenset({value})),
    (EqualTo, "offset"): lambda wanted, value: wanted.from_offset(value).before_offset(value + 1),
    (GreaterThan, "offset"): lambda wanted, value: wanted.from_offset(value + 1),
    (GreaterThanOrEqual, "offset"): Wanted.from_offset,
    (LessThan, "offset"): Wanted.before_offset,
    (LessThanOrEqual, "offset"): lambda wanted, value: wanted.before_offset(value + 1),
    (EqualTo, "timestamp"): lambda wanted, value: wanted.from_ms(_ms(value)),
    (GreaterThan, "timestamp"): lambda wanted, value: wanted.from_ms(_ms(value)),
    (GreaterThanOrEqual, "timestamp"): lambda wanted, value: wanted.from_ms(_ms(value)),
}
