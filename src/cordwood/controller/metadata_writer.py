"""The metadata log of an active controller, and the image of what it has written.

Records are written as one batch, and the image has them when the batch is on disk. On a full disk
the disk reserve is released for changes that must not be refused.

Source: org.apache.kafka.controller.QuorumController (ControllerWriteEvent, appendRecords),
ActivationRecordsGenerator; KIP-631, KIP-868.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cordwood.configs.resource import ConfigResource
from cordwood.controller import features
from cordwood.controller.partition_change import check_partition
from cordwood.controller.record_values import require_values
from cordwood.controller.settings import ControllerSettings
from cordwood.format.metadata_records import with_defaults
from cordwood.metadata.delta import ImageDelta
from cordwood.metadata.formatting import read_bootstrap_records
from cordwood.metadata.image import MetadataImage
from cordwood.metadata.records import ApiRecord, config_record, has_elr, has_transactions
from cordwood.metadata.sole_voter_log import BATCH_RECORDS_MAX, SoleVoterLog
from cordwood.model.clock import Clock
from cordwood.model.pauses import in_steps
from cordwood.storage.disk_reserve import DiskReserve
from cordwood.storage.filesystem import FileSystem


class MetadataWriter:
    """Writes records to the metadata log.

    Invariant: `image` is that of the log, up to its end.
    """

    def __init__(
        self,
        log: SoleVoterLog,
        reserve: DiskReserve,
        settings: ControllerSettings,
        *,
        clock: Clock,
        fs: FileSystem,
    ) -> None:
        """Nothing is written before `activate`."""
        self.image = MetadataImage()
        self._log = log
        self._reserve = reserve
        self._settings = settings
        self._clock = clock
        self._fs = fs

    def check_invariants(self) -> None:
        """Checks that the image is that of the log, and each partition."""
        ends = self.image.next_offset, self._log.end_offset
        assert ends[0] == ends[1], ends
        for topic in self.image.topics.values():
            for partition in topic.partitions.values():
                check_partition(partition)

    def activate(self, metadata_dir: Path) -> None:
        """Begins a leader epoch after the records that the log has; bootstraps an empty log.

        Raises:
            UnsupportedVersionError: the log is of a later Kafka.
            StorageError: the disk returned an error.
        """
        replay = self._log.replay
        had_open_transaction = replay.in_transaction
        image = replay.image()
        features.require_supported(image)
        is_empty = replay.data_records == 0 and replay.next_offset == 0
        now_ms = self._clock.now_ms()
        self._log.begin_epoch()
        self.image = replace(
            image,
            next_offset=self._log.end_offset,
            epoch=self._log.epoch,
            timestamp_ms=now_ms,
            may_have_uncommitted_suffix=False,
        )
        if had_open_transaction:
            abort = ApiRecord("AbortTransactionRecord", 0, {"reason": "Controller failover"})
            self._append([abort])
            self._move_on()
        if is_empty or not image.features:
            self._bootstrap(read_bootstrap_records(metadata_dir, fs=self._fs))

    def _bootstrap(self, records: Sequence[ApiRecord]) -> None:
        """The first records of a cluster, as one transaction."""
        first = ImageDelta()
        for record in records:
            first.apply(record.name, with_defaults(record.name, record.fields))
        features_now = first.image(next_offset=0, epoch=0).features
        level = features_now.get("metadata.version", 0)
        all_records = list(records)
        if has_elr(features_now):
            value = str(self._settings.min_insync_replicas)
            all_records.append(
                config_record(ConfigResource.BROKER, "", "min.insync.replicas", value)
            )
        if has_transactions(level):
            begin = ApiRecord("BeginTransactionRecord", 0, {"name": "Bootstrap records"})
            all_records = [begin, *all_records, ApiRecord("EndTransactionRecord", 0, {})]
        self.commit(all_records)

    def commit(
        self, records: Sequence[ApiRecord], *, in_parts: bool = False, at_need: bool = False
    ) -> None:
        """Writes records as one batch; the image has them when they are on disk.

        Args:
            records: what to write; nothing is written if there are none.
            in_parts: they need not be applied together: batches are of limited size.
            at_need: on a full disk, the disk reserve is released, and the batch written again.

        Raises:
            InvalidRequestError: a record has a value that no reader knows.
            StorageError: the disk returned an error.
        """
        size = BATCH_RECORDS_MAX if in_parts else max(len(records), 1)
        for start in range(0, len(records), size):
            batch = partial(self._commit, records[start : start + size])
            if at_need:
                self._reserve.at_need(batch)
            else:
                batch()

    def make_voters_dynamic(self, voter: Mapping[str, Any]) -> None:
        """Raises `kraft.version` to 1; see `SoleVoterLog.make_voters_dynamic`."""
        self._log.make_voters_dynamic(voter)
        self._move_on()

    def _commit(self, records: Sequence[ApiRecord]) -> None:
        delta = ImageDelta(self.image)
        for record in in_steps(records, every=16):
            require_values(record)
            delta.apply(record.name, with_defaults(record.name, record.fields))
        assert not delta.in_transaction, "a transaction over several batches"
        now_ms = self._append(records)
        self.image = delta.image(
            next_offset=self._log.end_offset, epoch=self._log.epoch, timestamp_ms=now_ms
        )

    def _append(self, records: Sequence[ApiRecord]) -> int:
        now_ms = self._clock.now_ms()
        self._log.append(records, timestamp_ms=now_ms)
        return now_ms

    def _move_on(self) -> None:
        self.image = replace(self.image, next_offset=self._log.end_offset, epoch=self._log.epoch)
