"""Effect of changed settings on log directories; their files are only read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from cordwood.cleanup.access.commit import EngineFactory
from cordwood.cleanup.engine.spark.session import cores_here
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.estimates import Estimator
from cordwood.cleanup.plan.request import CleanRequest, Listener
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.pinned_logs import offline_groups
from cordwood.configs.config_file import merge_set_options
from cordwood.configs.table import TOPIC_SETTINGS
from cordwood.model.clock import SystemClock
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.queries.settings import SettingOptions, Settings, read_settings
from cordwood.queries.whatif.answer import Question, WhatIf, answer_of, starts_of
from cordwood.queries.whatif.compared_cleanings import compare
from cordwood.queries.whatif.comparison import NOW, THEN, Comparison
from cordwood.queries.whatif.effects import Unread, unread
from cordwood.storage.reread import reread

_RETENTION_OF_TOPICS: Final = {
    name for name in TOPIC_SETTINGS if name.startswith(("retention.", "cordwood.retention."))
}
RETENTION_SETTINGS: Final = (
    _RETENTION_OF_TOPICS
    | {each.name for name in _RETENTION_OF_TOPICS for each in TOPIC_SETTINGS[name].broker_names}
    | {"cordwood.log.dir.retention.bytes", "cordwood.log.dir.free.bytes.min"}
)
"""Settings of retention alone, of topics and brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryQuestion:
    """The question about log directories; `options` are the sources of the settings in force.

    `now_ms` is None for the time of this machine. Compactions are measured by an engine, or
    estimated; with neither only a change of retention has an answer.
    """

    options: SettingOptions
    changes: tuple[str, ...]
    topics: tuple[str, ...]
    now_ms: int | None
    days: int
    groups: bool

    @property
    def is_of_retention(self) -> bool:
        """Whether no setting changes that compaction depends on.

        Raises:
            ConfigError: a change is malformed.
        """
        topics, broker = merge_set_options(self.changes)
        names = {name for texts in (*topics.values(), broker) for name in texts}
        return names <= RETENTION_SETTINGS

    def settings(self, changes: tuple[str, ...]) -> Settings:
        """The settings with so many of the changes; a broker may be writing its metadata log."""
        return reread(lambda: read_settings(replace(self.options, set_options=changes)))


def what_if_directories(
    question: DirectoryQuestion,
    engine: EngineFactory | None,
    *,
    listener: Listener,
    estimator: Estimator | None,
    reading: Callable[[str, int, int], None],
) -> WhatIf:
    """The answer; records are read only where a compaction is due.

    Args:
        question: what is asked.
        engine: measures compactions; None to measure none.
        listener: of the progress.
        estimator: estimates compactions instead.
        reading: called with a topic, and how many bytes of it have been read, of how many.

    Raises:
        ConfigError: an option cannot be used.
        CordwoodError, OSError: a directory cannot be read, or the engine not be started.
    """
    clock = SystemClock()
    now_ms = clock.now_ms() if question.now_ms is None else question.now_ms
    before, after = question.settings(()), question.settings(question.changes)
    in_force = _request(question, before, now_ms)
    comparison = compare(
        in_force,
        _request(question, after, now_ms),
        engine,
        clock=clock,
        listener=listener,
        estimator=estimator,
        changed_of_broker=merge_set_options(question.changes)[1],
    )
    lost = _unread(in_force, comparison, reading) if question.groups else None
    asked = Question(
        now_ms=now_ms,
        days=question.days,
        cleaners={NOW: CleanerSettings.of(before.broker), THEN: CleanerSettings.of(after.broker)},
        cores=cores_here(),
    )
    return answer_of(comparison, asked, unread=lost, warnings=after.warnings)


def _request(question: DirectoryQuestion, settings: Settings, now_ms: int) -> CleanRequest:
    """The cleaning under these settings."""
    return CleanRequest(
        log_dirs=tuple(question.options.log_dirs),
        resolve=settings.resolve,
        now_ms=now_ms,
        topics=question.topics,
        named_topics=settings.named_topics,
        directory_limits=DirectoryLimits.of(settings.broker),
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        metadata_version=settings.metadata_version,
        dry_run=True,
    )


def _unread(
    request: CleanRequest, comparison: Comparison, reading: Callable[[str, int, int], None]
) -> list[Unread] | None:
    """Records that groups would lose where a log start offset moves; None without groups."""
    starts = starts_of(comparison)
    if not starts:
        return []
    groups = offline_groups(request)
    if not groups.has_partitions:
        return None
    name = GROUP_METADATA_TOPIC
    done, total = 0, groups.size_bytes

    def progress(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        reading(name, done, total)

    return unread(groups.read(progress), starts)
