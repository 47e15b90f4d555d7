"""Erasures in this process, and the search for what they must not leave.

`sweep` looks for bytes in every file below a directory, with all batches decompressed, by other
means than the product's search: it does not know which files may have them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordwood.cleanup.access.commit import Engine
from cordwood.cleanup.engine.search.search import (
    ByRecord,
    ExactKeys,
    Matcher,
    Searcher,
    SearcherHere,
)
from cordwood.cleanup.engine.thread_engine import ThreadEngine
from cordwood.cleanup.erasure.criteria import Criteria, parse_target
from cordwood.cleanup.erasure.erase import erase
from cordwood.cleanup.erasure.request import EraseRequest, Erasure
from cordwood.cleanup.plan.request import Resolved
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType
from cordwood.format.legacy import LegacyBatch, build_legacy_message, build_legacy_wrapper
from cordwood.format.record import Header, Record
from cordwood.format.record_batch import RecordBatch, parse_batch
from cordwood.model.errors import CorruptError
from support.log_builder import NOW_MS, LogBuilder

#: A key to be erased, and its value: neither is part of any other bytes that `erasable_log` has.
KEY, VALUE = b"user-4711-to-be-forgotten", b"a-value-that-must-not-be-found-again"
ID = "erasure-0123456789ab"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBackend:
    """An `ErasureBackend` of two functions."""

    searcher: Callable[[int], Searcher]
    engine: Callable[[int], Engine]


def erasable_log(name: str, *, codecs: Sequence[Codec] = tuple(Codec), legacy: bool = False) -> Any:
    """A log of several segments: every codec, every kind of transaction, records with headers.

    Every third record or so has `KEY`. The active segment has some, and an open transaction does.
    """
    log = LogBuilder(name, index_interval_bytes=100)
    headers = (Header("trace", b"header"), Header("none", None))
    if legacy:
        _append_legacy(log)
        log.roll()
    log.batch([(KEY, b"early " + VALUE)], producer=(90, 0))
    for number, codec in enumerate([*codecs, *codecs]):
        base = log.next_offset
        log.batch(
            [
                Record(base, NOW_MS - 500, b"other-%d" % number, b"kept", headers),
                Record(base + 1, NOW_MS - 400, KEY, VALUE, headers),
                Record(base + 2, NOW_MS - 300, None, b"without a key"),
                Record(base + 5, NOW_MS - 900, b"gap-%d" % number, None),
            ],
            codec=codec,
            producer=(number % 3, 0),
        )
        log.batch([(KEY, VALUE)] * 3, codec=codec, producer=(91, 0), transactional=True)
        log.batch([(b"in-%d" % number, b"of a transaction")], producer=(91, 0), transactional=True)
        log.marker((91, 0), commit=number % 2 == 0)
        if number % 2:
            log.new_leader_epoch()
            log.roll()
    log.batch([(KEY, VALUE), (b"open", b"stays")], producer=(92, 0), transactional=True)
    log.batch([(KEY, None)], codec=codecs[-1], producer=(93, 0))
    log.batch([(b"last", b"of all")])
    return log


def _append_legacy(log: LogBuilder) -> None:
    for magic in (0, 1):
        for key, value in ((b"old", b"kept"), (KEY, VALUE)):
            log.append(
                build_legacy_message(
                    offset=log.next_offset,
                    magic=magic,
                    key=key,
                    value=value,
                    timestamp=NOW_MS - 1000 if magic else -1,
                )
            )
        base = log.next_offset
        records = [
            Record(base, NOW_MS - 900 if magic else -1, b"old-1", b"kept"),
            Record(base + 1, NOW_MS - 800 if magic else -1, KEY, VALUE),
            Record(base + 2, NOW_MS - 700 if magic else -1, None, b"no key"),
        ]
        log.append(build_legacy_wrapper(records, magic=magic, codec=Codec.GZIP))


def erase_here(
    log_dir: Path,
    *topics: str,
    keys: Sequence[bytes] = (KEY,),
    configs: Mapping[str, LogConfig] | None = None,
    now_ms: int = NOW_MS,
    engine: Callable[[], Engine] = ThreadEngine,
    **options: Any,
) -> Erasure:
    """Erases without Spark; `options` are fields of `EraseRequest`."""
    known = configs or {}

    def resolve(topic: str) -> Resolved | None:
        return Resolved(config=known[topic], origin={}) if topic in known else None

    given: dict[str, Any] = {
        "log_dirs": (log_dir,),
        "targets": tuple(parse_target(topic) for topic in topics),
        "criteria": Criteria(keys=frozenset(keys)),
        "resolve": resolve,
        "now_ms": now_ms,
        "id": ID,
        "salt": bytes(range(32)),
        "ledger_salt": bytes(range(32, 64)),
    }
    request = EraseRequest(**given | options)
    matchers: list[Matcher] = [ExactKeys(request.criteria.keys)] if request.criteria.keys else []
    for each in request.suppressions:
        matcher = each.matcher()
        if matcher is not None:
            matchers.append(ByRecord(matcher))
    backend = GivenBackend(
        searcher=lambda _: SearcherHere(matchers),
        engine=lambda _: engine(),
    )
    return erase(request, backend)


def sweep(top: Path, *needles: bytes) -> list[str]:
    """The files below a directory that have any of some bytes, also in compressed batches."""
    return [
        str(path.relative_to(top))
        for path in sorted(top.rglob("*"))
        if path.is_file() and any(needle in data for data in _contents(path) for needle in needles)
    ]


def _contents(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    yield data
    if ".log" in path.name:
        for batch in batches_of(path):
            if isinstance(batch, LegacyBatch):
                yield b"".join(bytes(message.raw) for message in batch.messages())
            else:
                yield batch.payload()


def batches_of(path: Path) -> list[RecordBatch | LegacyBatch]:
    """The batches of a log file; every CRC is checked."""
    data, position, found = path.read_bytes(), 0, []
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        batch = parse_batch(data[position : position + 12 + size])
        if batch is None:
            raise CorruptError("half a batch", path=str(path), position=position)
        batch.require_valid()
        found.append(batch)
        position += 12 + size
    return found


def kept_records(directory: Path, *, key: bytes = KEY) -> list[tuple[int, Any]]:
    """(offset, the rest) of every record of a partition, markers too, but those of a key."""
    found = []
    for path in sorted(directory.glob("*.log")):
        for batch in batches_of(path):
            for record in batch.records():
                if record.key != key:
                    headers = tuple((h.key, h.value) for h in record.headers)
                    what = (record.timestamp, record.key, record.value, headers)
                    found.append((record.offset, what))
    return found


def producers_of(directory: Path) -> list[tuple[Any, ...]]:
    """The producer fields of each batch of data or markers that has records."""
    return [
        (
            batch.header.producer_id,
            batch.header.producer_epoch,
            batch.header.base_sequence,
            batch.header.base_offset,
            batch.header.last_offset,
            batch.header.attributes & 0x38,
            batch.header.partition_leader_epoch,
        )
        for path in sorted(directory.glob("*.log"))
        for batch in batches_of(path)
        if isinstance(batch, RecordBatch) and batch.header.records_count
    ]


#: The kinds of control records that `erasable_log` has.
MARKERS = (ControlType.COMMIT, ControlType.ABORT)
