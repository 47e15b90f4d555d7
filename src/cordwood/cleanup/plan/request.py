"""The request of a cleaning, and the interface of its listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from cordwood.cleanup.plan.attempt import Limits
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.configs.log_config import LogConfig

#: How the globs of topics are called on a command line.
TOPICS_OPTION: Final = "--topic"


class Listener(Protocol):
    """Receives the progress; for progress bars."""

    def begin(self, phase: str, total: int) -> None:
        """A phase over `total` partitions begins."""

    def advance(self, name: str) -> None:
        """One partition of the phase is done."""


class Silence:
    """A listener that shows nothing."""

    def begin(self, phase: str, total: int) -> None:
        """Shows nothing."""

    def advance(self, name: str) -> None:
        """Shows nothing."""


class CleaningOrder(StrEnum):
    """The values of cordwood.cleaner.order."""

    RATIO = "ratio"
    FREED = "freed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings of one topic, and warnings about them.

    With `is_retention_assumed`, `retention.ms` is Kafka's default only because no source says what
    the broker's is.
    """

    config: LogConfig
    origin: dict[str, Any]
    warnings: tuple[str, ...] = ()
    is_retention_assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    """The request.

    `resolve` gives a topic's settings, None when no source describes it. `topics` are globs, empty
    for all, which the caller gave as `topics_option`; one that matches none is an error, unless
    `may_lack_topics`. `named_topics` are topics that have settings of their own, by the option that
    gives them. `metadata_version` is the cluster's level, 0 if unknown. Removed files are moved to
    `trash`, or deleted if it is None. Logs are compacted in `order`, each within `limits`. With
    `measured`, a dry run executes compactions without writing anything, and reports the sizes that
    a cleaning would leave. With `compared_with`, which gives settings as `resolve` does, views hold
    what is needed to plan under these, too. A dry run that is `for_reading` has the high watermarks
    of the checkpoints, also above the recovery points, where nothing is cleaned. With
    `stages_in_archive`, what tasks rewrite of an archive is staged there, and not in a directory
    that they share with this process. Compactions read no more than `bytes_read_max` together, if
    it is set: those that free most for it are chosen.
    """

    log_dirs: tuple[Path, ...]
    resolve: Callable[[str], Resolved | None]
    now_ms: int
    topics: tuple[str, ...] = ()
    topics_option: str = TOPICS_OPTION
    may_lack_topics: bool = False
    named_topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    directory_limits: DirectoryLimits = field(default_factory=DirectoryLimits)
    producer_expiration_ms: int = 86_400_000
    metadata_version: int = 0
    order: CleaningOrder = CleaningOrder.RATIO
    dry_run: bool = False
    measured: bool = False
    for_reading: bool = False
    compared_with: Callable[[str], Resolved | None] | None = None
    force: bool = False
    retention: bool = True
    compaction: bool = True
    limits: Limits = field(default_factory=Limits)
    stages_in_archive: bool = False
    bytes_read_max: int | None = None
    trash: Path | None = None

    def compared_config(self, topic: str) -> LogConfig | None:
        """The settings of `compared_with` for a topic; None if there are none."""
        resolved = None if self.compared_with is None else self.compared_with(topic)
        return None if resolved is None else resolved.config

    @property
    def applied_limits(self) -> DirectoryLimits:
        """The limits of directories; none where only some topics are looked at."""
        return DirectoryLimits() if self.topics else self.directory_limits

    @property
    def limits_warnings(self) -> list[str]:
        """A warning if there are limits of directories that are not applied."""
        if not self.topics or not self.directory_limits.is_set:
            return []
        return ["cordwood.log.dir.*: not applied, since other topics are not looked at"]
