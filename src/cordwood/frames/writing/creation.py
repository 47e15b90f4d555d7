"""A topic made while its broker is stopped: the records that a controller would have written.

A node that is its own quorum gets them in its metadata log, in an epoch of their own. One that was
formatted and never started gets them in `bootstrap.checkpoint`, whose records are the first of its
metadata log. The node leads the partitions, so that it is known as their last leader, which the
controller elects again when the broker is there, as after any stop.

Source: org.apache.kafka.controller.ReplicationControlManager.createTopic,
ActivationRecordsGenerator.recordsForEmptyLog.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from cordwood.configs.resource import ConfigResource
from cordwood.format.file_names import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA_DIR,
    META_PROPERTIES,
    is_log_file,
)
from cordwood.format.meta_properties import MetaProperties
from cordwood.metadata.feature_levels import METADATA_VERSION
from cordwood.metadata.formatting import read_bootstrap_records
from cordwood.metadata.image import MetadataImage, PartitionImage
from cordwood.metadata.records import (
    ApiRecord,
    Records,
    config_record,
    partition_record,
    topic_record,
)
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_file import snapshot_batches
from cordwood.metadata.sole_voter_log import BATCH_RECORDS_MAX, SoleVoterLog
from cordwood.model.clock import Clock
from cordwood.model.errors import TopicWriteError
from cordwood.storage.failures import RaisedFailures
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.segment.resources import ResourceCache

_REMEDY = (
    "Start the broker, create the topic, stop the broker, and write again: then the topic's "
    "partitions are appended to"
)


class Place(enum.Enum):
    """The place of the records of a new topic."""

    METADATA_LOG = "the metadata log of a node that is its own quorum"
    BOOTSTRAP = "the first records of a node that has never been started"
    NOWHERE = "no node's directory: the topic's own directories are all there is"


def place_of_records(
    log_dir: Path, meta: MetaProperties | None, image: MetadataImage | None, *, fs: FileSystem = OS
) -> Place:
    """The place of the records of a topic that is made below a log directory.

    Raises:
        TopicWriteError: the directory is that of a node that does not decide that by itself.
        OSError: it cannot be read.
    """
    if meta is None:
        return Place.NOWHERE
    if meta.directory_id is None or meta.node_id is None:
        raise TopicWriteError(
            f"{log_dir / META_PROPERTIES} has no node.id or no directory.id. {_REMEDY}"
        )
    if _has_records(log_dir / CLUSTER_METADATA_DIR, fs):
        assert image is not None, "a metadata log has been read"
        if image.may_have_uncommitted_suffix or meta.node_id not in image.brokers:
            raise TopicWriteError(
                f"{log_dir} is not the directory of a node that is both a broker and the only "
                f"controller, so that no topic can be made here. {_REMEDY}"
            )
        return Place.METADATA_LOG
    if fs.exists(log_dir / BOOTSTRAP_CHECKPOINT):
        return Place.BOOTSTRAP
    raise TopicWriteError(
        f"{log_dir} has neither the cluster's metadata log nor a {BOOTSTRAP_CHECKPOINT}, so that "
        f"no topic can be made here. {_REMEDY}"
    )


def _has_records(directory: Path, fs: FileSystem) -> bool:
    if not fs.exists(directory):
        return False
    logs = [name for name in fs.names_in(directory) if is_log_file(name)]
    return any(fs.facts_of(directory / name).size_bytes for name in logs)


def require_records_bounded(partitions: int, settings: Mapping[str, str]) -> None:
    """Checks that the records of a topic fit into one batch.

    Raises:
        TopicWriteError: they do not.
    """
    if 1 + len(settings) + partitions > BATCH_RECORDS_MAX:
        raise TopicWriteError(
            f"a topic of {partitions} partitions cannot be made at once: its records are more than "
            f"{BATCH_RECORDS_MAX}"
        )


def record_topic(
    log_dir: Path,
    meta: MetaProperties | None,
    place: Place,
    *,
    topic: str,
    topic_id: UUID,
    partitions: int,
    settings: Mapping[str, str],
    clock: Clock,
    fs: FileSystem = OS,
) -> None:
    """Writes the records of a topic, durably; the log directory is locked.

    Raises:
        CorruptError, UnsupportedVersionError: the metadata log cannot be read.
        ConfigError: the quorum has other voters.
        StorageError, OSError: the disk refused.
    """
    if place is Place.NOWHERE:
        return
    assert meta is not None, "the directory is a node's"
    node_id, directory_id = meta.node_id, meta.directory_id
    assert node_id is not None, "it was looked at"
    assert directory_id is not None, "it was looked at"
    partition = PartitionImage(
        replicas=(node_id,),
        isr=(node_id,),
        leader=node_id,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory_id,),
    )

    def records(metadata_version: int) -> Records:
        return [
            topic_record(topic, topic_id),
            *(config_record(ConfigResource.TOPIC, topic, *each) for each in settings.items()),
            *(
                partition_record(topic_id, number, partition, metadata_version)
                for number in range(partitions)
            ),
        ]

    if place is Place.BOOTSTRAP:
        first = read_bootstrap_records(log_dir, fs=fs)
        batches = snapshot_batches(
            [*first, *records(_level_of(first))],
            epoch=0,
            now_ms=clock.now_ms(),
            last_contained_ms=0,
        )
        fs.replace_durably(log_dir / BOOTSTRAP_CHECKPOINT, b"".join(batches))
        return
    log = SoleVoterLog(
        log_dir,
        node_id=node_id,
        directory_id=directory_id,
        context=LogContext(
            clock=clock, resources=ResourceCache(fs), failures=RaisedFailures(clock)
        ),
        settings=MetadataLogSettings(),
    )
    try:
        log.begin_epoch()
        log.append(
            records(log.replay.image().metadata_version),
            timestamp_ms=clock.now_ms(),
        )
        log.close()
    except BaseException:
        log.abandon()
        raise


def _level_of(records: list[ApiRecord]) -> int:
    levels = [
        each.fields["featureLevel"]
        for each in records
        if each.name == "FeatureLevelRecord" and each.fields["name"] == METADATA_VERSION
    ]
    return levels[-1] if levels else 0
