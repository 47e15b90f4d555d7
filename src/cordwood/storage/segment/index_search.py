"""Look-ups in the file of an index that is not in memory, for the price of a few reads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from struct import Struct

from cordwood.storage.filesystem import FileSystem


def last_entry_of(fs: FileSystem, path: Path, layout: Struct) -> tuple[int, int] | None:
    """The last entry, by two reads; None without a file, or if only reading all of it can tell."""
    try:
        opened = fs.open(path)
    except FileNotFoundError:
        return None
    entry_bytes = layout.size
    with closing(opened) as file:
        size = file.size()
        if size % entry_bytes or not size:
            return None
        head = file.read_at(entry_bytes, 0)
        is_one = size == entry_bytes
        tail = head if is_one else file.read_at(entry_bytes, size - entry_bytes)
    if not any(tail) or not len(head) == len(tail) == entry_bytes:
        return None
    first, last = layout.unpack(head), layout.unpack(tail)
    ascends = is_one or last[0] > first[0]
    if first[0] < 0 or not ascends or not 0 <= first[1] <= last[1]:
        return None
    return last[0], last[1]


def entry_up_to(fs: FileSystem, path: Path, layout: Struct, key: int) -> tuple[int, int] | None:
    """The last entry with a key <= `key`, by bisection; None if there is none, or no file."""
    found, _ = entries_around(fs, path, layout, key)
    return found


def entries_around(
    fs: FileSystem, path: Path, layout: Struct, key: int, *, behind: int = 0, column: int = 0
) -> tuple[tuple[int, int] | None, list[tuple[int, int]]]:
    """The last entry with a key <= `key`, by bisection, and up to `behind` entries that follow it.

    The first is None, and the entries are the first ones, if no key is so low; there are none at
    all without a file. `column` 1 searches by what the keys lead to, which ascends, too.
    """
    try:
        opened = fs.open(path)
    except FileNotFoundError:
        return None, []
    size = layout.size
    found: tuple[int, int] | None = None
    with closing(opened) as file:

        def entry_at(number: int) -> tuple[int, int] | None:
            data = file.read_at(size, number * size)
            # Zeros behind the first entry are no entries.
            if len(data) < size or not (number == 0 or any(data)):
                return None
            entry = layout.unpack(data)
            return entry[0], entry[1]

        low, high = 0, file.size() // size
        while low < high:
            middle = (low + high) // 2
            entry = entry_at(middle)
            if entry is not None and entry[column] <= key:
                found = entry
                low = middle + 1
            else:
                high = middle
        following = [entry_at(number) for number in range(low, low + behind)]
    return found, [each for each in following if each is not None]
