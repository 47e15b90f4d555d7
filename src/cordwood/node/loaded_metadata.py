"""The committed metadata that a node reads before it serves, and what keeps it up to date.

Source: org.apache.kafka.image.loader.MetadataLoader; kafka.server.SharedServer (4.3.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from cordwood.configs.effective import EffectiveConfigs
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.loader import MetadataLoader
from cordwood.metadata.metadata_log import MetadataLog
from cordwood.metadata.settings import MetadataLogSettings
from cordwood.metadata.snapshot_generator import SnapshotGenerator
from cordwood.serving.node_thread import NodeThread
from cordwood.serving.slices import Slices
from cordwood.storage.log.log_context import LogContext

_CHECK_MS: Final = 60_000


class LoadedMetadata(NamedTuple):
    """The image, and what reads and shortens its log."""

    loader: MetadataLoader
    cache: MetadataCache
    snapshots: SnapshotGenerator


def load_metadata(
    log: MetadataLog,
    *,
    settings: MetadataLogSettings,
    context: LogContext,
    configs: EffectiveConfigs,
    slices: Slices,
) -> LoadedMetadata:
    """Reads what is committed; `configs` gets its settings.

    Args:
        log: the metadata log.
        settings: when snapshots of it are due.
        context: its clock, file system and failed directories.
        configs: the settings of brokers and topics.
        slices: in which later changes are published.
    """
    loader = MetadataLoader(log, schedule=slices.run)
    snapshots = SnapshotGenerator(log, settings=settings, context=context)
    cache = MetadataCache(lambda: log.kraft_version)
    for publisher in (cache, configs, snapshots):  # the cache first: all others read it
        loader.install(publisher)
    loader.catch_up()
    return LoadedMetadata(loader, cache, snapshots)


def schedule_snapshots(thread: NodeThread, write_if_due: Callable[[], None]) -> None:
    """Checks regularly whether a snapshot of the metadata is due, and writes it in slices."""
    thread.schedule("metadata-snapshot", _CHECK_MS, lambda: thread.run_in_slices(write_if_due))
