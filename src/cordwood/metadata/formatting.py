"""The files that `kafka-storage format` writes into log directories.

Up to metadata.version 4.3-IV0 those of Kafka 4.3: the first records of a cluster are in the
`bootstrap.checkpoint` of each directory, and the voters in the first snapshot of the metadata log.
From 4.4-IV0 on those of Kafka 4.4, which writes both into that snapshot, of controllers only.

Source: org.apache.kafka.metadata.storage.Formatter, BootstrapDirectory, DynamicVoters,
org.apache.kafka.metadata.bootstrap.BootstrapMetadata; KIP-853.
"""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cordwood.format.clean_shutdown import UNKNOWN_BROKER_EPOCH, parse_clean_shutdown
from cordwood.format.control_record import ControlType
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLUSTER_METADATA_DIR,
    META_PROPERTIES,
    metadata_snapshot_name,
)
from cordwood.format.meta_properties import (
    MetaProperties,
    build_meta_properties,
    parse_meta_properties,
)
from cordwood.metadata.feature_levels import DEFAULT_FEATURES, METADATA_VERSION
from cordwood.metadata.image import Endpoint
from cordwood.metadata.records import ApiRecord, feature_record
from cordwood.metadata.replay import read_snapshot_records
from cordwood.metadata.snapshot_file import ControlRecord, snapshot_batches, write_snapshot
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.rng import Rng, SystemRng
from cordwood.model.uuids import ZERO_UUID, fresh_uuid, uuid_text
from cordwood.storage.filesystem import OS, FileSystem

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
_DYNAMIC_VOTERS = 1
_RESERVED_IDS = 100
#: The level of metadata.version from which on Kafka 4.4's files are written.
_FIRST_OF_4_4 = 31


class Voters(enum.Enum):
    """The voters of a quorum, as far as a node knows them when it is formatted."""

    STATIC = "named by controller.quorum.voters"
    SOLE = "this node, the first of a dynamic quorum"
    UNKNOWN = "of a dynamic quorum, which this node has yet to join"


def format_directories(
    log_dirs: Sequence[Path],
    *,
    node_id: int,
    cluster_id: str,
    clock: Clock,
    controller_endpoints: Sequence[Endpoint],
    features: Mapping[str, int] = DEFAULT_FEATURES,
    metadata_dir: Path | None = None,
    voters: Voters = Voters.SOLE,
    is_controller: bool = True,
    on_format: Callable[[Path], object] = lambda _: None,
    rng: Rng | None = None,
    fs: FileSystem = OS,
) -> list[uuid.UUID]:
    """Formats directories for a node that is broker and the only controller; returns their ids.

    Directories that are already formatted do not change, so a directory can be added later.
    `metadata_dir`, or else the first directory, gets the metadata log. `controller_endpoints` are
    the endpoints of the node's controller listeners, on which a real Kafka listens if it is started
    on the directories; they are written with the sole voter. A node without `is_controller` gets no
    first records by Kafka 4.4. `on_format` is called before each directory that is formatted.

    Raises:
        ConfigError: a directory belongs to another node or cluster, has a reserved id, or the id
            of another directory.
        CorruptError: a directory's `meta.properties` cannot be read.
        NoSpaceError, OSError: the disk returned an error.
    """
    rng = rng or SystemRng()
    ids: list[uuid.UUID] = []
    new: list[Path] = []
    for log_dir in log_dirs:
        found = read_directory(log_dir, fs=fs)
        if found is None:
            new.append(log_dir)
            ids.append(fresh_uuid(rng))
        else:
            require_own(log_dir, found, node_id=node_id, cluster_id=cluster_id)
            ids.append(_directory_id(found, log_dir))
    _require_distinct(log_dirs, ids)
    for log_dir, directory_id in zip(log_dirs, ids, strict=True):
        if log_dir not in new:
            continue
        on_format(log_dir)
        fs.make_directory_durably(log_dir)
        records = [feature_record(name, level) for name, level in features.items() if level]
        is_bootstrap_apart = features.get(METADATA_VERSION, 0) < _FIRST_OF_4_4
        if log_dir == (metadata_dir or log_dirs[0]):
            voter = voter_fields(node_id, directory_id, controller_endpoints)
            controls = _kraft_controls(voters, voter)
            if voters is Voters.SOLE if is_bootstrap_apart else is_controller:
                _write_first_snapshot(
                    log_dir, controls, [] if is_bootstrap_apart else records, clock.now_ms(), fs
                )
        if is_bootstrap_apart:
            _write_bootstrap(log_dir, records, clock.now_ms(), fs)
        properties = MetaProperties(
            version=1, cluster_id=cluster_id, node_id=node_id, directory_id=directory_id
        )
        # Last, because it marks the directory as formatted.
        fs.replace_durably(log_dir / META_PROPERTIES, build_meta_properties(properties))
    return ids


def read_directory(log_dir: Path, *, fs: FileSystem = OS) -> MetaProperties | None:
    """The `meta.properties` of a log directory; None if it is not formatted.

    Raises:
        CorruptError: the file is malformed; the text names it and gives a remedy.
    """
    path = log_dir / META_PROPERTIES
    try:
        return parse_meta_properties(fs.read_bytes(path))
    except FileNotFoundError:
        return None
    except CorruptError as error:
        reason = (
            f"{error.reason.rstrip('.')}. Restore the file from a copy, or give another directory"
        )
        raise type(error)(reason, path=str(path)) from error


def require_own(
    log_dir: Path, properties: MetaProperties, *, node_id: int, cluster_id: str
) -> None:
    """Refuses the directory of another node or cluster.

    Raises:
        ConfigError: it is.
    """
    if properties.cluster_id != cluster_id:
        raise ConfigError(
            f"Invalid cluster.id in: {log_dir}/{META_PROPERTIES}. Expected {cluster_id}, but read "
            f"{properties.cluster_id}"
        )
    if properties.node_id != node_id:
        raise ConfigError(
            f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in "
            f"{log_dir}/{META_PROPERTIES}. If you moved your data, make sure your configured "
            "node id matches. If you intend to create a new node, you should remove all data in "
            "your data directories."
        )


def read_previous_broker_epoch(log_dirs: Iterable[Path], *, fs: FileSystem = OS) -> int:
    """The broker epoch at the last stop if that was clean in all directories; else -1.

    To be read before the logs are loaded, which takes the files away.

    Source: CleanShutdownFileHandler, LogManager.readBrokerEpochFromCleanShutdownFiles; KIP-966.
    """
    epochs = set()
    for log_dir in log_dirs:
        try:
            epochs.add(parse_clean_shutdown(fs.read_bytes(log_dir / CLEAN_SHUTDOWN)))
        except (OSError, CorruptError):
            return UNKNOWN_BROKER_EPOCH
    return epochs.pop() if len(epochs) == 1 else UNKNOWN_BROKER_EPOCH


def read_bootstrap_records(log_dir: Path, *, fs: FileSystem = OS) -> list[ApiRecord]:
    """The records that an empty metadata log begins with.

    Those in its first snapshot, as Kafka 4.4 formats it, or else in `bootstrap.checkpoint`, or else
    the default levels.

    Raises:
        CorruptError: a file is malformed.
        UnsupportedVersionError: a record is of a kind or version that Kafka 4.4 does not know.

    Source: BootstrapMetadata.fromDirectory, QuorumController.handleLoadBootstrap.
    """
    for path in (_first_snapshot(log_dir), log_dir / BOOTSTRAP_CHECKPOINT):
        try:
            data = fs.read_bytes(path)
        except FileNotFoundError:
            continue
        if found := read_snapshot_records(path, data):
            return [ApiRecord(each.name, each.version, each.fields) for each in found]
    return [feature_record(name, level) for name, level in DEFAULT_FEATURES.items()]


def build_quorum_state(
    *,
    leader_id: int,
    leader_epoch: int,
    kraft_version: int,
    voters: Iterable[int],
    voted_id: int = -1,
) -> bytes:
    """The bytes of `quorum-state`: with the ids of its voters where these are static.

    Source: org.apache.kafka.raft.FileQuorumStateStore.
    """
    state: dict[str, Any]
    if kraft_version == 0:
        state = {
            "clusterId": "",
            "leaderId": leader_id,
            "leaderEpoch": leader_epoch,
            "votedId": voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    else:
        state = {
            "leaderId": leader_id,
            "leaderEpoch": leader_epoch,
            "votedId": voted_id,
            "votedDirectoryId": uuid_text(ZERO_UUID),
            "data_version": 1,
        }
    return json.dumps(state, separators=(",", ":")).encode()


def _directory_id(properties: MetaProperties, log_dir: Path) -> uuid.UUID:
    if properties.directory_id is None:
        raise ConfigError(f"{log_dir}/{META_PROPERTIES} has no directory.id")
    return properties.directory_id


def _require_distinct(log_dirs: Sequence[Path], ids: Sequence[uuid.UUID]) -> None:
    """Refuses ids with a meaning of their own, and ids that two directories have.

    Raises:
        ConfigError: a directory has one.

    Source: MetaPropertiesEnsemble.verify, DirectoryId.reserved.
    """
    first: dict[uuid.UUID, Path] = {}
    for log_dir, directory_id in zip(log_dirs, ids, strict=True):
        if directory_id.int < _RESERVED_IDS:
            raise ConfigError(
                f"Invalid reserved directory ID {uuid_text(directory_id)} found in {log_dir}"
            )
        other = first.setdefault(directory_id, log_dir)
        if other != log_dir:
            raise ConfigError(
                f"Duplicate directory ID {uuid_text(directory_id)} found. It was the ID of "
                f"{other}, but also of {log_dir}"
            )


def voter_fields(
    node_id: int, directory_id: uuid.UUID, endpoints: Iterable[Endpoint]
) -> dict[str, Any]:
    """A voter, as a VotersRecord has it; its endpoints are those of its controller listeners."""
    return {
        "voterId": node_id,
        "voterDirectoryId": directory_id,
        "endpoints": [
            {"name": each.name, "host": each.host, "port": each.port} for each in endpoints
        ],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }


def _kraft_controls(voters: Voters, voter: dict[str, Any]) -> list[ControlRecord]:
    controls: list[ControlRecord] = []
    if voters is not Voters.STATIC:
        controls.append((ControlType.KRAFT_VERSION, {"kRaftVersion": _DYNAMIC_VOTERS}))
    if voters is Voters.SOLE:
        controls.append((ControlType.KRAFT_VOTERS, {"voters": [voter]}))
    return controls


def _first_snapshot(log_dir: Path) -> Path:
    return log_dir / CLUSTER_METADATA_DIR / metadata_snapshot_name(0, 0)


def _write_first_snapshot(
    log_dir: Path,
    controls: Sequence[ControlRecord],
    records: Sequence[ApiRecord],
    now_ms: int,
    fs: FileSystem,
) -> None:
    directory = log_dir / CLUSTER_METADATA_DIR
    fs.make_directory(directory)
    batches = snapshot_batches(
        records, epoch=0, now_ms=now_ms, last_contained_ms=now_ms, controls=controls
    )
    write_snapshot(directory, 0, 0, batches, fs)


def _write_bootstrap(
    log_dir: Path, records: Sequence[ApiRecord], now_ms: int, fs: FileSystem
) -> None:
    batches = snapshot_batches(records, epoch=0, now_ms=now_ms, last_contained_ms=0)
    fs.replace_durably(log_dir / BOOTSTRAP_CHECKPOINT, b"".join(batches))
