"""Facts from a cluster's metadata about partitions in log directories, for checks of their logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cordwood.cleanup.verification.offsets import PartitionFacts
from cordwood.configs.sources import Sources, resolve_topic
from cordwood.format.file_names import CLUSTER_METADATA_DIR, META_PROPERTIES
from cordwood.format.meta_properties import MetaProperties, parse_meta_properties
from cordwood.format.record_bound import RECORD_BYTES_MAX
from cordwood.metadata.replay import MetadataImage, read_metadata_image
from cordwood.model.errors import ConfigError, CordwoodError, CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.reread import reread
from cordwood.storage.tiered.mount import is_tiered as is_mounted_with_tiers


class ClusterFacts:
    """The metadata logs of log directories, each read when it is first asked for.

    A broker has one, in its first log directory: it speaks for its others too.
    """

    def __init__(self, paths: Sequence[Path], on_warning: Callable[[str], None]) -> None:
        """Takes what the user named: log directories, or partitions' directories in them."""
        self._paths = paths
        self._warn = on_warning
        self._images: dict[Path, MetadataImage | None] = {}
        self._bounds: dict[tuple[Path, str], int] = {}

    def of(self, log_dir: Path, partition: TopicPartition) -> PartitionFacts:
        """The facts about a partition in a log directory; none without a metadata log."""
        image = self._image_of(log_dir)
        topic = None if image is None else image.topics.get(partition.topic)
        if image is None or topic is None:
            return PartitionFacts()
        settings = image.topic_config(partition.topic)
        policy = settings.get("cleanup.policy")
        found = topic.partitions.get(partition.partition)
        return PartitionFacts(
            topic_id=topic.topic_id,
            is_compacted=None if policy is None else "compact" in policy.lower(),
            is_alone=len(image.brokers) <= 1 and (found is None or len(found.replicas) <= 1),
            is_tiered=settings.get("remote.storage.enable", "").lower() == "true"
            and not is_mounted_with_tiers(log_dir),
            record_bytes_max=self._bound_of(image, log_dir, partition.topic),
        )

    def _bound_of(self, image: MetadataImage, log_dir: Path, topic: str) -> int:
        key = log_dir, topic
        if key not in self._bounds:
            self._bounds[key] = self._resolved_bound(image, log_dir, topic)
        return self._bounds[key]

    def _resolved_bound(self, image: MetadataImage, log_dir: Path, topic: str) -> int:
        meta = _meta_of(log_dir)
        node_id = None if meta is None else meta.node_id
        try:
            found = resolve_topic(Sources(metadata=image), topic, node_id=node_id)
        except ConfigError as error:
            self._warn(f"{error}: its bound on the size of a record is not known")
            return RECORD_BYTES_MAX
        assert found is not None, "the metadata log describes it"
        return found.config.max_decompressed_message_bytes

    def _image_of(self, log_dir: Path) -> MetadataImage | None:
        if log_dir not in self._images:
            self._images[log_dir] = self._read(log_dir)
        return self._images[log_dir]

    def _read(self, log_dir: Path) -> MetadataImage | None:
        cluster_id = _cluster_id_of(log_dir)
        others = [] if cluster_id is None else [*self._paths, *(p.parent for p in self._paths)]
        for place in (log_dir, *others):
            directory = place / CLUSTER_METADATA_DIR
            if place != log_dir and _cluster_id_of(place) != cluster_id:
                continue
            try:
                if OS.is_directory(directory):
                    return reread(
                        partial(
                            read_metadata_image,
                            directory,
                            read_bytes=OS.read_bytes,
                            names_in=OS.names_in,
                        )
                    )
            except (CordwoodError, OSError) as error:
                self._warn(
                    f"{directory} cannot be read, so that it is not known which topics are "
                    f"compacted: {error}"
                )
        return None


def _cluster_id_of(log_dir: Path) -> str | None:
    meta = _meta_of(log_dir)
    return None if meta is None else meta.cluster_id


def _meta_of(log_dir: Path) -> MetaProperties | None:
    try:
        data = OS.read_bytes(log_dir / META_PROPERTIES)
        return parse_meta_properties(data, reads_directory_id=False)
    except (OSError, CorruptError):
        return None
