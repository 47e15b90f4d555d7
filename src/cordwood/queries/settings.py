"""Reads the places where settings come from, and gives each topic's settings in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cordwood.cleanup.plan.request import Resolved
from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.config_file import ConfigFile, merge_set_options, parse_config_file
from cordwood.configs.levels import Level
from cordwood.configs.names import is_misnamed_broker_setting
from cordwood.configs.sources import Sources, resolve_broker, resolve_topic
from cordwood.format.file_names import CLUSTER_METADATA_DIR, META_PROPERTIES
from cordwood.format.meta_properties import parse_meta_properties
from cordwood.format.properties import parse_properties
from cordwood.metadata.feature_levels import unknown_levels
from cordwood.metadata.replay import MetadataImage, read_metadata_image
from cordwood.model.errors import ConfigError, CorruptError, UnsupportedVersionError
from cordwood.model.topic_names import ALL_TOPICS
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOptions:
    """The options of the command line that are sources of settings."""

    log_dirs: Sequence[Path]
    set_options: Sequence[str] = ()
    config_file: Path | None = None
    server_properties: Path | None = None
    metadata_dir: Path | None = None
    defaults: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings by topic, and the broker's; `warnings` are about the sources themselves.

    `named_topics` are the topics that options name, by the option that does. `replicas` gives the
    brokers that have a partition, by the metadata log, none where there is no such log. `newer`
    says how the metadata log is one of a newer Kafka than is known; empty if it is not.
    `metadata_version` is the cluster's level, 0 where there is no metadata log.
    """

    resolve: Callable[[str], Resolved | None]
    broker: BrokerConfig
    warnings: tuple[str, ...]
    named_topics: Mapping[str, tuple[str, ...]]
    replicas: Callable[[TopicPartition], Sequence[int]]
    newer: str = ""
    metadata_version: int = 0

    def require_known(self) -> None:
        """Refuses to change anything by settings that may not be all.

        Raises:
            UnsupportedVersionError: a newer Kafka has written the metadata log.
        """
        if self.newer:
            raise UnsupportedVersionError(f"{self.newer}. Nothing was changed")


def read_settings(options: SettingOptions) -> Settings:
    """All sources, read once.

    Raises:
        ConfigError: a file is missing or malformed, a name unknown, a value refused.
        CorruptError: the metadata log cannot be read.
    """
    metadata = _metadata_of(options)
    sources = _sources_of(options, metadata)
    node_id = _node_id_of(options.log_dirs)
    broker = resolve_broker(sources, node_id=node_id)
    is_broker_described = (
        options.defaults or options.server_properties is not None or bool(sources.file_broker)
    )
    cache: dict[str, Resolved | None] = {}

    def resolve(topic: str) -> Resolved | None:
        if topic not in cache:
            found = resolve_topic(sources, topic, node_id=node_id)
            cache[topic] = (
                None
                if found is None
                else Resolved(
                    config=found.config,
                    origin=dict(found.origin),
                    warnings=found.warnings,
                    is_retention_assumed=not is_broker_described
                    and found.origin["retention.ms"].level is Level.DEFAULT,
                )
            )
        return cache[topic]

    warnings = [*sources.warnings, *broker.warnings]
    warnings += [
        f"{sources.server_properties_name}: {name} is ignored; {advice}"
        for name, advice in _unknown(sources.server_properties).items()
        if not is_misnamed_broker_setting(name)  # else the sources have said so
    ]
    if metadata is not None and metadata.may_have_uncommitted_suffix:
        warnings.append(
            "the metadata log has several voters and was read to its end: its last records "
            "may not have been committed"
        )
    newer = "" if metadata is None else _newer(metadata)
    warnings += [newer] * bool(newer)
    return Settings(
        resolve=resolve,
        broker=broker.config,
        warnings=tuple(warnings),
        named_topics={
            "--set": tuple(topic for topic in sources.topic_set if topic != ALL_TOPICS),
            "--config-file": tuple(sources.file_topics),
        },
        replicas=partial(_replicas, metadata),
        newer=newer,
        metadata_version=0 if metadata is None else metadata.metadata_version,
    )


def _newer(metadata: MetadataImage) -> str:
    levels = unknown_levels(metadata.features)
    if not levels:
        return ""
    found = ", ".join(f"{name} {level}" for name, level in levels.items())
    return (
        f"the metadata log is that of a newer Kafka than 4.4 ({found}): it may have settings that "
        "are not known here"
    )


def _sources_of(options: SettingOptions, metadata: MetadataImage | None) -> Sources:
    topic_set, broker_set = merge_set_options(options.set_options)
    file = ConfigFile()
    if options.config_file is not None:
        file = parse_config_file(
            _text_of(options.config_file, "--config-file"), name=str(options.config_file)
        )
    properties: dict[str, str] = {}
    if options.server_properties is not None:
        properties = parse_properties(
            _text_of(options.server_properties, "--server-properties"),
            name=str(options.server_properties),
        )
    return Sources(
        topic_set=topic_set,
        broker_set=broker_set,
        file_topics=file.topics,
        file_broker=file.broker,
        server_properties=properties,
        metadata=metadata,
        defaults=options.defaults,
        config_file_name=str(options.config_file or "--config-file"),
        server_properties_name=str(options.server_properties or "--server-properties"),
    )


def _unknown(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The names that are no setting of a broker, each with advice."""
    if not properties:
        return {}
    # What knows every setting of a broker is loaded where a file has some.
    from cordwood.configs.unknown import unknown_settings  # noqa: PLC0415

    return unknown_settings(properties)


def _replicas(metadata: MetadataImage | None, partition: TopicPartition) -> Sequence[int]:
    topic = None if metadata is None else metadata.topics.get(partition.topic)
    found = None if topic is None else topic.partitions.get(partition.partition)
    return () if found is None else tuple(found.replicas)


def node_ids_of(log_dirs: Sequence[Path]) -> frozenset[int]:
    """The brokers whose log directories these are, or are partitions' directories of."""
    found = [_node_id_of([each]) for each in log_dirs]
    return frozenset(each for each in found if each is not None)


def _text_of(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{option} {path}: cannot be read: it is not UTF-8 at byte {error.start}"
        ) from error
    except OSError as error:
        raise ConfigError(f"{option} {path}: cannot be read: {error.strerror}") from error


def _metadata_of(options: SettingOptions) -> MetadataImage | None:
    places = [options.metadata_dir] if options.metadata_dir else list(options.log_dirs)
    for place in places:
        for candidate in (
            place / CLUSTER_METADATA_DIR,
            place,
            place.resolve().parent / CLUSTER_METADATA_DIR,
        ):
            if candidate.name == CLUSTER_METADATA_DIR and _is_directory(candidate):
                return read_metadata_image(
                    candidate, read_bytes=OS.read_bytes, names_in=OS.names_in
                )
    if options.metadata_dir is not None:
        raise ConfigError(
            f"--metadata-dir {options.metadata_dir}: no {CLUSTER_METADATA_DIR} directory is there"
        )
    return None


def metadata_topics(log_dir: Path) -> int | None:
    """The number of topics in the metadata log of a directory; None if there is no such log.

    Raises:
        CorruptError: it cannot be read.
    """
    image = _metadata_of(SettingOptions(log_dirs=[log_dir]))
    return None if image is None else len(list(image.topics))


def _is_directory(path: Path) -> bool:
    try:
        return OS.is_directory(path)
    except OSError:
        return False


def _node_id_of(log_dirs: Sequence[Path]) -> int | None:
    for place in log_dirs:
        for candidate in (place / META_PROPERTIES, place.resolve().parent / META_PROPERTIES):
            try:
                data = OS.read_bytes(candidate)
                return parse_meta_properties(data, reads_directory_id=False).node_id
            except (OSError, CorruptError):
                continue
    return None
