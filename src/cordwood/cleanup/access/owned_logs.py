"""The access to a log of a log directory that nobody serves, whatever the directory is."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from cordwood.cleanup.access.log_access import OwnedLog
from cordwood.cleanup.access.offline.directories import Place
from cordwood.cleanup.access.offline.run import OfflineRun
from cordwood.cleanup.access.offline.stopped_log import StoppedLog
from cordwood.cleanup.access.removal_audit import Origins
from cordwood.configs.log_config import LogConfig
from cordwood.storage.filesystem import OS
from cordwood.storage.tiered.mount import is_tiered


def is_archived(path: Path) -> bool:
    """Whether a path is of an archive in object storage."""
    return OS.is_mounted(path) and not is_tiered(path)


def owned_log(
    run: OfflineRun,
    place: Place,
    *,
    config: LogConfig,
    scratch: Path | None = None,
    stages_there: bool = False,
    origins: Origins = MappingProxyType({}),
    holds: tuple[str, ...] = (),
) -> OwnedLog:
    """The access to the log at a place, with the settings in force; see `StoppedLog`.

    `scratch` and `stages_there` are for a log of an archive: see `ArchivedLog`.
    """
    if not is_archived(place.partition.path):
        return StoppedLog(
            run, place.log_dir, place.partition, config=config, origins=origins, holds=holds
        )
    # What speaks to object storage is loaded where there is some.
    from cordwood.cleanup.access.archived.archived_log import (  # noqa: PLC0415
        ArchivedLog,
        archive_at,
    )

    return ArchivedLog(
        run,
        archive_at(place.partition.path),
        place.partition,
        config=config,
        scratch=scratch,
        stages_there=stages_there,
        origins=origins,
        holds=holds,
    )
