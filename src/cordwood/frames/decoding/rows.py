"""Decoded rows as Arrow arrays, where rows that cannot be decoded are noted, and null."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

#: Called with the number of a malformed row, and what is wrong with it.
Note = Callable[[int, str], None]

#: What pyarrow raises for values that a type cannot hold.
UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


class Decoder(Protocol):
    """Decodes values of one schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of decoded values."""

    def decode(self, values: pa.Array, ids: Sequence[int], note: Note, /) -> pa.Array:
        """The decoded values, null where `note` was called.

        Args:
            values: binary, without nulls, at least one.
            ids: of the schema of each, if they have a prefix with it; else empty.
            note: for what is malformed.
        """


def decoded_rows(
    values: pa.Array,
    read: Callable[[int, bytes], Any],
    kind: pa.DataType,
    note: Note,
    errors: tuple[type[Exception], ...],
) -> pa.Array:
    """Decodes each value by itself: `read` gets its number, and raises one of `errors`."""
    rows: list[Any] = []
    for number, value in enumerate(values.to_pylist()):
        try:
            rows.append(read(number, value))
        except errors as error:
            note(number, str(error) or type(error).__name__)
            rows.append(None)
    return converted(len(rows), lambda first, end: pa.array(rows[first:end], kind), kind, note, str)


def converted(
    count: int,
    convert: Callable[[int, int], pa.Array],
    kind: pa.DataType,
    note: Note,
    reason: Callable[[Exception], str],
) -> pa.Array:
    """The rows that `convert` makes of a run of rows, which it is called with: first, end.

    Where it fails, each half is converted by itself, so that a malformed row costs about as many
    calls as the logarithm of `count`.
    """

    def pieces(first: int, end: int) -> list[pa.Array]:
        try:
            return [convert(first, end)]
        except UNFIT as error:
            if end - first == 1:
                note(first, reason(error))
                return [pa.nulls(1, kind)]
        middle = (first + end) // 2
        return pieces(first, middle) + pieces(middle, end)

    found = pieces(0, count)
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def retyped(kind: pa.DataType, replaced: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with other ones in place of those that hold no others."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, retyped(each.type, replaced)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(retyped(kind.value_type, replaced))
    if pa.types.is_map(kind):
        return pa.map_(retyped(kind.key_type, replaced), retyped(kind.item_type, replaced))
    return replaced(kind)


def leaves(kind: pa.DataType) -> list[pa.DataType]:
    """The types in a type that hold no others."""
    found: list[pa.DataType] = []

    def noted(leaf: pa.DataType) -> pa.DataType:
        found.append(leaf)
        return leaf

    retyped(kind, noted)
    return found
