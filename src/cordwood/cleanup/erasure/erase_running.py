"""Erases records from the logs of a running broker; the steps are those of `erasing`.

The cleaning of each of these logs is paused meanwhile. Records that are appended meanwhile are not
searched, but for those that come before a segment is rolled: the report has the end of each log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from cordwood.cleanup.access.online.running_log import RunningLog
from cordwood.cleanup.erasure.erase import is_cut_of_target
from cordwood.cleanup.erasure.erased_log import ErasedLog
from cordwood.cleanup.erasure.erasing import Erasing
from cordwood.cleanup.erasure.refusals import TIERED, refused_by
from cordwood.cleanup.erasure.request import EraseRequest, Erasure, ErasureBackend
from cordwood.cleanup.erasure.stray_files import partitions_below
from cordwood.cleanup.plan.request import Listener, Resolved
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.format.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_names import INTERNAL_TOPICS
from cordwood.storage.directory_names import parse_directory_name
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog


def erase_online(
    request: EraseRequest,
    backend: ErasureBackend,
    manager: CleanerManager,
    *,
    listener: Listener,
    require_wanted: Callable[[], None],
) -> Erasure:
    """Erases records from running logs; a dry run only searches.

    Args:
        request: what, and of which topics.
        backend: what searches and rewrites.
        manager: of the broker's cleaner.
        listener: for the progress.
        require_wanted: raises if the erasure must not continue.

    Raises:
        ConfigError: the expression cannot be evaluated.
        CorruptError: the plan of an interrupted erasure, or a ledger, cannot be read.
        EngineError: the engine is needed and unavailable, or the broker is being stopped.
        TrashError: what waits to go to the broker's trash could not go there; nothing is erased.
    """
    context = manager.logs.context
    homes = [
        each.path for each in manager.logs.directories if each.path not in context.failures.offline
    ]
    request = replace(request, resolve=_resolve_in(manager))
    erasing = Erasing(
        request, backend, homes, holds=context.holds, listener=listener, fs=context.fs
    )
    # Coordinators have the records of internal topics in memory: those that are named are refused.
    logs = [
        log
        for log in manager.current_logs()
        if erasing.covers(log.topic_partition) and log.topic_partition.topic not in INTERNAL_TOPICS
    ]
    with ExitStack() as stack:
        for log in logs:
            refused = _refused(log)
            if refused is not None:
                erasing.refuse(str(log.directory), log.topic_partition, refused)
                continue
            manager.states.abort_and_pause(log.topic_partition)
            stack.callback(manager.states.resume_cleaning, [log.topic_partition])
            access = RunningLog(
                log, manager.logs, require_wanted=require_wanted, prefix="Erasure: "
            )
            erasing.add_log(ErasedLog(access, request))
        for home in homes:
            _add_beside(erasing, manager, home)
        _add_trash(erasing, logs, context, homes, dry_run=request.dry_run)
        return erasing.run()


def _resolve_in(manager: CleanerManager) -> Callable[[str], Resolved | None]:
    """The settings of topics by their running logs."""
    configs = {log.topic_partition.topic: log.config for log in manager.current_logs()}

    def resolve(topic: str) -> Resolved | None:
        return Resolved(config=configs[topic], origin={}) if topic in configs else None

    return resolve


def _add_trash(
    erasing: Erasing,
    logs: Sequence[PartitionLog],
    context: LogContext,
    homes: Sequence[Path],
    *,
    dry_run: bool,
) -> None:
    """Adds the broker's trash, and what would be moved there while the erasure runs."""
    if context.trash is None or not homes:
        return
    if not dry_run:
        for log in logs:
            log.deleted_files.settle_all(log.directory)
    for path, partition in partitions_below(context.trash.directory, fs=context.fs):
        if erasing.covers(partition):
            erasing.add_elsewhere(path, partition)


def _refused(log: PartitionLog) -> str | None:
    if log.config.remote_storage_enable:
        return TIERED
    return refused_by(log.holds)


def _add_beside(erasing: Erasing, manager: CleanerManager, home: Path) -> None:
    """Directories that are no running log's: what waits for its deletion, and what is stray."""
    context = manager.logs.context
    topics = [target.topic for target in erasing.targets]
    for entry in context.fs.entries_in(home):
        if not entry.is_directory:
            continue
        try:
            partition, suffix = parse_directory_name(entry.name)
        except CordwoodError:
            continue
        path, is_target = home / entry.name, erasing.covers(partition)
        is_deleted = suffix == DELETE_DIR_SUFFIX
        if is_deleted and not is_target:
            is_target = is_cut_of_target(entry.name, partition, topics)
        # Without a suffix it is a log's, and a future one is refused with its log.
        if not is_target or suffix in {"", FUTURE_DIR_SUFFIX}:
            continue
        refused = refused_by(context.holds.ids(partition, home))
        if refused is not None:
            erasing.refuse(str(path), partition, refused)
        elif is_deleted:
            erasing.add_removed(home, path)
        else:
            erasing.add_stray(home, path, partition)
