"""Looks at the topic that a DataFrame is to be written to: as the log directory has it, or new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import CLUSTER_METADATA_DIR
from cordwood.frames.writing.attempt import AttemptPlan
from cordwood.frames.writing.creation import (
    Place,
    place_of_records,
    require_records_bounded,
)
from cordwood.frames.writing.options import WriteOptions
from cordwood.frames.writing.unfinished import NAME, undo
from cordwood.metadata.image import MetadataImage, TopicImage
from cordwood.metadata.replay import read_metadata_image
from cordwood.model.clock import Clock
from cordwood.model.errors import DirectoryInUseError, TopicWriteError
from cordwood.model.rng import Rng
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from cordwood.model.uuids import fresh_uuid
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.filesystem import OS, DirectoryLock, FileSystem
from cordwood.storage.log_directory import LogDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHere:
    """A topic and its log directory.

    `place` is where the records of a new topic go, None for a topic that is there. `epochs` are the
    leader epochs of the partitions by the metadata log, none where that is not known.
    """

    directory: LogDirectory
    topic_id: UUID | None
    partitions: int
    config: LogConfig
    place: Place | None
    epochs: Mapping[int, int]
    metadata_version: int
    producer_expiration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """A job: what was asked for, and what its attempts do."""

    options: WriteOptions
    attempts: AttemptPlan
    is_new: bool
    topic_id: UUID | None


def plan_write(options: WriteOptions, *, clock: Clock, rng: Rng, fs: FileSystem = OS) -> WritePlan:
    """Plans a job; what a driver that was killed has left in place is taken back.

    Raises:
        TopicWriteError: the topic cannot be written to; the text says what to do.
        DirectoryInUseError: a broker has the log directory open.
        ConfigError: a setting cannot be used.
        CorruptError: the metadata log cannot be read.
        OSError: the directory cannot be read.
    """
    if DirectoryLock.holder(options.log_dir) is not None:
        raise DirectoryInUseError(
            f"{options.log_dir}: a broker has the directory open. Stop it, or produce to it"
        )
    if fs.exists(options.log_dir / NAME):
        lock = fs.lock(options.log_dir)
        try:
            undo(options.log_dir, fs=fs)
        finally:
            lock.release()
    here = find_topic(options, fs=fs)
    config = here.config
    return WritePlan(
        options=options,
        attempts=AttemptPlan(
            job=fresh_uuid(rng).hex[:16],
            log_dir=options.log_dir,
            topic=options.topic,
            partitions=here.partitions,
            config=replace(config, preallocate=False),
            batch_bytes=_batch_bytes(options, config),
            now_ms=clock.now_ms(),
        ),
        is_new=here.place is not None,
        topic_id=here.topic_id,
    )


def _batch_bytes(options: WriteOptions, config: LogConfig) -> int:
    """The bytes of a batch before compression, which may make it larger."""
    most = min(config.max_message_bytes, config.segment_bytes)
    return max(1, min(options.batch_bytes, most - most // 64 - 128))


def find_topic(options: WriteOptions, *, fs: FileSystem = OS) -> TopicHere:
    """The topic as it is now, or would be made.

    Raises:
        TopicWriteError, ConfigError, CorruptError, OSError: as `plan_write`.
    """
    topic, log_dir = options.topic, options.log_dir
    if topic in INTERNAL_TOPICS or topic == CLUSTER_METADATA_TOPIC:
        raise TopicWriteError(f"{topic} is Kafka's own: no DataFrame can be written to it")
    directory = LogDirectory(log_dir, fs=fs, reads_id=True)
    settings = read_settings(
        SettingOptions(
            log_dirs=[log_dir],
            set_options=[f"{topic}:{name}={value}" for name, value in options.settings.items()],
            defaults=True,
        )
    )
    settings.require_known()
    resolved = settings.resolve(topic)
    assert resolved is not None, "with defaults every topic has settings"
    image = _image_of(log_dir, fs)
    recorded = None if image is None else image.topics.get(topic)
    numbers = _directories_of(topic, directory)
    place = None
    if recorded is None and not numbers:
        place = place_of_records(log_dir, directory.meta, image, fs=fs)
        partitions = options.partitions or settings.broker.num_partitions
        require_records_bounded(partitions, options.settings)
    else:
        partitions = _require_appendable(options, directory, image, recorded, numbers)
    return TopicHere(
        directory=directory,
        topic_id=None if recorded is None else recorded.topic_id,
        partitions=partitions,
        config=resolved.config,
        place=place,
        epochs=_epochs_of(recorded),
        metadata_version=settings.metadata_version,
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
    )


def _image_of(log_dir: Path, fs: FileSystem) -> MetadataImage | None:
    directory = log_dir / CLUSTER_METADATA_DIR
    if not fs.exists(directory):
        return None
    return read_metadata_image(directory, read_bytes=fs.read_bytes)


def _directories_of(topic: str, directory: LogDirectory) -> list[int]:
    if not directory.fs.exists(directory.path):
        return []
    names = directory.parse_names(directory.fs.entries_in(directory.path))
    return sorted(
        partition.partition
        for partition, suffix in names.values()
        if partition.topic == topic and not suffix
    )


def _epochs_of(recorded: TopicImage | None) -> dict[int, int]:
    if recorded is None:
        return {}
    return {number: each.leader_epoch for number, each in recorded.partitions.items()}


def _require_appendable(
    options: WriteOptions,
    directory: LogDirectory,
    image: MetadataImage | None,
    recorded: TopicImage | None,
    numbers: list[int],
) -> int:
    """The number of partitions of a topic that is there.

    Raises:
        TopicWriteError: it cannot be appended to.
    """
    topic, log_dir = options.topic, options.log_dir
    if options.must_be_new:
        raise TopicWriteError(f"topic {topic} is there already: {log_dir}")
    if directory.meta is not None and image is None:
        raise TopicWriteError(
            f"{log_dir} has no {CLUSTER_METADATA_DIR}, so that nobody can say here which replicas "
            f"topic {topic} has. Give the broker's directory that has it, or produce to the broker"
        )
    if image is not None and recorded is None:
        raise TopicWriteError(
            f"{log_dir} has directories of topic {topic}, which is not in the metadata log: remove "
            "them, or have a broker start, which marks them stray"
        )
    count = numbers[-1] + 1 if recorded is None else len(recorded.partitions)
    if numbers != list(range(count)):
        missing = sorted({*range(count)} - {*numbers})
        raise TopicWriteError(
            f"{log_dir} has no directory of {topic}-{missing[0]}: all partitions of a topic that "
            "is written to have to be in one log directory"
        )
    if options.partitions not in {None, count}:
        raise TopicWriteError(
            f"topic {topic} has {count} partitions, not the {options.partitions} of the option"
        )
    for number, each in {} if recorded is None else recorded.partitions.items():
        if len(each.replicas) > 1:
            raise TopicWriteError(
                f"{topic}-{number} has replicas on brokers {', '.join(map(str, each.replicas))}, "
                "which would not have what is written here. Produce to the cluster instead"
            )
    if directory.meta is not None and not directory.has_clean_shutdown_file():
        raise TopicWriteError(
            f"the broker of {log_dir} has not stopped cleanly. Start it, stop it, and write again"
        )
    return count
