"""Logs of a running broker explained, from its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.rules.blockers import Blocker, Code
from cordwood.cleanup.rules.shared_retention import SharedLog
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.cleaner_status import cleaner_blocker
from cordwood.cleanup.schedule.next_check import plan_next_check
from cordwood.configs.levels import Origin
from cordwood.model.pauses import in_steps
from cordwood.node.node import Node
from cordwood.queries.explain.answer import Explanation
from cordwood.queries.explain.explanation import explain
from cordwood.queries.explain.log_facts import (
    Delays,
    LogFacts,
    OpenTransaction,
    bytes_a_second,
)
from cordwood.queries.on_loop import OnLoop
from cordwood.storage.log.open_transactions import open_transactions
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import is_trashed


def explain_node(node: Node, on_loop: OnLoop, globs: Sequence[str]) -> Explanation:
    """Every log of the topics that one of the globs names.

    Raises:
        CordwoodError, OSError: a log cannot be looked at, or the event loop does not answer.
    """
    cleaner, broker = node.cleaner, node.broker
    manager, now_ms = cleaner.manager, node.clock.now_ms()
    logs = [
        log
        for log in sorted(manager.current_logs(), key=lambda log: log.topic_partition)
        if any(fnmatchcase(log.topic_partition.topic, glob) for glob in globs)
    ]
    topics = {log.topic_partition.topic for log in logs}
    ids, origins = on_loop(
        lambda: (
            broker.transactions.ids_by_producer(),
            {topic: broker.configs.topic_origins(topic) for topic in in_steps(topics)},
        )
    )
    planned = plan_next_check(manager, logs, now_ms=now_ms)
    explained = [
        explain(
            facts_of_running(
                manager,
                cleaner.settings,
                log,
                planned[log.topic_partition],
                origins=origins[log.topic_partition.topic],
                transactional_ids=ids,
                now_ms=now_ms,
            ),
            now_ms=now_ms,
        )
        for log in logs
        if log.topic_partition in planned  # else it was removed this moment
    ]
    return Explanation(now_ms=now_ms, partitions=[each.answer() for each in explained])


def facts_of_running(
    manager: CleanerManager,
    settings: CleanerSettings,
    log: PartitionLog,
    planned: tuple[SharedLog, CheckPlan],
    *,
    origins: Mapping[str, Origin],
    transactional_ids: Mapping[int, str],
    now_ms: int,
) -> LogFacts:
    """The facts about one log.

    Args:
        manager: of the broker's cleaner.
        settings: of the broker's cleaner.
        log: to look at.
        planned: its view, and the plan of the next check, of `plan_next_check`.
        origins: where its settings come from.
        transactional_ids: by producer id, those that a coordinator here knows.
        now_ms: the broker's time.
    """
    shared, check = planned
    return LogFacts(
        view=shared.view,
        log_dir=shared.log_dir,
        check=check,
        origins=origins,
        transactions=tuple(
            OpenTransaction(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                start_offset=each.start_offset,
                started_ms=each.started_ms,
                transactional_id=transactional_ids.get(each.producer_id),
            )
            for each in open_transactions(log)
        ),
        cleaner=(cleaner_blockers(manager, settings, log, now_ms) if log.config.compact else ()),
        delays=Delays(
            check_ms=settings.retention_check_interval_ms,
            backoff_ms=settings.backoff_ms,
            file_delete_ms=log.config.file_delete_delay_ms,
            trash_ms=log.config.cordwood_trash_ms if is_trashed(log) else 0,
        ),
        throttle_bytes=bytes_a_second(settings.io_max_bytes_per_second),
        losses=manager.groups.losses.of(log.topic_partition),
    )


def cleaner_blockers(
    manager: CleanerManager, settings: CleanerSettings, log: PartitionLog, now_ms: int
) -> tuple[Blocker, ...]:
    """Reasons why the cleaner skips a compacted log, whatever the log holds."""
    if not settings.enable:
        text = "log.cleaner.enable=false: no log is compacted"
        return (Blocker(code=Code.CLEANER_OFF, setting="log.cleaner.enable", text=text),)
    blocker = cleaner_blocker(manager, log, now_ms)
    return () if blocker is None else (blocker,)
