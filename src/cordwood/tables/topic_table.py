"""A Delta table that has a topic: its snapshot, and commits that note what was read.

The offset of the next record of each partition is in the table's log as the version of an
application's transaction, and so is the time (ms) at which the log was read to there. Both are in
the commit that has the rows: a run that is killed leaves neither. Of two commits that note the same
partition, and began at one snapshot, Delta refuses the second.

Source: Delta transaction log protocol, "Transaction Identifiers"; delta-rs, `ConflictChecker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError

from cordwood.model.errors import TableConflictError, TableError
from cordwood.tables.report import TableForm

#: True in rows of what is merged where the key is to be deleted.
GONE: Final = "gone"

_TOPIC: Final = "cordwood.topic"
_TOPIC_ID: Final = "cordwood.topicId"
_FORM: Final = "cordwood.form"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The topic of a table, and its form, for ever; `topic_id` is None if it is not known."""

    topic: str
    topic_id: str | None
    form: TableForm


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The note on a partition: the next offset, and when the log was read to there (ms)."""

    next_offset: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The rows that a commit has inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class TopicTable:
    """One snapshot of a table. A commit is refused if another one has moved what it depends on.

    All methods that read or commit raise TableError where the table cannot be read or written,
    TableConflictError where another writer was first. Both leave the table as it was.
    """

    def __init__(self, path: Path, table: DeltaTable, contents: Contents) -> None:
        self._path = path
        self._table = table
        self.contents = contents

    @classmethod
    def opened(cls, path: Path) -> Self | None:
        """The newest snapshot; None if there is no table yet.

        Raises:
            TableError: it is a table of something else, or cannot be read.
        """
        with _located(path):
            if not DeltaTable.is_deltatable(str(path)):
                return None
            table = DeltaTable(path)
            found = table.metadata().configuration
        if _TOPIC not in found or found.get(_FORM) not in set(TableForm):
            raise TableError(f"{path}: a Delta table that `cordwood table` has not made")
        contents = Contents(
            topic=found[_TOPIC], topic_id=found.get(_TOPIC_ID), form=TableForm(found[_FORM])
        )
        return cls(path, table, contents)

    @classmethod
    def created(
        cls, path: Path, schema: pa.Schema, contents: Contents, reads: Mapping[int, Read]
    ) -> Self:
        """A table without rows, in one commit.

        Raises:
            TableError: there is one by now, or no table can have these columns.
        """
        configuration = {_TOPIC: contents.topic, _FORM: contents.form.value}
        if contents.topic_id is not None:
            configuration[_TOPIC_ID] = contents.topic_id
        with _located(path):
            table = DeltaTable.create(
                path,
                schema,
                mode="error",
                configuration=configuration,
                raise_if_key_not_exists=False,
                commit_properties=_noting(contents.topic, reads),
            )
        return cls(path, table, contents)

    @property
    def version(self) -> int:
        """The version of the snapshot."""
        return int(self._table.version())

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema(self._table.schema().to_arrow())

    def read_of(self, partition: int) -> Read | None:
        """The note on a partition; None if it was never read."""
        offset = self._table.transaction_version(_offset_id(self.contents.topic, partition))
        at_ms = self._table.transaction_version(_time_id(self.contents.topic, partition))
        return None if offset is None or at_ms is None else Read(next_offset=offset, at_ms=at_ms)

    def has_rows(self, condition: str) -> bool:
        """Whether the snapshot has a row for which a condition in SQL holds."""
        with _located(self._path):
            found = (
                QueryBuilder()
                .register("t", self._table)
                .execute(
                    f"SELECT 1 FROM t WHERE {condition} LIMIT 1"  # noqa: S608  # of numbers alone
                )
            )
            return bool(pa.table(found.read_all()).num_rows)

    def append(
        self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], reads: Mapping[int, Read]
    ) -> Changes:
        """Commits rows, and what was read; the columns become those of the schema.

        Raises:
            CordwoodError, OSError: as `batches` raises; nothing is committed.
        """
        rows = _Rows(batches)
        with _located(self._path, rows):
            write_deltalake(
                self._table,
                pa.RecordBatchReader.from_batches(schema, iter(rows)),
                mode="append",
                schema_mode="merge",
                commit_properties=_noting(self.contents.topic, reads),
            )
        return Changes(inserted=rows.count)

    def merge(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        reads: Mapping[int, Read],
        *,
        missing: str | None,
    ) -> Changes:
        """Commits the newest row of each key, and what was read.

        Args:
            schema: of the table, as it becomes.
            batches: one row for each partition and key, with the column `GONE` behind the others.
            reads: what was read.
            missing: rows for which this condition in SQL holds (of the table `t`), and that
                `batches` has no row for, are deleted.

        Raises:
            CordwoodError, OSError: as `batches` raises; nothing is committed.
        """
        rows = _Rows(batches)
        values = {name: f"s.`{name}`" for name in schema.names}
        source = schema.append(pa.field(GONE, pa.bool_()))
        with _located(self._path, rows):
            merger = (
                self._table.merge(
                    pa.RecordBatchReader.from_batches(source, iter(rows)),
                    "t.partition = s.partition AND t.key = s.key",
                    source_alias="s",
                    target_alias="t",
                    merge_schema=True,
                    commit_properties=_noting(self.contents.topic, reads),
                )
                .when_matched_delete(f"s.{GONE}")
                .when_matched_update(values)
                .when_not_matched_insert(values, predicate=f"NOT s.{GONE}")
            )
            if missing is not None:
                merger = merger.when_not_matched_by_source_delete(missing)
            found = merger.execute()
        return Changes(
            inserted=found["num_target_rows_inserted"],
            updated=found["num_target_rows_updated"],
            deleted=found["num_target_rows_deleted"],
        )

    def expire(self, hours: int) -> int:
        """Removes files that no snapshot of the last hours has; returns how many.

        Those of runs that were killed are among them. Entries of the log older than the table's
        `delta.logRetentionDuration` go, too.
        """
        with _located(self._path):
            removed = self._table.vacuum(
                retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
            )
            self._table.create_checkpoint()
            self._table.cleanup_metadata()
        return len(removed)


class _Rows:
    """Batches on their way through Arrow, which would leave of an error only its text."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.count = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                self.count += batch.num_rows
                yield batch
        except Exception as error:
            self.error = error
            raise


@contextmanager
def _located(path: Path, rows: _Rows | None = None) -> Iterator[None]:
    """Gives errors of Delta types of ours, and those of rows back."""
    try:
        yield
    except DeltaError as error:
        if rows is not None and rows.error is not None:
            raise rows.error from None
        if isinstance(error, CommitFailedError):
            raise TableConflictError(
                f"{path}: another writer has changed the table since this run began: {error}. "
                "Nothing was written; run it again"
            ) from error
        raise TableError(f"{path}: {error}") from error


def _noting(topic: str, reads: Mapping[int, Read]) -> CommitProperties:
    notes: list[Any] = []
    for partition, read in sorted(reads.items()):
        notes.append(Transaction(_offset_id(topic, partition), read.next_offset))
        notes.append(Transaction(_time_id(topic, partition), read.at_ms))
    return CommitProperties(app_transactions=notes)


def _offset_id(topic: str, partition: int) -> str:
    return f"cordwood/{topic}/{partition}/nextOffset"


def _time_id(topic: str, partition: int) -> str:
    return f"cordwood/{topic}/{partition}/readMs"
