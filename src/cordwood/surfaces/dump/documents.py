"""The JSON documents of a log: one to a batch, one to a record."""

from __future__ import annotations

import json
from typing import Any

from cordwood.format.legacy import LegacyBatch
from cordwood.format.record import Record
from cordwood.format.record_batch import RecordBatch
from cordwood.model.utf8 import decode_utf8
from cordwood.storage.reading.batches import PlacedBatch
from cordwood.surfaces.dump.control import control_text
from cordwood.surfaces.dump.decoders import PayloadDecoder


def batch_document(placed: PlacedBatch) -> dict[str, Any]:
    """A batch's header, by the names that the text has.

    Raises:
        CorruptError: the codec is unknown.
    """
    batch = placed.batch
    common = {
        "position": placed.position,
        "timestampType": batch.timestamp_type,
        "maxTimestamp": batch.max_timestamp,
        "size": batch.size_bytes,
        "magic": batch.magic,
        "codec": batch.codec.config_name,
        "isValid": batch.is_valid(),
    }
    if isinstance(batch, LegacyBatch):
        return {"lastOffset": batch.last_offset, **common, "crc": batch.crc}
    header = batch.header
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        **common,
        "crc": header.crc,
    }


def record_document(
    batch: RecordBatch | LegacyBatch, record: Record, decoder: PayloadDecoder | None
) -> dict[str, Any]:
    """A record; key and payload only with a decoder, as objects where they are JSON objects.

    Raises:
        CorruptError: a control record is malformed.
    """
    document: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "keySize": None if record.key is None else len(record.key),
        "valueSize": None if record.value is None else len(record.value),
        "sequence": record.sequence,
        "headers": [
            {
                "key": header.key,
                "value": None if header.value is None else decode_utf8(header.value),
            }
            for header in record.headers
        ],
    }
    if isinstance(batch, RecordBatch) and batch.header.is_control:
        document["control"] = control_text(record).strip()
    elif decoder is not None:
        key, payload = decoder(record)
        document["key"] = _value_of(key)
        document["payload"] = _value_of(payload)
    return document


def _value_of(text: str | None) -> Any:
    if text is None or not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
