"""The state that the logs of one run over stopped log directories share."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from cordwood.cleanup.access.offline.groups import OfflineGroups
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import Clock
from cordwood.storage.log_directory import InUse
from cordwood.storage.trash import Trash

#: producer.id.expiration.ms with which no producer expires.
NEVER_MS = (1 << 63) - 1


@dataclass(slots=True, kw_only=True)
class OfflineRun:
    """One run at the moment `now_ms`; if `only_reads`, no file changes.

    `for_reading` is as of `load_offline_log`.

    `remover` removes old segments meanwhile; they are moved to `trash` if there is one. `groups`
    have the committed offsets of the directories, `in_use` are those that another process uses.
    `metadata_version` is the cluster's level, 0 if unknown.
    `compared_with` gives a topic's settings for which views are to be sufficient, too. Warnings of
    log directories are added to `warnings`, each once.
    """

    clock: Clock
    now_ms: int
    remover: Executor
    only_reads: bool = False
    for_reading: bool = False
    producer_expiration_ms: int = NEVER_MS
    metadata_version: int = 0
    trash: Trash | None = None
    groups: OfflineGroups = field(default_factory=OfflineGroups)
    in_use: list[InUse] = field(default_factory=list)
    compared_with: Callable[[str], LogConfig | None] = lambda _: None
    warnings: list[str] = field(default_factory=list)
