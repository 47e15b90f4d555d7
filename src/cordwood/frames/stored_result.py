"""The result of a query on disk: tasks write it in parts, which are read again one by one.

The memory that it takes does not grow with it, and nothing of it is seen before all of it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PART_DDL: Final = "number int, path string, rows bigint"
_PART: Final = pa.schema({"number": pa.int32(), "path": pa.string(), "rows": pa.int64()})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """The rows of a result in their order, in files of Arrow.

    `types` are those of the columns in Spark's words; two columns may have one name.
    """

    schema: pa.Schema
    types: tuple[str, ...]
    row_count: int
    paths: tuple[Path, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, with the columns of the schema.

        Raises:
            OSError: a file cannot be read.
        """
        for path in self.paths:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def store(frame: DataFrame, directory: Path) -> StoredResult:
    """Has tasks write the rows of a DataFrame to a directory that all of them see.

    Raises:
        Exception: of Spark or of a task, as Spark raises it.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  # who only reads has no need

    # By position: a result may have a name twice, or one that no reference can have.
    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    found = to_arrow_schema(numbered.schema, timezone="UTC")
    written = numbered.mapInArrow(partial(_write, str(directory)), _PART_DDL).collect()
    parts = sorted(tuple(row) for row in written)
    return StoredResult(
        schema=pa.schema(
            [each.with_name(name) for each, name in zip(found, frame.columns, strict=True)]
        ),
        types=tuple(field.dataType.simpleString() for field in frame.schema.fields),
        row_count=sum(rows for _, _, rows in parts),
        paths=tuple(Path(path) for _, path, _ in parts),
    )


def _write(directory: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows of a task to a file of its own, also if the task is run again."""
    from pyspark import TaskContext  # noqa: PLC0415  # in a worker

    task = TaskContext.get()
    assert task is not None, "it runs in a task"
    first = next(batches, None)
    if first is None:
        return
    path = f"{directory}/{task.partitionId()}-{task.taskAttemptId()}.arrow"
    rows = first.num_rows
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        pa.OSFile(path, "wb") as file,
        pa.ipc.new_stream(file, first.schema, options=options) as writer,
    ):
        writer.write_batch(first)
        for batch in batches:
            rows += batch.num_rows
            writer.write_batch(batch)
    part = {"number": task.partitionId(), "path": path, "rows": rows}
    yield pa.RecordBatch.from_pylist([part], schema=_PART)
