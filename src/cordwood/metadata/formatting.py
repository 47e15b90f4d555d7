"""The files that `kafka-storage format --standalone` writes into log directories.

Source: org.apache.kafka.metadata.storage.Formatter, BootstrapDirectory, DynamicVoters; KIP-853.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cordwood.format.clean_shutdown import UNKNOWN_BROKER_EPOCH, parse_clean_shutdown
from cordwood.format.file_names import CLEAN_SHUTDOWN, CLUSTER_METADATA_DIR, META_PROPERTIES
from cordwood.format.meta_properties import (
    MetaProperties,
    build_meta_properties,
    parse_meta_properties,
)
from cordwood.metadata.feature_levels import DEFAULT_FEATURES
from cordwood.metadata.image import Endpoint
from cordwood.metadata.records import ApiRecord, feature_record
from cordwood.metadata.replay import read_snapshot_records
from cordwood.metadata.snapshot_file import kraft_controls, snapshot_batches, write_snapshot
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.rng import Rng, SystemRng
from cordwood.model.uuids import ZERO_UUID, fresh_uuid, uuid_text
from cordwood.storage.filesystem import OS, FileSystem

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
_DYNAMIC_VOTERS = 1
_RESERVED_IDS = 100


def format_directories(
    log_dirs: Sequence[Path],
    *,
    node_id: int,
    cluster_id: str,
    clock: Clock,
    controller_endpoints: Sequence[Endpoint],
    features: Mapping[str, int] = DEFAULT_FEATURES,
    metadata_dir: Path | None = None,
    has_dynamic_voters: bool = True,
    on_format: Callable[[Path], object] = lambda _: None,
    rng: Rng | None = None,
    fs: FileSystem = OS,
) -> list[uuid.UUID]:
    """Formats directories for a node that is broker and the only controller; returns their ids.

    Directories that are already formatted do not change, so a directory can be added later.
    `metadata_dir`, or else the first directory, gets the metadata log. `controller_endpoints` are
    the endpoints of the node's controller listeners, on which a real Kafka listens if it is started
    on the directories. Without `has_dynamic_voters` no voters are written: controller.quorum.voters
    names them, or another node has them. `on_format` is called before each directory that is
    formatted.

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
        if has_dynamic_voters and log_dir == (metadata_dir or log_dirs[0]):
            voter = _voter(node_id, directory_id, controller_endpoints)
            _write_voters(log_dir / CLUSTER_METADATA_DIR, voter, clock.now_ms(), fs)
        _write_bootstrap(log_dir, features, clock.now_ms(), fs)
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

    The records in `bootstrap.checkpoint`, or else Kafka 4.3's default feature levels.

    Raises:
        CorruptError: the file is malformed.

    Source: BootstrapDirectory.read.
    """
    path = log_dir / BOOTSTRAP_CHECKPOINT
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return [feature_record(name, level) for name, level in DEFAULT_FEATURES.items()]
    found = read_snapshot_records(path, data)
    return [ApiRecord(each.name, each.version, each.fields) for each in found]


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


def _voter(node_id: int, directory_id: uuid.UUID, endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    return {
        "voterId": node_id,
        "voterDirectoryId": directory_id,
        "endpoints": [
            {"name": each.name, "host": each.host, "port": each.port} for each in endpoints
        ],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }


def _write_voters(directory: Path, voter: dict[str, Any], now_ms: int, fs: FileSystem) -> None:
    fs.make_directory(directory)
    controls = kraft_controls(_DYNAMIC_VOTERS, [voter])
    batches = snapshot_batches(
        [], epoch=0, now_ms=now_ms, last_contained_ms=now_ms, controls=controls
    )
    write_snapshot(directory, 0, 0, batches, fs)


def _write_bootstrap(
    log_dir: Path, features: Mapping[str, int], now_ms: int, fs: FileSystem
) -> None:
    records = [feature_record(name, level) for name, level in features.items() if level]
    batches = snapshot_batches(records, epoch=0, now_ms=now_ms, last_contained_ms=0)
    fs.replace_durably(log_dir / BOOTSTRAP_CHECKPOINT, b"".join(batches))
