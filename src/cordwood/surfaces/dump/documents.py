"""The answers of `cordwood dump-log`: one for each item of a file, on a line of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cordwood.format.legacy import LegacyBatch
from cordwood.format.record import Record
from cordwood.format.record_batch import RecordBatch
from cordwood.model.documents import CamelCase
from cordwood.model.utf8 import decode_utf8
from cordwood.storage.reading.batches import PlacedBatch
from cordwood.surfaces.dump.control import control_text
from cordwood.surfaces.dump.decoders import PayloadDecoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(CamelCase):
    """An item of a file, which is called as on the command line."""

    file: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart(Item):
    """The base offset of a segment."""

    kind: Literal["log"] = "log"
    starting_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSnapshot(Item):
    """The name of a snapshot of the cluster metadata; `end_offset` is exclusive."""

    kind: Literal["metadataSnapshot"] = "metadataSnapshot"
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapSnapshot(Item):
    """The snapshot that a new cluster begins with."""

    kind: Literal["bootstrapSnapshot"] = "bootstrapSnapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch(Item):
    """The header of a batch of magic 2, and the byte at which it is."""

    kind: Literal["batch"] = "batch"
    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    codec: str
    is_valid: bool
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedMessageSet(Item):
    """A message of magic 0 or 1, or a compressed set of them, and the byte at which it is."""

    kind: Literal["batch"] = "batch"
    last_offset: int
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    codec: str
    is_valid: bool
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedHeader:
    """A header of a record; what is not UTF-8 in its value is replaced."""

    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord(Item):
    """A record without key and payload, of which sizes are in bytes."""

    kind: Literal["record"] = "record"
    offset: int
    timestamp: int
    key_size: int | None
    value_size: int | None
    sequence: int
    headers: Sequence[DumpedHeader]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRecord(DumpedRecord):
    """A record; key and payload are texts, or objects where these are JSON objects."""

    key: Any
    payload: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedControlRecord(DumpedRecord):
    """A control record, in the words of Kafka's tool."""

    control: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidBytes(Item):
    """The number of bytes at the end of a log that are no batch, and the first of them."""

    kind: Literal["invalidBytes"] = "invalidBytes"
    position: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyIndex(Item):
    """An index without an entry."""

    kind: Literal["emptyIndex"] = "emptyIndex"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaneIndex(Item):
    """An index that has passed the check."""

    kind: Literal["saneIndex"] = "saneIndex"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetIndexEntry(Item):
    """An entry of an offset index."""

    kind: Literal["offsetIndexEntry"] = "offsetIndexEntry"
    offset: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeIndexEntry(Item):
    """An entry of a time index."""

    kind: Literal["timeIndexEntry"] = "timeIndexEntry"
    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction(Item):
    """An entry of a transaction index."""

    kind: Literal["abortedTransaction"] = "abortedTransaction"
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProducer(Item):
    """A producer of a producer snapshot."""

    kind: Literal["producer"] = "producer"
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int | None
    last_timestamp: int
    last_sequence: int
    last_offset: int
    offset_delta: int


AnyItem: TypeAlias = (
    LogStart
    | MetadataSnapshot
    | BootstrapSnapshot
    | DumpedBatch
    | DumpedMessageSet
    | DumpedRecord
    | DecodedRecord
    | DumpedControlRecord
    | InvalidBytes
    | EmptyIndex
    | SaneIndex
    | OffsetIndexEntry
    | TimeIndexEntry
    | AbortedTransaction
    | SnapshotProducer
)


def batch_item(file: str, placed: PlacedBatch) -> DumpedBatch | DumpedMessageSet:
    """A batch's header, by the names that the text has.

    Raises:
        CorruptError: the codec is unknown.
    """
    batch = placed.batch
    common: dict[str, Any] = {
        "file": file,
        "last_offset": batch.last_offset,
        "position": placed.position,
        "timestamp_type": batch.timestamp_type,
        "max_timestamp": batch.max_timestamp,
        "size": batch.size_bytes,
        "magic": batch.magic,
        "codec": batch.codec.config_name,
        "is_valid": batch.is_valid(),
    }
    if isinstance(batch, LegacyBatch):
        return DumpedMessageSet(**common, crc=batch.crc)
    header = batch.header
    return DumpedBatch(
        **common,
        base_offset=header.base_offset,
        count=header.records_count,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        partition_leader_epoch=header.partition_leader_epoch,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
        crc=header.crc,
    )


def record_item(
    file: str, batch: RecordBatch | LegacyBatch, record: Record, decoder: PayloadDecoder | None
) -> DumpedRecord:
    """A record; key and payload only with a decoder.

    Raises:
        CorruptError: a control record is malformed.
    """
    common: dict[str, Any] = {
        "file": file,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key_size": None if record.key is None else len(record.key),
        "value_size": None if record.value is None else len(record.value),
        "sequence": record.sequence,
        "headers": [
            DumpedHeader(
                key=header.key, value=None if header.value is None else decode_utf8(header.value)
            )
            for header in record.headers
        ],
    }
    if isinstance(batch, RecordBatch) and batch.header.is_control:
        return DumpedControlRecord(**common, control=control_text(record).strip())
    if decoder is None:
        return DumpedRecord(**common)
    key, payload = decoder(record)
    return DecodedRecord(**common, key=_value_of(key), payload=_value_of(payload))


def _value_of(text: str | None) -> Any:
    if text is None or not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
