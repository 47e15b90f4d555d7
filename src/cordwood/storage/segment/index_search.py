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
    try:
        opened = fs.open(path)
    except FileNotFoundError:
        return None
    entry_bytes = layout.size
    found: tuple[int, int] | None = None
    with closing(opened) as file:
        low, high = 0, file.size() // entry_bytes
        while low < high:
            middle = (low + high) // 2
            data = file.read_at(entry_bytes, middle * entry_bytes)
            # Zeros behind the first entry are no entries.
            is_entry = len(data) == entry_bytes and (middle == 0 or any(data))
            entry = layout.unpack(data) if is_entry else (0, 0)
            if is_entry and entry[0] <= key:
                found = entry[0], entry[1]
                low = middle + 1
            else:
                high = middle
    return found
