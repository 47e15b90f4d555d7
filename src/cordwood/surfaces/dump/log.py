"""The text of `.log` and `.checkpoint` files: a line to a batch, and one to a record.

Source: DumpLogSegments.dumpLog, printBatchLevel, printRecordMetadata, printControlRecord.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cordwood.format.file_names import BOOTSTRAP_CHECKPOINT, LOG_SUFFIX, base_offset_of
from cordwood.format.legacy import LegacyBatch
from cordwood.format.record import Record
from cordwood.format.record_batch import RecordBatch
from cordwood.format.record_bound import RECORD_BYTES_MAX
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.batches import SIZE_MAX, LogFile, PlacedBatch
from cordwood.surfaces.dump.control import control_text
from cordwood.surfaces.dump.decoders import PayloadDecoder
from cordwood.surfaces.dump.documents import (
    BootstrapSnapshot,
    InvalidBytes,
    LogStart,
    MetadataSnapshot,
    batch_item,
    record_item,
)
from cordwood.surfaces.dump.files import NamedFile
from cordwood.surfaces.dump.java_text import java_boolean, java_optional
from cordwood.surfaces.dump.output import Findings, Output

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint(?:\.deleted|\.part)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Parts of a log that are printed; without a `decoder` the payload is left out.

    `record_bytes_max` is how large a record of a compressed batch may be.
    """

    is_deep: bool
    decoder: PayloadDecoder | None
    skip_record_metadata: bool
    bytes_max: int = SIZE_MAX
    record_bytes_max: int = RECORD_BYTES_MAX


def dump_log_file(file: NamedFile, options: LogOptions, findings: Findings, output: Output) -> None:
    """Prints a log, and records gaps between offsets.

    Raises:
        CorruptError: a batch or record cannot be read; everything before it has been printed.
    """
    _print_first_line(file, output)
    with LogFile(file.path) as log:
        position = 0
        gaps = GapFinder(file.absolute, findings)
        for placed in log.batches(size_max=options.bytes_max, is_strict=False):
            if output.is_json:
                output.document(batch_item(file.shown, placed))
            else:
                _print_batch(placed, output)
            if options.is_deep:
                try:
                    _print_records(file, placed.batch, options, gaps, output)
                except CorruptError as error:
                    place = f"in the batch of offset {_offset_of(placed.batch)}"
                    raise CorruptError(
                        f"{place} at byte {placed.position}: {error.reason}", path=file.shown
                    ) from error
            position = placed.position + placed.batch.size_bytes
        trailing = log.size_bytes - position
        if trailing > 0 and options.bytes_max == SIZE_MAX:
            output.item(
                f"Found {trailing} invalid bytes at the end of {file.name}",
                InvalidBytes(file=file.shown, position=position, count=trailing),
            )


class GapFinder:
    """Checks a log's record offsets, and records those that do not follow the previous one."""

    def __init__(self, path: str, findings: Findings) -> None:
        self._path = path
        self._findings = findings
        self._last_offset = -1

    def saw(self, offset: int) -> None:
        """Takes note of the next record's offset."""
        if offset != self._last_offset + 1:
            gaps = self._findings.gaps.compute_if_absent(self._path, dict)
            gaps[self._last_offset] = offset
        self._last_offset = offset


def snapshot_id(name: str) -> tuple[int, int]:
    """The end offset (exclusive) and the epoch in the name of a metadata snapshot.

    Raises:
        CorruptError: the name is not that of a snapshot.
    """
    match = _SNAPSHOT_NAME.fullmatch(name)
    if match is None:
        raise CorruptError(f"{name} is not the name of a metadata snapshot")
    return int(match[1]), int(match[2])


def messages_of(
    batch: RecordBatch | LegacyBatch, *, record_bytes_max: int = RECORD_BYTES_MAX
) -> Iterator[tuple[Record, LegacyBatch | None]]:
    """The batch's records, those of magic 0 and 1 each with the message that it is.

    Raises:
        OversizedRecordError: one of a compressed batch takes more than `record_bytes_max`.
        CorruptError: one cannot be read.
    """
    if isinstance(batch, RecordBatch):
        for record in batch.iter_records(record_bytes_max=record_bytes_max):
            yield record, None
    else:
        for message in batch.messages(record_bytes_max=record_bytes_max):
            yield (
                Record(message.offset, message.timestamp, message.key, message.value),
                message,
            )


def _print_first_line(file: NamedFile, output: Output) -> None:
    if file.name.endswith(LOG_SUFFIX):
        base_offset = base_offset_of(file.name)
        item = LogStart(file=file.shown, starting_offset=base_offset)
        output.item(f"Log starting offset: {base_offset}", item)
    elif file.name == BOOTSTRAP_CHECKPOINT:
        output.item("KRaft bootstrap snapshot", BootstrapSnapshot(file=file.shown))
    else:
        end_offset, epoch = snapshot_id(file.name)
        output.item(
            f"Snapshot end offset: {end_offset}, epoch: {epoch}",
            MetadataSnapshot(file=file.shown, end_offset=end_offset, epoch=epoch),
        )


def _offset_of(batch: RecordBatch | LegacyBatch) -> int:
    return batch.base_offset if isinstance(batch, RecordBatch) else batch.offset


def _print_batch(placed: PlacedBatch, output: Output) -> None:
    batch = placed.batch
    if isinstance(batch, RecordBatch):
        header = batch.header
        output.write(
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
            f"count: {header.records_count} baseSequence: {header.base_sequence} "
            f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
            f"producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.partition_leader_epoch} "
            f"isTransactional: {java_boolean(header.is_transactional)} "
            f"isControl: {java_boolean(header.is_control)} "
            f"deleteHorizonMs: {java_optional(header.delete_horizon_ms)}"
        )
        crc = header.crc
    else:
        output.write(f"offset: {batch.last_offset}")
        crc = batch.crc
    output.line(
        f" position: {placed.position} {batch.timestamp_type}: {batch.max_timestamp} "
        f"size: {batch.size_bytes} magic: {batch.magic} compresscodec: {batch.codec.config_name} "
        f"crc: {crc} isvalid: {java_boolean(batch.is_valid())}"
    )


def _print_records(
    file: NamedFile,
    batch: RecordBatch | LegacyBatch,
    options: LogOptions,
    gaps: GapFinder,
    output: Output,
) -> None:
    is_control = isinstance(batch, RecordBatch) and batch.header.is_control
    for record, message in messages_of(batch, record_bytes_max=options.record_bytes_max):
        gaps.saw(record.offset)
        if output.is_json:
            output.document(record_item(file.shown, batch, record, options.decoder))
            continue
        text = ""
        if not options.skip_record_metadata:
            text = _metadata_text(batch, record, message)
            output.write(text)
            if is_control:
                output.write(control_text(record))
        if options.decoder is not None and not is_control:
            output.write(_contents_text(options.decoder, record, "| " if not text else " "))
        output.write("\n")


def _metadata_text(
    batch: RecordBatch | LegacyBatch, record: Record, message: LegacyBatch | None
) -> str:
    text = (
        f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if message is not None:
        return f"{text} isValid: {java_boolean(message.is_valid())} crc: {message.crc}"
    keys = ",".join(header.key for header in record.headers)
    return f"{text} sequence: {record.sequence} headerKeys: [{keys}]"


def _contents_text(decoder: PayloadDecoder, record: Record, prefix: str) -> str:
    key, payload = decoder(record)
    text = ""
    if key is not None:
        text = f"{prefix}key: {key}"
        prefix = " "
    if payload is not None:
        text += f"{prefix}payload: {payload}"
    return text


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
