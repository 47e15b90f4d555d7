"""The plans of the next check of retention of running logs, on views of this moment.

Logs count as deletable unless the cleaner has set them aside: what another thread works on now, it
may have released by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cordwood.cleanup.access.online.groups import KnownOffsets, consumed_of
from cordwood.cleanup.plan.check_plan import CheckPlan, plan_check_of
from cordwood.cleanup.rules.shared_retention import DirectoryLimits, SharedLog, shares_limits
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.deleted_space import free_bytes_foreseen
from cordwood.storage.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSpace:
    """The free space of log directories, as `plan_check_of` takes it."""

    free_bytes: Mapping[str, int]
    freeing: frozenset[str]


def logs_to_plan(
    manager: CleanerManager,
    chosen: Sequence[PartitionLog],
    configs: Iterable[LogConfig],
    limits: Iterable[DirectoryLimits],
) -> list[PartitionLog]:
    """The logs that a plan for the chosen ones depends on: all, if any limit is shared.

    Args:
        manager: of the logs.
        chosen: the logs that are asked for.
        configs: the settings of all logs.
        limits: those of log directories.
    """
    configs = tuple(configs)
    if any(shares_limits(configs, each) for each in limits):
        return list(manager.logs.logs())
    return list(chosen)


def frozen_logs(
    manager: CleanerManager, logs: Iterable[PartitionLog], known: KnownOffsets, *, now_ms: int
) -> list[SharedLog]:
    """A view of each log, with what groups have consumed of it."""
    lines = manager.checkpoints.all()
    found = []
    for log in logs:
        is_future = manager.logs.get(log.topic_partition) is not log
        is_set_aside = log.config.compact and manager.is_kept_out(log, now_ms)
        view = manager.view_of(log, None if is_future else lines.get(log.topic_partition))
        found.append(
            SharedLog(
                view=replace(view, consumed=consumed_of(known, log)),
                log_dir=str(log.log_dir),
                is_deletable=not is_future and not is_set_aside,
                is_future=is_future,
            )
        )
    return found


def free_space(
    manager: CleanerManager, logs: Iterable[SharedLog], limits: Iterable[DirectoryLimits]
) -> FreeSpace:
    """The free space of the directories of logs, if it is limited.

    Raises:
        OSError: a directory cannot be read.
    """
    free_bytes, freeing = {}, set()
    if any(each.free_bytes_min >= 0 for each in limits):
        context = manager.logs.context
        used = {log.log_dir for log in logs}
        for each in (each for each in manager.logs.directories if str(each.path) in used):
            free, is_freeing = free_bytes_foreseen(each.path, fs=context.fs, trash=context.trash)
            free_bytes[str(each.path)] = free
            if is_freeing:
                freeing.add(str(each.path))
    return FreeSpace(free_bytes=free_bytes, freeing=frozenset(freeing))


def plan_next_check(
    manager: CleanerManager, chosen: Sequence[PartitionLog], *, now_ms: int
) -> dict[TopicPartition, tuple[SharedLog, CheckPlan]]:
    """The view of each chosen log, and what the next check does to it; no future logs.

    It waits for coordinators of groups, so no lock is to be held.

    Raises:
        CorruptError, OSError: an index of a log cannot be read.
    """
    limits = DirectoryLimits.of(manager.logs.broker)
    configs = (log.config for log in manager.logs.logs())
    logs = logs_to_plan(manager, chosen, configs, [limits])
    shared = frozen_logs(manager, logs, manager.groups.look_up(logs), now_ms=now_ms)
    space = free_space(manager, shared, [limits])
    plans = plan_check_of(
        shared, limits, free_bytes=space.free_bytes, freeing=space.freeing, now_ms=now_ms
    )
    wanted = {log.topic_partition for log in chosen}
    return {
        log.view.topic_partition: (log, plan)
        for log, plan in zip(shared, plans, strict=True)
        if not log.is_future and log.view.topic_partition in wanted
    }
