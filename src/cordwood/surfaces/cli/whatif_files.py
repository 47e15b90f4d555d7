"""Answers of `cordwood whatif` from the files of log directories."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

from cordwood.cleanup.engine.run_directory import temporary_directory
from cordwood.cleanup.engine.spark.machine import has_java
from cordwood.cleanup.engine.spark.session import cores_here
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.clean import offline_groups
from cordwood.cleanup.schedule.cleaner_settings import CleanerSettings
from cordwood.cleanup.schedule.request import CleanRequest
from cordwood.configs.config_file import merge_set_options
from cordwood.configs.table import TOPIC_SETTINGS
from cordwood.model.clock import SystemClock
from cordwood.model.extras import NATIVE, SPARK, missing_packages, require_extra
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.queries.settings import SettingOptions, Settings, read_settings
from cordwood.queries.whatif.answer import Question, answer_of, starts_of
from cordwood.queries.whatif.compared_cleanings import compare
from cordwood.queries.whatif.comparison import NOW, THEN, Comparison
from cordwood.queries.whatif.effects import Unread, unread
from cordwood.storage.reread import reread
from cordwood.surfaces.cli.clean_engine import (
    CleanEngine,
    clean_display,
    parse_memory,
    require_master,
)
from cordwood.surfaces.cli.clean_estimate import estimator_for
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.values import parse_time

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
class FilesQuestion:
    """The question about log directories; `options` are the sources of the settings in force.

    With `estimate`, compactions are estimated and not measured.
    """

    options: SettingOptions
    changes: tuple[str, ...]
    topics: tuple[str, ...]
    now: str | None
    days: int
    groups: bool
    memory: str | None
    master: str
    estimate: bool

    @property
    def is_without_compaction(self) -> bool:
        """Whether Spark cannot run, and no setting is changed that compaction depends on.

        Raises:
            ConfigError: a change is malformed.
        """
        if self.estimate or self._has_spark:
            return False
        topics, broker = merge_set_options(self.changes)
        names = {name for texts in (*topics.values(), broker) for name in texts}
        return names <= RETENTION_SETTINGS

    @property
    def _has_spark(self) -> bool:
        return not missing_packages(SPARK) and (not self.master.startswith("local") or has_java())

    def settings(self, changes: tuple[str, ...]) -> Settings:
        """The settings with so many of the changes; a broker may be writing its metadata log."""
        return reread(lambda: read_settings(replace(self.options, set_options=changes)))


def whatif_files(
    question: FilesQuestion, screen: Screen, *, shows_progress: bool
) -> dict[str, Any]:
    """The answer, as plain values; records are read only where a compaction is due.

    Raises:
        ConfigError: an option cannot be used.
        MissingExtraError: what estimates is not installed.
        CordwoodError, OSError: a directory cannot be read, or the engine not be started.
    """
    require_master(question.master)
    if question.estimate:
        require_extra(NATIVE, what="an estimate of compactions")
    clock = SystemClock()
    now = question.now
    now_ms = clock.now_ms() if now is None else parse_time(now, option="--now")
    with clean_display(screen, shown=shows_progress) as display:
        engine = CleanEngine(
            master=question.master,
            memory_bytes=parse_memory(question.memory),
            shared_dirs=[temporary_directory()],
            display=display,
            otherwise="A change of retention alone needs no Java, and --estimate measures nothing.",
        )
        with closing(engine):
            before, after = question.settings(()), question.settings(question.changes)
            in_force = _request(question, before, now_ms)
            comparison = compare(
                in_force,
                _request(question, after, now_ms),
                None if question.is_without_compaction else engine.factory(),
                clock=clock,
                listener=display,
                estimator=estimator_for(display) if question.estimate else None,
                changed_of_broker=merge_set_options(question.changes)[1],
            )
            lost = _unread(in_force, comparison, display) if question.groups else None
    asked = Question(
        now_ms=now_ms,
        days=question.days,
        cleaners={NOW: CleanerSettings.of(before.broker), THEN: CleanerSettings.of(after.broker)},
        cores=cores_here(),
    )
    return answer_of(comparison, asked, unread=lost, warnings=after.warnings)


def _request(question: FilesQuestion, settings: Settings, now_ms: int) -> CleanRequest:
    """The cleaning under these settings."""
    return CleanRequest(
        log_dirs=tuple(question.options.log_dirs),
        resolve=settings.resolve,
        now_ms=now_ms,
        topics=question.topics,
        named_topics=settings.named_topics,
        directory_limits=DirectoryLimits.of(settings.broker),
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        dry_run=True,
    )


def _unread(
    request: CleanRequest, comparison: Comparison, display: CleanProgress
) -> list[Unread] | None:
    """What groups lose where the log start offset moves; None if there are no groups to look at."""
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
        display.bytes_done(name, "reading", done, total)

    return unread(groups.read(progress), starts)
