"""`__consumer_offsets` as the log of the group coordinator."""

from __future__ import annotations

from operator import itemgetter

from cordwood.broker.coordinators.coordinator_log import LogFormat, Replay
from cordwood.coordinator.errors import error_of_append
from cordwood.coordinator.group import records
from cordwood.coordinator.group.offset_records import decode_offset
from cordwood.coordinator.group.shard import CoordinatorRecord, GroupShard
from cordwood.format.compression import Codec
from cordwood.format.control_record import ControlType, parse_control_key
from cordwood.format.group_metadata import describe_group_record
from cordwood.format.record_batch import LegacyBatch, RecordBatch
from cordwood.model.topic_names import GROUP_METADATA_TOPIC

_REMEDY = (
    "Clients of its groups are answered NOT_COORDINATOR. Stop the broker and restore the "
    "partition's directory from a copy, or remove it, which loses its groups and their offsets"
)
#: The first bytes of keys of commits: their versions.
_COMMIT_KEYS = frozenset((b"\0\0", b"\0\1"))


def group_log_format(codec: Codec) -> LogFormat[GroupShard, CoordinatorRecord]:
    """The format of groups and offsets, whose batches are compressed with `codec`."""
    return LogFormat(
        topic=GROUP_METADATA_TOPIC,
        contents="groups",
        encode=records.encode,
        batch_of=lambda made, now_ms, producer: records.batch_of(
            made, now_ms=now_ms, codec=codec, producer=producer
        ),
        error_of_append=error_of_append,
        replay=GroupReplay,
        count=lambda state: len(state.groups),
        remedy=_REMEDY,
    )


class GroupReplay(Replay[CoordinatorRecord]):
    """Replays batches. A commit of an offset waits: mostly, a later one takes its place."""

    topic = GROUP_METADATA_TOPIC
    unknown = records.UnknownRecordTypeError
    decode = staticmethod(records.decode)
    describe = staticmethod(describe_group_record)

    def __init__(self, state: GroupShard) -> None:
        super().__init__(state.partition)
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
        found = self.decoded(offset, key, value)
        if found is not None:
            self._state.replay(found, offset, producer_id)
