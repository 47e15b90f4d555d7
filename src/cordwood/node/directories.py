"""The log directories of a node: which can be used, their ids, and their formatting.

Source: org.apache.kafka.metadata.properties.MetaPropertiesEnsemble,
kafka.tools.StorageTool (4.3.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from cordwood.configs.server_properties import BrokerSettings
from cordwood.format.file_names import LOCK, RUNTIME_FILE
from cordwood.metadata.formatting import Voters, format_directories, read_directory
from cordwood.metadata.image import Endpoint
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.rng import SystemRng
from cordwood.model.uuids import fresh_uuid, uuid_text
from cordwood.storage.failures import FailureChannel
from cordwood.storage.filesystem import FileSystem

_NAMED_MAX: Final = 3
_CONTROLLER_PORT: Final = 9093
_ADVICE: Final = (
    "Give a directory that this user can create, read and write, with --log-dir or log.dirs."
)


def usable_directories(
    metadata_dir: Path, log_dirs: Sequence[Path], failures: FailureChannel, *, fs: FileSystem
) -> list[Path]:
    """The directories that can be read, that of the metadata log first; others are offline.

    Raises:
        StorageError: the metadata log's disk returns an error.
        CorruptError: the metadata log's `meta.properties` is malformed, or that of another
            directory while the metadata log's is not formatted.

    Source: org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.
    """
    usable = []
    is_formatted = False  # the metadata log's directory, which comes first
    for each in dict.fromkeys([metadata_dir, *log_dirs]):
        try:
            found = read_directory(each, fs=fs)
        except CorruptError as error:
            if not is_formatted:
                raise
            failures.fail(each, f"Error while reading {error}")
        except OSError as error:
            reason = f"Error while reading meta.properties: {error.strerror}"
            if each == metadata_dir:
                raise StorageError(f"Log directory {each}: {reason}. {_ADVICE}") from error
            failures.fail(each, reason)
        else:
            usable.append(each)
            is_formatted = is_formatted or (each == metadata_dir and found is not None)
    return usable


def format_node(
    log_dirs: Sequence[Path], settings: BrokerSettings, *, clock: Clock, fs: FileSystem
) -> tuple[str, dict[Path, UUID]]:
    """Formats directories that hold nothing; the cluster's id, and those of the directories.

    Raises:
        ConfigError: a directory is somebody else's, or the node's cluster is not known.
        StorageError: the disk returned an error.
    """
    found = [properties for each in log_dirs if (properties := read_directory(each, fs=fs))]
    if not found and not settings.is_controller:
        raise ConfigError(
            f"No `meta.properties` found in {log_dirs[0]} (have you run `kafka-storage.sh` to "
            "format the directory?). Format it with the id of the cluster that the broker is "
            "to join"
        )
    if not found:
        for each in log_dirs:
            _require_empty(each, fs)
    cluster_id = (found[0].cluster_id if found else None) or uuid_text(fresh_uuid(SystemRng()))
    try:
        ids = format_directories(
            log_dirs,
            node_id=settings.node_id,
            cluster_id=cluster_id,
            clock=clock,
            controller_endpoints=_controller_endpoints(settings),
            # Where a directory is formatted already, the voters are known there.
            voters=Voters.STATIC if found else Voters.SOLE,
            fs=fs,
        )
    except OSError as error:
        where = error.filename or ", ".join(str(each) for each in log_dirs)
        raise StorageError(
            f"Log directory {where}: Error while formatting: {error.strerror}. {_ADVICE}"
        ) from error
    return cluster_id, dict(zip(log_dirs, ids, strict=True))


def _controller_endpoints(settings: BrokerSettings) -> list[Endpoint]:
    listeners = settings.advertised_controller_listeners
    if not listeners:  # never served here; a real Kafka started on the directory has one
        return [Endpoint(name="CONTROLLER", host="localhost", port=_CONTROLLER_PORT)]
    return [
        Endpoint(name=each.name, host=each.host or "localhost", port=each.port)
        for each in listeners
    ]


def _require_empty(log_dir: Path, fs: FileSystem) -> None:
    """Refuses to format a directory that holds logs already.

    Raises:
        ConfigError: it does.
    """
    held = [entry.name for entry in fs.entries_in(log_dir)] if fs.exists(log_dir) else []
    kept = [name for name in held if name not in {LOCK, RUNTIME_FILE, "lost+found"}]
    if kept:
        paths = ", ".join(str(log_dir / name) for name in sorted(kept)[:_NAMED_MAX])
        raise ConfigError(
            f"{log_dir} is not a log directory of Kafka's: it has no meta.properties, and is not "
            f"empty ({len(kept)} entries, such as {paths}). Give one that is empty or "
            "not there yet, or format this one with kafka-storage."
        )
