"""The columns of a table, and how they grow with the schema of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from cordwood.model.errors import TableSchemaError

#: Names and types are those of the DataFrame of records.
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def grown(known: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The columns of a table with what is wanted of them, too.

    Fields that a new schema adds come last in their struct; those that it lacks stay, and are null
    in new rows.

    Raises:
        TableSchemaError: a type is another one; names the field.
    """
    return pa.schema(
        [
            pa.field(name, _united(known.field(name).type, wanted.field(name).type, (name,)))
            for name in wanted.names
        ]
    )


def as_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the types that `grown` gave: fields that its structs lack are null."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _united(known: pa.DataType, wanted: pa.DataType, path: Sequence[str]) -> pa.DataType:
    if pa.types.is_struct(known) and pa.types.is_struct(wanted):
        return _united_structs(known, wanted, path)
    # The names of the items of lists and maps differ, and say nothing.
    if pa.types.is_list(known) and pa.types.is_list(wanted):
        return pa.list_(_united(known.value_type, wanted.value_type, path))
    if pa.types.is_map(known) and pa.types.is_map(wanted):
        return pa.map_(
            _united(known.key_type, wanted.key_type, path),
            _united(known.item_type, wanted.item_type, path),
        )
    if known != wanted:
        raise TableSchemaError(".".join(path), known=str(known), wanted=str(wanted))
    return known


def _united_structs(known: pa.DataType, wanted: pa.DataType, path: Sequence[str]) -> pa.DataType:
    new = {field.name: field for field in wanted}
    fields = [
        pa.field(field.name, _united(field.type, new.pop(field.name).type, (*path, field.name)))
        if field.name in new
        else field
        for field in known
    ]
    return pa.struct([*fields, *new.values()])
