"""The output of a dump: text for stdout and stderr, and the findings that are printed last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from cordwood.format.java_map import JavaHashMap
from cordwood.model.documents import Failure, to_document
from cordwood.surfaces.dump.documents import Item
from cordwood.surfaces.dump.java_text import json_text

_FLUSH_PARTS = 4096


class Output:
    """Collects small pieces of text, and writes them in large ones.

    No output is lost when a dump fails: `flush` is called before any text for stderr. With
    `is_json` every item is a JSON document on a line of its own.
    """

    def __init__(self, out: BinaryIO, err: BinaryIO, *, is_json: bool = False) -> None:
        self._out = out
        self._err = err
        self._parts: list[str] = []
        self.is_json = is_json

    def begin_file(self, path: str) -> None:
        """Says which file the items to come are of."""
        if not self.is_json:
            self.line(f"Dumping {path}")

    def item(self, text: str, item: Item) -> None:
        """Adds one item: its line of text, or the equivalent document."""
        if self.is_json:
            self.document(item)
        else:
            self.line(text)

    def document(self, answer: Item | Failure) -> None:
        """Adds the document of an item, or of an error."""
        self.line(json_text(to_document(answer)))

    def write(self, text: str) -> None:
        """Adds `text` to stdout, as it stands."""
        self._parts.append(text)
        if len(self._parts) >= _FLUSH_PARTS:
            self._hand_on()

    def line(self, text: str) -> None:
        """Adds a line to stdout."""
        self.write(text + "\n")

    def error(self, text: str) -> None:
        """Writes a line to stderr, after all that went to stdout."""
        self.flush()
        self._err.write(_encode(text + "\n"))
        self._err.flush()

    def failed(self, error: str) -> None:
        """Adds the document of an error that ended the dump with exit code 1; none without JSON."""
        if self.is_json:
            self.document(Failure(error=error, exit_code=1))
            self.flush()

    def flush(self) -> None:
        """Hands everything on."""
        self._hand_on()
        self._out.flush()

    def _hand_on(self) -> None:
        data = _encode("".join(self._parts))
        self._parts.clear()
        self._out.write(data)


def _encode(text: str) -> bytes:
    # Names of files may hold bytes that are not UTF-8: they go out as they came in.
    return text.encode("utf-8", "surrogateescape")


@dataclass(slots=True)
class Findings:
    """Problems found in the dumped files, printed after all of them; file paths are absolute.

    Source: DumpLogSegments.main, TimeIndexDumpErrors.printErrors.
    """

    # Index offset -> the last offset of the batch it points at; printed from the highest down.
    index_mismatches: JavaHashMap[str, dict[int, int]] = field(default_factory=JavaHashMap)
    # Offset -> the one that follows it though it is not the next; printed from the lowest up.
    gaps: JavaHashMap[str, dict[int, int]] = field(default_factory=JavaHashMap)
    # (indexed, found) pairs, in the order met.
    timestamp_mismatches: JavaHashMap[str, list[tuple[int, int]]] = field(
        default_factory=JavaHashMap
    )
    timestamps_out_of_order: JavaHashMap[str, list[tuple[int, int]]] = field(
        default_factory=JavaHashMap
    )
    offsets_not_found: JavaHashMap[str, list[tuple[int, int]]] = field(default_factory=JavaHashMap)

    def lines(self) -> list[str]:
        """The lines for stderr, in the order and words of Kafka's tool."""
        return [
            *_section(
                "Mismatches in :",
                _pairs(self.index_mismatches, descending=True),
                "  Index offset: {}, log offset: {}",
            ),
            *_section(
                "Found timestamp mismatch in :",
                self.timestamp_mismatches.items(),
                "  Index timestamp: {}, log timestamp: {}",
            ),
            *_section(
                "Found out of order timestamp in :",
                self.timestamps_out_of_order.items(),
                "  Index timestamp: {}, Previously indexed timestamp: {}",
            ),
            *_section(
                "The following indexed offsets are not found in :",
                self.offsets_not_found.items(),
                "Indexed offset: {}, found log offset: {}",
            ),
            *_section(
                "Non-consecutive offsets in ",
                _pairs(self.gaps, descending=False),
                "  {} is followed by {}",
            ),
        ]


def _section(
    title: str, pairs_of_file: Iterable[tuple[str, list[tuple[int, int]]]], line: str
) -> Iterator[str]:
    for path, pairs in pairs_of_file:
        yield title + path
        for pair in pairs:
            yield line.format(*pair)


def _pairs(
    found: JavaHashMap[str, dict[int, int]], *, descending: bool
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    for path, pairs in found.items():
        yield path, sorted(pairs.items(), reverse=descending)
