"""What two stopped brokers have in their logs, without what depends on the time.

Source: the files are those of org.apache.kafka.storage.internals.log.LogFileUtils.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cordwood.format.group_metadata import decode_group_key, decode_group_value
from cordwood.format.producer_snapshot import parse_producer_snapshot
from cordwood.format.record import Record
from cordwood.format.record_batch import iter_batches
from cordwood.format.transaction_index import parse_transaction_index
from cordwood.format.transaction_state import decode_transaction_key, decode_transaction_value
from support.transaction_script import BASE_MS, CLASSIC_MEMBER

_TIMES: Final = frozenset(
    {"assignmentTimestamp", "commitTimestamp", "currentStateTimestamp", "expireTimestamp"}
    | {"timestamp", "transactionLastUpdateTimestampMs"}
)
_START: Final = "transactionStartTimestampMs"
_LATEST_OF_RECORDS_MS: Final = BASE_MS + 10**9

Line = tuple[Any, ...]


def lines_of(log_dir: Path, topics: list[str], member_id: str) -> Iterator[Line]:
    """Batches, transaction indexes and producer snapshots of topics' partitions.

    Args:
        log_dir: of the stopped broker.
        topics: names.
        member_id: of the classic group's member, which the broker made.
    """
    for topic in topics:
        for directory in sorted(log_dir.glob(f"{topic}-[0-9]*")):
            yield ("partition", directory.name)
            for path in sorted(directory.iterdir()):
                yield from _lines_of_file(path, topic, member_id)


def _lines_of_file(path: Path, topic: str, member_id: str) -> Iterator[Line]:
    data = path.read_bytes()
    if path.suffix == ".log":
        yield ("segment", path.name)
        yield from _batches(data, _READERS.get(topic, _as_it_is), member_id)
    elif path.suffix == ".txnindex":
        yield ("transaction index", path.name, parse_transaction_index(data))
    elif path.suffix == ".snapshot":
        entries = [
            replace(each, timestamp=min(each.timestamp, _LATEST_OF_RECORDS_MS))
            for each in parse_producer_snapshot(data)
        ]
        yield ("snapshot", path.name, entries)


def _batches(data: bytes, read: Callable[[Record], Line], member_id: str) -> Iterator[Line]:
    for _, batch in iter_batches(data):
        header = batch.header  # type: ignore[union-attr]
        # Varints of times differ in size.
        fixed = header._replace(crc=0, batch_length=0)
        if header.base_timestamp > _LATEST_OF_RECORDS_MS:
            fixed = fixed._replace(base_timestamp=0, max_timestamp=0)
        yield ("batch", *fixed)
        for each in batch.iter_records():  # type: ignore[union-attr]
            line = _as_it_is(each) if header.is_control else read(each)
            yield ("record", each.offset, *_without(line, member_id))


def _without(value: Any, member_id: str) -> Any:
    """The value with the member's id replaced."""
    if isinstance(value, str):
        return value.replace(member_id, CLASSIC_MEMBER)
    if isinstance(value, (list, tuple)):
        return tuple(_without(each, member_id) for each in value)
    if isinstance(value, Mapping):
        return {key: _without(inner, member_id) for key, inner in value.items()}
    return value


def _as_it_is(record: Record) -> Line:
    return record.key, record.value, record.headers


def _transaction(record: Record) -> Line:
    key = decode_transaction_key(record.key)
    value = decode_transaction_value(0, record.value)
    if value is None:
        return key.fields, None
    fields = {name: 0 if name in _TIMES else each for name, each in value.fields.items()}
    fields[_START] = min(fields[_START], 0)
    return key.fields, value.version, fields


def _group(record: Record) -> Line:
    key = decode_group_key(record.key)
    value = decode_group_value(key.record_type, record.value)
    if value is None:
        return key.record_type, key.fields, None
    fields = {name: 0 if name in _TIMES else each for name, each in value.fields.items()}
    return key.record_type, key.fields, value.version, fields


_READERS: Final[Mapping[str, Callable[[Record], Line]]] = {
    "__transaction_state": _transaction,
    "__consumer_offsets": _group,
}
