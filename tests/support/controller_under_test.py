"""A controller of its own on formatted directories, to be stopped, killed and started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from cordwood.controller.controller import Controller
from cordwood.controller.local_channel import LocalControllerChannel
from cordwood.controller.settings import ControllerSettings
from cordwood.format.control_record import parse_control_key, parse_kraft_control_value
from cordwood.format.file_names import CLUSTER_METADATA_DIR, META_PROPERTIES, FileKind, classify
from cordwood.format.meta_properties import parse_meta_properties
from cordwood.format.metadata_records import decode_metadata_record, encode_metadata_record
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.feature_levels import DEFAULT_FEATURES
from cordwood.metadata.formatting import Voters, format_directories
from cordwood.metadata.image import Endpoint
from cordwood.metadata.records import ApiRecord
from cordwood.metadata.snapshot_file import control_batch, data_batch
from cordwood.metadata.sole_voter_log import SoleVoterLog
from cordwood.model.uuids import fresh_uuid
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.testing.manual_clock import ManualClock

NODE_ID = 1
CLUSTER_ID = "Y29yZHdvb2QtdGVzdHMtMQ"

LoggedRecord = tuple[str, dict[str, Any]]


class _Requests:
    """Sends requests to a controller; each is answered when the call returns."""

    def __init__(self, controller: Controller) -> None:
        self._channel = LocalControllerChannel(
            controller, run=run_at_once, published=published_at_once
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._channel, name)

        def request(*args: Any, **named: Any) -> Any:
            try:
                method(*args, **named).send(None)
            except StopIteration as end:
                return end.value
            raise AssertionError(f"{name} waits")

        return request


def requests_to(controller: Controller) -> _Requests:
    """The requests of a `LocalControllerChannel`, without an event loop."""
    return _Requests(controller)


async def run_at_once(run: Callable[[], Any]) -> Any:
    """Runs a controller's operation in one slice."""
    return run()


async def published_at_once(_offset: int) -> None:
    """Publishes nothing."""


class ControllerUnderTest:
    """Directories, and how a controller is opened on them."""

    def __init__(
        self,
        *log_dirs: Path,
        fs: FileSystem = OS,
        clock: ManualClock | None = None,
        features: Mapping[str, int] = DEFAULT_FEATURES,
        voters: Voters = Voters.SOLE,
        **settings: Any,
    ) -> None:
        self.log_dirs = log_dirs
        self.fs = fs
        self.clock = clock or ManualClock()
        self.settings = ControllerSettings(**settings)
        self.ids: Sequence[UUID] = format_directories(
            log_dirs,
            node_id=NODE_ID,
            cluster_id=CLUSTER_ID,
            clock=self.clock,
            controller_endpoints=[Endpoint(name="CONTROLLER", host="localhost", port=9093)],
            features=features,
            voters=voters,
            fs=fs,
        )

    @property
    def directory(self) -> Path:
        """The directory of the metadata log."""
        return self.log_dirs[0] / CLUSTER_METADATA_DIR

    def open(
        self,
        *,
        previous_broker_epoch: int = -1,
        fs: FileSystem | None = None,
        node_id: int = NODE_ID,
        online: Sequence[UUID] | None = None,
    ) -> Controller:
        """A controller whose broker is still fenced."""
        controller = self.activated(fs=fs, node_id=node_id)
        self.register(controller, previous_broker_epoch=previous_broker_epoch, online=online)
        return controller

    def activated(self, *, fs: FileSystem | None = None, node_id: int = NODE_ID) -> Controller:
        """A controller whose broker has not registered."""
        return Controller.open(
            metadata_dir=self.log_dirs[0],
            node_id=node_id,
            directory_ids=self.ids,
            clock=self.clock,
            settings=self.settings,
            fs=fs or self.fs,
        )

    def register(
        self,
        controller: Controller,
        *,
        previous_broker_epoch: int = -1,
        online: Sequence[UUID] | None = None,
    ) -> None:
        """Registers the broker; it is fenced."""
        controller.register_broker(
            BrokerRegistration(
                broker_id=controller.node_id,
                incarnation_id=fresh_uuid(controller.context.rng),
                endpoints=(Endpoint(name="PLAINTEXT", host="localhost", port=9092),),
                log_dirs=tuple(online or self.ids),
                previous_broker_epoch=previous_broker_epoch,
            )
        )

    def serve(self, *, previous_broker_epoch: int = -1, fs: FileSystem | None = None) -> Controller:
        """A controller whose broker serves."""
        controller = self.open(previous_broker_epoch=previous_broker_epoch, fs=fs)
        controller.unfence()
        return controller

    def restarted(self, controller: Controller) -> Controller:
        """The controller after a clean stop and a start."""
        controller.close()
        return self.serve(previous_broker_epoch=controller.broker_epoch)

    def batches(self) -> list[list[LoggedRecord]]:
        """The batches of the log, as names of records and the fields that are not their default."""
        found = []
        for name in self.fs.names_in(self.directory):
            kind = classify(name)
            if kind.kind is FileKind.LOG and not kind.state:
                found += batches_in(self.fs.read_bytes(self.directory / name))
        return found

    def snapshots(self) -> list[str]:
        """The names of the snapshots, from the oldest on, that of the voters aside."""
        return [
            name
            for name in self.fs.names_in(self.directory)
            if classify(name).kind is FileKind.METADATA_SNAPSHOT and classify(name).base_offset
        ]


def batches_in(data: bytes) -> list[list[LoggedRecord]]:
    """The batches of a metadata log's segment, or of a snapshot."""
    found = []
    for _, batch in iter_batches(data):
        assert isinstance(batch, RecordBatch), "a message of an old format in a metadata log"
        records: list[LoggedRecord] = []
        for record in batch.iter_records():
            if batch.header.is_control:
                records.append((parse_control_key(record.key).name, {}))
            else:
                metadata = decode_metadata_record(record.value or b"")
                records.append((metadata.name, metadata.json()))
        found.append(records)
    return found


def names_of(batch: Sequence[LoggedRecord]) -> list[str]:
    """The names of a batch's records."""
    return [name for name, _ in batch]


def put_together(batch: RecordBatch) -> bytes:
    """The bytes that a controller writes for the records of a batch."""
    records = list(batch.iter_records())
    base_offset = batch.header.base_offset
    timestamp_ms = batch.header.base_timestamp
    epoch = batch.header.partition_leader_epoch
    if batch.header.is_control:
        kinds = [parse_control_key(record.key) for record in records]
        controls = [
            (kind, parse_kraft_control_value(kind, record.value).fields)
            for kind, record in zip(kinds, records, strict=True)
        ]
        return control_batch(
            controls, base_offset=base_offset, timestamp_ms=timestamp_ms, epoch=epoch
        )
    decoded = [decode_metadata_record(record.value or b"") for record in records]
    values = [encode_metadata_record(each.name, each.version, each.fields) for each in decoded]
    return data_batch(values, base_offset=base_offset, timestamp_ms=timestamp_ms, epoch=epoch)


def append_to_metadata_log(log_dir: Path, records: Sequence[ApiRecord], *, node_id: int) -> None:
    """Appends records to the metadata log of a stopped node, without any check of their sense."""
    properties = parse_meta_properties((log_dir / META_PROPERTIES).read_bytes())
    assert properties.directory_id is not None, "formatted for KRaft"
    clock = ManualClock()
    log = SoleVoterLog(
        log_dir,
        node_id=node_id,
        directory_id=properties.directory_id,
        context=LogContext(clock=clock),
        settings=ControllerSettings(),
    )
    log.begin_epoch()
    log.append(records, timestamp_ms=clock.now_ms())
    log.close()
