"""The text of producer snapshots.

Source: DumpLogSegments.dumpProducerIdSnapshot, ProducerStateManager.readSnapshot.
"""

from __future__ import annotations

from cordwood.format.producer_snapshot import ProducerEntry, parse_producer_snapshot
from cordwood.format.record import SEQUENCE_MAX
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS
from cordwood.surfaces.dump.documents import SnapshotProducer
from cordwood.surfaces.dump.files import NamedFile
from cordwood.surfaces.dump.java_text import java_optional
from cordwood.surfaces.dump.output import Output


def dump_producer_snapshot(file: NamedFile, output: Output) -> None:
    """Prints a producer snapshot, or on stderr why it cannot be read."""
    try:
        entries = parse_producer_snapshot(OS.read_bytes(file.path))
    except CorruptError as error:
        output.error(error.reason)
        return
    for entry in entries:
        transaction = entry.current_txn_first_offset
        output.item(
            entry_text(entry),
            SnapshotProducer(
                file=file.shown,
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_first_offset=transaction if transaction >= 0 else None,
                last_timestamp=entry.timestamp,
                last_sequence=entry.last_sequence,
                last_offset=entry.last_offset,
                offset_delta=entry.offset_delta,
            ),
        )


def first_sequence(entry: ProducerEntry) -> int:
    """The sequence of the first record of the producer's last batch.

    Source: BatchMetadata.firstSeq, DefaultRecordBatch.decrementSequence.
    """
    if entry.last_sequence < entry.offset_delta:
        return SEQUENCE_MAX - (entry.offset_delta - entry.last_sequence) + 1
    return entry.last_sequence - entry.offset_delta


def entry_text(entry: ProducerEntry) -> str:
    """The line of one producer."""
    transaction = entry.current_txn_first_offset
    text = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {java_optional(transaction if transaction >= 0 else None)} "
        f"lastTimestamp: {entry.timestamp}"
    )
    if entry.last_offset < 0:
        return text
    return (
        f"{text} firstSequence: {first_sequence(entry)} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
        f"timestamp: {entry.timestamp}"
    )
