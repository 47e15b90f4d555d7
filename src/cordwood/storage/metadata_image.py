"""What a cluster knows of itself, read from the directory of its metadata log.

The newest snapshot is read, then the log from where the snapshot ends. Records between a Begin and
an End record count together, or not at all: those of a transaction that is aborted, or still open
where the log ends, are dropped. A batch that is cut off at the very end of the log is left out;
everything else that is malformed is an error that says in which file and where.

How far the log is committed is not written down. With a single voter all of it is; with several, or
when the voters are not known, the last records may yet be taken back, and the image says so.

Source: org.apache.kafka.image.MetadataDelta and loader.MetadataLoader,
org.apache.kafka.raft.internals.KafkaRaftLog, Kafka 4.3; KIP-630, KIP-868.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from cordwood.format.control_record import (
    ControlType,
    parse_control_key,
    parse_kraft_control_value,
)
from cordwood.format.file_names import QUORUM_STATE, FileKind, classify
from cordwood.format.metadata_records import MetadataRecord, decode_metadata_record
from cordwood.format.record import Record
from cordwood.format.record_batch import LegacyBatch, RecordBatch, iter_batches
from cordwood.model.config import ConfigResource
from cordwood.model.errors import CorruptError, UnsupportedVersionError
from cordwood.model.topic_partition import TopicPartition

NO_LEADER = -1
_UNCHANGED_LEADER = -2
_FENCE, _UNFENCE = 1, -1

_Item = TypeVar("_Item")
ReadBytes = Callable[[Path], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """Where a partition's replicas are; `leader` is -1 for none.

    `directories` are the ids of the log directories of `replicas`, in the same order, or empty if
    the record was too old to say.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A broker's registration; `log_dirs` are the ids of its directories that are online."""

    broker_id: int
    epoch: int
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...]
    endpoints: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """Topics, partitions, settings and brokers as of one offset of the metadata log.

    Topic ids are written as Kafka prints them. `configs` are by kind of resource and its name, the
    name '' standing for all brokers. `next_offset` is one past the last record taken in, `epoch`
    that of its batch, -1 if there was none. `may_have_uncommitted_suffix` is true when the last
    records may not have been committed.
    """

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    topic_names_by_id: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionImage] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_offset: int = 0
    epoch: int = -1
    may_have_uncommitted_suffix: bool = True

    @property
    def topic_names(self) -> AbstractSet[str]:
        """The topics there are."""
        return self.topic_ids.keys()

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The settings of a topic that differ from the broker's."""
        return self.configs.get((ConfigResource.TOPIC, topic), {})


def read_metadata_image(
    directory: Path, *, read_bytes: ReadBytes = Path.read_bytes
) -> MetadataImage:
    """The image that the metadata log in `directory` (`__cluster_metadata-0`) gives.

    Raises:
        CorruptError: a file is malformed, has records that contradict one another, or a part of
            the log is missing.
        UnsupportedVersionError: a record is of a kind or version that Kafka 4.3 does not know.
        OSError: a file cannot be read.
    """
    replay = _Replay()
    snapshots, logs = _files(directory)
    voters = _voters_of_quorum_state(directory, read_bytes)
    if snapshots:
        newest = snapshots[-1]
        _replay_snapshot(newest, read_bytes(newest.path), replay)
        if _is_behind(logs, newest, read_bytes):
            logs = []
    _replay_log(logs, read_bytes, replay)
    return replay.image(voters=replay.voters if replay.voters is not None else voters)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    path: Path
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFile:
    path: Path
    base_offset: int


def _files(directory: Path) -> tuple[list[_Snapshot], list[_LogFile]]:
    """Snapshots and log files, each from the oldest to the newest."""
    snapshots: list[_Snapshot] = []
    logs: list[_LogFile] = []
    for path in directory.iterdir():
        name = classify(path.name)
        if name.base_offset is None or name.state:
            continue
        if name.kind is FileKind.LOG:
            logs.append(_LogFile(path=path, base_offset=name.base_offset))
        elif name.kind is FileKind.METADATA_SNAPSHOT:
            epoch = int(path.stem.rpartition("-")[2])
            snapshots.append(_Snapshot(path=path, end_offset=name.base_offset, epoch=epoch))
    snapshots.sort(key=lambda snapshot: (snapshot.end_offset, snapshot.epoch))
    logs.sort(key=lambda log: log.base_offset)
    return snapshots, logs


def _voters_of_quorum_state(directory: Path, read_bytes: ReadBytes) -> int | None:
    """How many voters the quorum has by its state file; None if that does not say."""
    path = directory / QUORUM_STATE
    try:
        state = json.loads(read_bytes(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptError(f"not the state of a quorum: {error}", path=str(path)) from error
    if not isinstance(state, dict):
        raise CorruptError("not the state of a quorum", path=str(path))
    voters = state.get("currentVoters")
    # A broker that is no voter itself may not know them, and writes an empty list.
    return len(voters) if isinstance(voters, list) and voters else None


def _is_behind(logs: Sequence[_LogFile], snapshot: _Snapshot, read_bytes: ReadBytes) -> bool:
    """Whether the log ends before the snapshot does: Kafka empties it, to go on from there."""
    for log in reversed(logs):
        headers = [batch.header for _, batch in _batches(log.path, read_bytes(log.path))]
        if headers:
            last = headers[-1]
            return (
                last.next_offset < snapshot.end_offset
                or last.partition_leader_epoch < snapshot.epoch
            )
    return True


def _replay_snapshot(snapshot: _Snapshot, data: bytes, replay: _Replay) -> None:
    """Applies a snapshot; its offsets count from 0 in the file, and are not the log's."""
    is_complete = False
    for position, batch in _batches(snapshot.path, data):
        with_footer = _replay_batch(snapshot.path, position, batch, replay, from_offset=0)
        is_complete = with_footer
    if not is_complete:
        raise CorruptError("snapshot without its footer", path=str(snapshot.path))
    replay.next_offset = snapshot.end_offset
    replay.epoch = snapshot.epoch if snapshot.end_offset else -1


def _replay_log(logs: Sequence[_LogFile], read_bytes: ReadBytes, replay: _Replay) -> None:
    start = replay.next_offset
    expected: int | None = None
    for number, log in enumerate(logs, start=1):
        if number < len(logs) and logs[number].base_offset <= start:
            continue
        for position, batch in _batches(log.path, read_bytes(log.path)):
            header = batch.header
            if header.next_offset <= start:
                continue
            goes_on = (
                header.base_offset <= start
                if expected is None
                else (header.base_offset == expected)
            )
            if not goes_on:
                raise CorruptError(
                    f"the batch at offset {header.base_offset} does not follow the one before, "
                    f"which ended at {start if expected is None else expected}",
                    path=str(log.path),
                    position=position,
                )
            _replay_batch(log.path, position, batch, replay, from_offset=start)
            expected = header.next_offset
            replay.next_offset = header.next_offset
            replay.epoch = header.partition_leader_epoch
    replay.drop_open_transaction()


def _batches(path: Path, data: bytes) -> Iterator[tuple[int, RecordBatch]]:
    """The batches of a file, checked."""
    position = 0
    try:
        for position, batch in iter_batches(data):
            yield position, _valid(batch)
    except CorruptError as error:
        where = position if error.position is None else error.position
        raise type(error)(error.reason, path=str(path), position=where) from error


def _valid(batch: RecordBatch | LegacyBatch) -> RecordBatch:
    if isinstance(batch, LegacyBatch):
        raise UnsupportedVersionError(f"record batch of magic {batch.magic} in a metadata log")
    batch.require_valid()
    return batch


def _replay_batch(
    path: Path, position: int, batch: RecordBatch, replay: _Replay, *, from_offset: int
) -> bool:
    """Applies a batch's records from an offset on; whether the last one was a snapshot's footer."""
    is_footer = False
    try:
        for record in batch.iter_records():
            if record.offset < from_offset:
                continue
            if batch.header.is_control:
                is_footer = replay.take_control(record)
            else:
                is_footer = False
                replay.take(decode_metadata_record(record.value or b""))
    except CorruptError as error:
        raise type(error)(error.reason, path=str(path), position=position) from error
    return is_footer


class _Replay:
    """The state of an image under way; all changes that records make are here.

    Invariant: `_before` is the state before the transaction that is open, None without one.
    """

    def __init__(self) -> None:
        self.next_offset = 0
        self.epoch = -1
        self.voters: int | None = None
        self._state = _State()
        self._before: _State | None = None
        self._changes: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "TopicRecord": self._topic,
            "RemoveTopicRecord": self._remove_topic,
            "PartitionRecord": self._partition,
            "PartitionChangeRecord": self._partition_change,
            "ConfigRecord": self._config,
            "FeatureLevelRecord": self._feature_level,
            "RegisterBrokerRecord": self._register_broker,
            "UnregisterBrokerRecord": self._unregister_broker,
            "BrokerRegistrationChangeRecord": self._change_registration,
            "FenceBrokerRecord": lambda fields: self._fence(fields, fenced=True),
            "UnfenceBrokerRecord": lambda fields: self._fence(fields, fenced=False),
            "BeginTransactionRecord": lambda _: self._begin(),
            "EndTransactionRecord": lambda _: self._end(),
            "AbortTransactionRecord": lambda _: self._abort(),
        }

    def image(self, *, voters: int | None) -> MetadataImage:
        """What the records so far come to."""
        state = self._state
        return MetadataImage(
            topic_ids=state.topic_ids,
            topic_names_by_id={each: name for name, each in state.topic_ids.items()},
            partitions={
                TopicPartition(name, number): partition
                for name, topic_id in state.topic_ids.items()
                for number, partition in state.partitions[topic_id].items()
            },
            configs=state.configs,
            brokers=state.brokers,
            features=state.features,
            next_offset=self.next_offset,
            epoch=self.epoch,
            may_have_uncommitted_suffix=voters != 1,
        )

    def take(self, record: MetadataRecord) -> None:
        """Applies a record; those that an image does not hold change nothing."""
        change = self._changes.get(record.name)
        if change is not None:
            change(record.fields)

    def take_control(self, record: Record) -> bool:
        """Applies a control record; whether it is the footer of a snapshot."""
        control_type = parse_control_key(record.key)
        if control_type is ControlType.KRAFT_VOTERS:
            fields = parse_kraft_control_value(control_type, record.value).fields
            self.voters = len(fields["voters"])
        return control_type is ControlType.SNAPSHOT_FOOTER

    def drop_open_transaction(self) -> None:
        """Takes back what a transaction did that has no end."""
        if self._before is not None:
            self._abort()

    def _begin(self) -> None:
        if self._before is not None:
            raise CorruptError("a metadata transaction begins inside another")
        self._before = self._state.copy()

    def _end(self) -> None:
        if self._before is None:
            raise CorruptError("a metadata transaction ends that never began")
        self._before = None

    def _abort(self) -> None:
        if self._before is None:
            raise CorruptError("a metadata transaction is aborted that never began")
        self._state, self._before = self._before, None

    def _topic(self, fields: Mapping[str, Any]) -> None:
        self._state.topic_ids[fields["name"]] = fields["topicId"]
        self._state.partitions[fields["topicId"]] = {}

    def _remove_topic(self, fields: Mapping[str, Any]) -> None:
        topic_id = fields["topicId"]
        name = next((n for n, each in self._state.topic_ids.items() if each == topic_id), None)
        if name is None:
            raise CorruptError(f"a topic is removed that is not there: {topic_id}")
        del self._state.topic_ids[name]
        del self._state.partitions[topic_id]
        self._state.configs.pop((ConfigResource.TOPIC, name), None)

    def _partition(self, fields: Mapping[str, Any]) -> None:
        self._partitions_of(fields)[fields["partitionId"]] = PartitionImage(
            replicas=tuple(fields["replicas"]),
            isr=tuple(fields["isr"]),
            leader=fields["leader"],
            leader_epoch=fields["leaderEpoch"],
            partition_epoch=fields["partitionEpoch"],
            directories=tuple(fields["directories"]),
        )

    def _partition_change(self, fields: Mapping[str, Any]) -> None:
        partitions = self._partitions_of(fields)
        old = partitions.get(fields["partitionId"])
        if old is None:
            raise CorruptError(
                f"partition {fields['partitionId']} of topic {fields['topicId']} changes, "
                "and is not there"
            )
        has_election = fields["leader"] != _UNCHANGED_LEADER
        partitions[fields["partitionId"]] = PartitionImage(
            replicas=_changed(fields["replicas"], old.replicas),
            isr=_changed(fields["isr"], old.isr),
            leader=fields["leader"] if has_election else old.leader,
            leader_epoch=old.leader_epoch + has_election,
            partition_epoch=old.partition_epoch + 1,
            directories=_changed(fields["directories"], old.directories),
        )

    def _partitions_of(self, fields: Mapping[str, Any]) -> dict[int, PartitionImage]:
        partitions = self._state.partitions.get(fields["topicId"])
        if partitions is None:
            raise CorruptError(
                f"partition {fields['partitionId']} of topic {fields['topicId']}, "
                "and there is no such topic"
            )
        return partitions

    def _config(self, fields: Mapping[str, Any]) -> None:
        resource = (fields["resourceType"], fields["resourceName"])
        settings = self._state.configs.setdefault(resource, {})
        if fields["value"] is None:
            settings.pop(fields["name"], None)
        else:
            settings[fields["name"]] = fields["value"]
        if not settings:
            del self._state.configs[resource]

    def _feature_level(self, fields: Mapping[str, Any]) -> None:
        if fields["featureLevel"]:
            self._state.features[fields["name"]] = fields["featureLevel"]
        else:
            self._state.features.pop(fields["name"], None)

    def _register_broker(self, fields: Mapping[str, Any]) -> None:
        self._state.brokers[fields["brokerId"]] = BrokerImage(
            broker_id=fields["brokerId"],
            epoch=fields["brokerEpoch"],
            rack=fields["rack"],
            fenced=fields["fenced"],
            in_controlled_shutdown=fields["inControlledShutdown"],
            log_dirs=tuple(fields["logDirs"]),
            endpoints=tuple(
                (point["name"], point["host"], point["port"]) for point in fields["endPoints"]
            ),
        )

    def _unregister_broker(self, fields: Mapping[str, Any]) -> None:
        self._broker(fields["brokerId"], fields["brokerEpoch"])
        del self._state.brokers[fields["brokerId"]]

    def _change_registration(self, fields: Mapping[str, Any]) -> None:
        broker = self._broker(fields["brokerId"], fields["brokerEpoch"])
        fenced = {_FENCE: True, _UNFENCE: False}.get(fields["fenced"], broker.fenced)
        self._state.brokers[broker.broker_id] = replace(
            broker,
            fenced=fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown
            or fields["inControlledShutdown"] == 1,
            log_dirs=tuple(fields["logDirs"]) or broker.log_dirs,
        )

    def _fence(self, fields: Mapping[str, Any], *, fenced: bool) -> None:
        broker = self._broker(fields["id"], fields["epoch"])
        self._state.brokers[broker.broker_id] = replace(broker, fenced=fenced)

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self._state.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise CorruptError(f"broker {broker_id} of epoch {epoch} is not registered")
        return broker


class _State:
    """The parts of an image, to be changed; `copy` shares nothing that changes."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, str] = {}
        self.partitions: dict[str, dict[int, PartitionImage]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.features: dict[str, int] = {}

    def copy(self) -> _State:
        """A state of its own with the same content."""
        other = _State()
        other.topic_ids = dict(self.topic_ids)
        other.partitions = {each: dict(these) for each, these in self.partitions.items()}
        other.configs = {resource: dict(these) for resource, these in self.configs.items()}
        other.brokers = dict(self.brokers)
        other.features = dict(self.features)
        return other


def _changed(new: Sequence[_Item] | None, old: tuple[_Item, ...]) -> tuple[_Item, ...]:
    return old if new is None else tuple(new)
