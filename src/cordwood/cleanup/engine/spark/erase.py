"""Searches for an erasure on Spark: tasks of the same matchers, or an SQL expression.

For an expression the records of the files become rows of a DataFrame, whose filter is Spark's own.
What comes back of a record that matches is its file and its offset.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cordwood.cleanup.engine.search.condition import Condition
from cordwood.cleanup.engine.search.offsets import ranges_of, united
from cordwood.cleanup.engine.search.search import (
    Found,
    Matcher,
    Searched,
    SearchResult,
    Unsearched,
    search_one,
)
from cordwood.cleanup.engine.spark.error_text import first_line_of, text_of
from cordwood.cleanup.engine.spark.runner import Row, Runner
from cordwood.cleanup.engine.survivors import no_progress
from cordwood.cleanup.plan.compaction_values import OffsetRanges, failure_from_json, failure_to_json
from cordwood.format.record import Record
from cordwood.model.errors import ConfigError, CordwoodError, CorruptError, EngineError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.segment_reader import SegmentReader

if TYPE_CHECKING:
    import pyarrow as pa

_FOUND, _ERROR = 0, 1
#: The columns of an expression, as Spark declares them, and the file that a record is in.
COLUMNS: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestamp_ms bigint, "
    "key binary, value binary, key_text string, value_text string, headers map<string, binary>"
)
_FILE: Final = "__cordwood_file"
#: Set in the one row that a damaged file has, whose offset is none.
_DAMAGE: Final = "__cordwood_damage"
_NO_OFFSET: Final = -1
_ROWS_MAX, _BYTES_MAX = 4096, 8 << 20
_MESSAGE_CHARACTERS_MAX = 300


class SparkSearcher:
    """A `Searcher` whose files are shared out among tasks, by size."""

    def __init__(
        self, runner: Runner, matchers: Sequence[Matcher], *, slots: int, fs: FileSystem = OS
    ) -> None:
        """Takes matchers, of which one has to match a record."""
        self._runner = runner
        self._matchers = list(matchers)
        self._slots = slots
        self._fs = fs

    def find(self, segments: Sequence[Searched]) -> list[SearchResult]:
        """Searches in tasks of Spark, each with a share of the segments."""
        shares = shared_out(segments, 4 * self._slots)
        matchers, fs = self._matchers, self._fs

        def task(number: int) -> Iterator[Row]:
            for at in shares[number]:
                found = search_one(segments[at], matchers, no_progress, fs)
                if isinstance(found, Unsearched):
                    failure = failure_to_json(found.error)
                    yield Row(number, _ERROR, json.dumps([at, failure]).encode())
                    continue
                by_key = {key.hex(): count for key, count in found.by_key.items()}
                value: dict[str, Any] = {"records": found.records, "keys": by_key}
                yield Row(number, _FOUND, json.dumps([at, value, found.offsets]).encode())

        try:
            rows = self._runner.run(len(shares), task) if shares else []
        except Exception as error:
            raise EngineError(f"Spark failed the search: {first_line_of(error)}") from error
        results: dict[int, SearchResult] = {}
        for row in rows:
            if row.kind == _ERROR:
                at, failure = json.loads(row.payload)
                results[at] = Unsearched(error=failure_from_json(failure))
                continue
            at, facts, offsets = json.loads(row.payload)
            ranges = tuple((first, last) for first, last in offsets)
            by_key = {bytes.fromhex(key): count for key, count in facts["keys"].items()}
            results[at] = Found(offsets=ranges, records=facts["records"], by_key=by_key)
        return [results[at] for at in range(len(segments))]


class WhereSearcher:
    """A `Searcher` by Spark SQL: `conditions` are boolean, and one has to be true."""

    def __init__(self, session: Any, conditions: Sequence[Condition], *, slots: int) -> None:
        # What is wrong with an expression is said once, in one line.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        self._session = session
        self._conditions = list(conditions)
        self._slots = slots

    def require_valid(self) -> None:
        """Has Spark analyze the conditions.

        Raises:
            ConfigError: one is not a boolean expression over the columns of a record.
        """
        frame = self._session.createDataFrame([], COLUMNS)
        for condition in self._conditions:
            _analyzed(frame, condition).schema  # noqa: B018  # Connect analyzes it here

    def find(self, segments: Sequence[Searched]) -> list[SearchResult]:
        """Finds the records for which an SQL expression holds."""
        self.require_valid()
        counts = [_count_of(each) for each in segments]
        ranges: list[list[tuple[int, int]]] = [[] for _ in segments]
        damage: dict[int, str] = {}
        readable = [at for at, count in enumerate(counts) if isinstance(count, int)]
        if readable:
            shares = shared_out([segments[at] for at in readable], 4 * self._slots)
            files = [[readable[at] for at in share] for share in shares]
            frame = self._session.range(0, len(files), 1, len(files)).mapInArrow(
                _decoder(list(segments), files), f"{COLUMNS}, {_FILE} int, {_DAMAGE} string"
            )
            for condition in self._conditions:
                found, damaged = self._matching(frame, condition)
                damage |= damaged
                for at, offsets in found.items():
                    ranges[at] += offsets
        results: list[SearchResult] = []
        for at, count in enumerate(counts):
            if isinstance(count, Unsearched):
                results.append(count)
            elif at in damage:
                results.append(Unsearched(error=failure_from_json(json.loads(damage[at]))))
            else:
                results.append(Found(offsets=united(ranges[at]), records=count))
        return results

    def _matching(
        self, frame: Any, condition: Condition
    ) -> tuple[dict[int, OffsetRanges], dict[int, str]]:
        """The offsets that match, by file, and the failures of files that are damaged."""
        # The row of a damaged file has no values that the condition could be evaluated for.
        sql = f"CASE WHEN {_DAMAGE} IS NOT NULL THEN TRUE ELSE {condition.sql} END"
        try:
            table = frame.filter(sql).select(_FILE, "offset", _DAMAGE).toArrow()
        except Exception as error:
            raise _failure(error, condition) from error
        files, offsets = table.column(0).to_numpy(), table.column(1).to_numpy()
        found = {int(at): ranges_of(offsets[files == at].tolist()) for at in np.unique(files)}
        damage = {
            int(files[row]): table.column(2)[row].as_py()
            for row in np.flatnonzero(offsets == _NO_OFFSET).tolist()
        }
        return found, damage


def shared_out(segments: Sequence[Searched], parts: int) -> list[list[int]]:
    """The numbers of segments in at most `parts` shares of about the same number of bytes."""
    shares: list[list[int]] = [[] for _ in range(min(parts, len(segments)))]
    loads = [0] * len(shares)
    order = sorted(range(len(segments)), key=lambda at: -segments[at].source.size_bytes)
    for at in order:
        lightest = loads.index(min(loads))
        shares[lightest].append(at)
        loads[lightest] += segments[at].source.size_bytes + 1
    return shares


def _analyzed(frame: Any, condition: Condition) -> Any:
    try:
        return frame.filter(condition.sql)
    except Exception as error:
        raise _failure(error, condition) from error


def _failure(error: Exception, condition: Condition) -> CordwoodError:
    """Spark's error as one of Cordwood's; of a wrong expression in one line."""
    text = text_of(error)
    reason = next((line for line in text.splitlines() if re.search(r"\[[A-Z_.]+\]", line)), "")
    if not reason:
        first = next(iter(text.splitlines()), type(error).__name__)
        return EngineError(f"Spark failed the search: {first}")
    reason = re.sub(r"^.*?(?=\[[A-Z])", "", reason).strip(" ;")[:_MESSAGE_CHARACTERS_MAX]
    return ConfigError(f"--where {condition.text!r}: {reason}")


def _count_of(searched: Searched) -> int | Unsearched:
    try:
        blocks = SegmentReader(bounds=searched.bounds).blocks(searched.source)
        return sum(block.records_count for block in blocks)
    except (CorruptError, OSError) as error:
        return Unsearched(error=error)


def _decoder(segments: list[Searched], shares: list[list[int]]) -> Any:
    """A function for mapInArrow: the records of the files of a task, and a row for damage."""

    def decode(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for at in shares[number]:
                    try:
                        yield from _records_of(segments[at], at)
                    except (CorruptError, OSError) as error:
                        damage = json.dumps(failure_to_json(error))
                        yield _arrow_of([{"offset": _NO_OFFSET, _FILE: at, _DAMAGE: damage}])

    return decode


def _records_of(searched: Searched, at: int) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    size = 0
    bounds = searched.bounds
    for block in SegmentReader(bounds=bounds).blocks(searched.source):
        for row in np.flatnonzero(block.has_data).tolist():
            for record in block.records(row, record_bytes_max=bounds.record_bytes_max):
                rows.append(_row_of(searched, record, at))
                size += len(record.key or b"") + len(record.value or b"")
                if len(rows) >= _ROWS_MAX or size >= _BYTES_MAX:
                    yield _arrow_of(rows)
                    rows, size = [], 0
    if rows:
        yield _arrow_of(rows)


def _row_of(searched: Searched, record: Record, at: int) -> dict[str, Any]:
    return {
        "topic": searched.partition.topic,
        "partition": searched.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestamp_ms": record.timestamp,
        "key": record.key,
        "value": record.value,
        "key_text": _text_of(record.key),
        "value_text": _text_of(record.value),
        # Of headers with the same name the last one counts, as for Kafka's lastHeader.
        "headers": list({h.key: h.value for h in record.headers}.items()),
        _FILE: at,
    }


def _text_of(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _arrow_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415  # in a worker

    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestamp_ms", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("key_text", pa.string()),
            ("value_text", pa.string()),
            ("headers", pa.map_(pa.string(), pa.binary())),
            (_FILE, pa.int32()),
            (_DAMAGE, pa.string()),
        ]
    )
    return pa.RecordBatch.from_pylist(rows, schema)
