"""A table of logs: its columns, and how tasks read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.frames.decoding.column import ColumnDecoder
from cordwood.frames.options import COMMON_OPTIONS, FrameOptions
from cordwood.frames.tasks import Part
from cordwood.frames.wanted import Wanted
from cordwood.model.errors import ConfigError

#: The columns that say which record a row is.
_PLACE: Final = ("topic", "partition", "offset")
#: True in rows of control records, whose keys and values are Kafka's own.
_CONTROL: Final = "isControl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, by the name that the option `table` has.

    `schema` are all its columns, `default_columns` those of a table without the option `columns`,
    `options` the names of its options besides those of all tables.
    `parts` gives what tasks read, each of it a value that can be pickled: all rows that are in
    `Wanted`, and perhaps more. `read` gives the rows of a part as Arrow batches that have the named
    columns, in this order.

    `parts` and `read` raise `CordwoodError` and `OSError` where a log cannot be read.
    """

    name: str
    schema: pa.Schema
    default_columns: tuple[str, ...]
    options: tuple[str, ...]
    parts: Callable[[FrameOptions, Wanted], Sequence[Part]]
    read: Callable[[Any, Sequence[str]], Iterator[pa.RecordBatch]]

    def has_option(self, name: str) -> bool:
        """Whether the table has an option of that name, in whatever case."""
        return name.lower() in {each.lower() for each in (*COMMON_OPTIONS, *self.options)}

    def require_options(self, given: Iterable[str]) -> None:
        """Refuses options, by their names, that the table does not have.

        Raises:
            ConfigError: there is one; lists those that it has.
        """
        unknown = sorted(name for name in given if not self.has_option(name))
        if unknown:
            raise ConfigError(
                f"option {', '.join(unknown)}: table {self.name} has no such option; its options "
                f"are {', '.join((*COMMON_OPTIONS, *self.options))}"
            )

    def columns(self, options: FrameOptions) -> tuple[str, ...]:
        """The columns that are wanted, as the schema spells them.

        Raises:
            ConfigError: the table has no such column, or one is named twice; or an option is given
                that it does not have.
        """
        self.require_options(options.given)
        if options.columns is None:
            return self.default_columns
        known = {name.lower(): name for name in self.schema.names}
        wrong = [name for name in options.columns if name.lower() not in known]
        if wrong or not options.columns:
            raise ConfigError(
                f"option columns: {', '.join(wrong) or 'no name'} is no column of table "
                f"{self.name}; they are {', '.join(self.schema.names)}"
            )
        names = tuple(known[name.lower()] for name in options.columns)
        if len(set(names)) < len(names):
            raise ConfigError(f"option columns: a column is named twice: {', '.join(names)}")
        return names

    def schema_of(self, options: FrameOptions) -> pa.Schema:
        """The wanted columns, with the types of decoded ones.

        Raises:
            ConfigError: as `columns`, or a schema of values cannot be used.
            MissingExtraError: what decodes values is not installed.
        """
        decoders = self._decoders(options)
        return pa.schema(
            [
                pa.field(name, decoders[name].type) if name in decoders else self.schema.field(name)
                for name in self.columns(options)
            ]
        )

    def batches(self, part: Any, options: FrameOptions) -> Iterator[pa.RecordBatch]:
        """The rows of a part with the columns of `schema_of`.

        Of control records what is decoded is null.

        Raises:
            MalformedValueError: a value cannot be decoded, and the options say that this fails.
            CordwoodError, OSError: as `read`.
        """
        names, decoders = self.columns(options), self._decoders(options)
        if not decoders:
            return self.read(part, names)
        needed = [*_PLACE, *({_CONTROL} & {*self.schema.names})]
        read = [*names, *(name for name in needed if name not in names)]
        return (decoded(batch, names, decoders) for batch in self.read(part, read))

    def _decoders(self, options: FrameOptions) -> Mapping[str, ColumnDecoder]:
        """The decoders of wanted columns."""
        wanted = self.columns(options)
        return {
            each.column: ColumnDecoder(each) for each in options.encodings if each.column in wanted
        }


def decoded(
    batch: pa.RecordBatch, names: Sequence[str], decoders: Mapping[str, ColumnDecoder]
) -> pa.RecordBatch:
    """The named columns of a batch of records, of which some are decoded.

    Raises:
        MalformedValueError: a value cannot be decoded, and that is to fail.
    """

    def place(row: int) -> str:
        topic, partition, offset = (batch.column(name)[row].as_py() for name in _PLACE)
        return f"{topic}-{partition} offset {offset}"

    def encoded(name: str) -> pa.Array:
        column = batch.column(name)
        if _CONTROL not in batch.schema.names:
            return column
        return pc.if_else(batch.column(_CONTROL), pa.scalar(None, column.type), column)

    columns = [
        decoders[name].decode(encoded(name), place) if name in decoders else batch.column(name)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, list(names))
