"""Replays the records of a partition of `__consumer_offsets` when it is loaded.

It may run in a thread beside the event loop, which gets its turns between the records.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl.
"""

from __future__ import annotations

import logging
from operator import itemgetter

from cordwood.coordinator.group import records
from cordwood.coordinator.group.offset_records import decode_offset
from cordwood.coordinator.group.shard import GroupShard
from cordwood.format.control_record import ControlType, parse_control_key
from cordwood.format.group_metadata import describe_group_record
from cordwood.format.record_batch import LegacyBatch, RecordBatch
from cordwood.model.errors import CorruptError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC

REMEDY = (
    "Clients of its groups are answered NOT_COORDINATOR. Stop the broker and restore the "
    "partition's directory from a copy, or remove it, which loses its groups and their offsets"
)
#: The first bytes of keys of commits: their versions.
_COMMIT_KEYS = frozenset((b"\0\0", b"\0\1"))

_LOG = logging.getLogger(__name__)


class GroupReplay:
    """Replays batches. A commit of an offset waits: mostly, a later one takes its place.

    `offset` is that of the batch or the record that is being read.
    """

    def __init__(self, state: GroupShard) -> None:
        self.offset = 0
        self._state = state
        # The newest value of each key with its offset, of records that are not replayed yet.
        self._commits: dict[bytes, tuple[bytes, int]] = {}

    def batch(self, batch: RecordBatch | LegacyBatch) -> None:
        """Replays a batch; its commits of offsets may wait until `flush`."""
        if isinstance(batch, LegacyBatch):
            self.flush()
            for record in batch.records():
                self._record(record.offset, record.key, record.value, -1)
            return
        header = batch.header
        base_offset, producer_id = header.base_offset, header.producer_id
        commits = self._commits
        for _, offset_delta, key, value, _, _ in batch.iter_fields():
            if producer_id == -1 and value is not None and key and key[:2] in _COMMIT_KEYS:
                commits[key] = value, base_offset + offset_delta
                continue
            self.flush()
            if not header.is_control:
                self._record(base_offset + offset_delta, key, value, producer_id)
                continue
            control = parse_control_key(key)
            if control in {ControlType.COMMIT, ControlType.ABORT}:
                is_commit = control is ControlType.COMMIT
                self._state.offsets.end_transaction(producer_id, commit=is_commit)

    def flush(self) -> None:
        """Replays the commits of offsets that wait."""
        waiting = [
            (offset, key, value, decode_offset(key, value, offset))
            for key, (value, offset) in self._commits.items()
        ]
        self._commits.clear()
        for _, _, _, found in waiting:
            # The order of the first commits is that in which Kafka adds groups to its table.
            if found is not None and found.offset is not None:
                self._state.require_group(found.key.group_id)
        for offset, key, value, found in sorted(waiting, key=itemgetter(0)):
            if found is None or found.offset is None:  # not as Kafka writes it now
                self._record(offset, key, value, -1)
            else:
                self._state.commit(found.key, found.offset)

    def _record(
        self, offset: int, key: bytes | None, value: bytes | None, producer_id: int
    ) -> None:
        """Replays a record; one of an unknown type is logged and left alone."""
        self.offset = offset
        try:
            found = records.decode(key, value)
        except records.UnknownRecordTypeError as error:
            _LOG.warning(
                "The record at offset %d of %s-%d is ignored: %s. It may be left over from an "
                "aborted upgrade.",
                offset,
                GROUP_METADATA_TOPIC,
                self._state.partition,
                error,
            )
            return
        except CorruptError as error:
            raise type(error)(
                f"{describe_group_record(key)} at offset {offset} cannot be read: {error.reason}"
            ) from error
        if found is not None:
            self._state.replay(found, offset, producer_id)
