"""Erases records from stopped log directories; the steps are those of `erasing`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

from cordwood.cleanup.access.offline.directories import (
    Locks,
    Place,
    find_places,
    locked,
    open_log_dirs,
)
from cordwood.cleanup.access.offline.run import OfflineRun
from cordwood.cleanup.access.owned_logs import is_archived, owned_log
from cordwood.cleanup.engine.run_directory import RunDirectory
from cordwood.cleanup.erasure.erased_log import ErasedLog
from cordwood.cleanup.erasure.erasing import Erasing
from cordwood.cleanup.erasure.refusals import TIERED, refused_by
from cordwood.cleanup.erasure.request import EraseRequest, Erasure, ErasureBackend
from cordwood.cleanup.erasure.stray_files import partitions_below
from cordwood.cleanup.plan.request import Listener, Silence
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import DELETE_DIR_SUFFIX, TRASH_ID, TRASH_MARK
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import parse_directory_name
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldRegistry
from cordwood.storage.trash_presence import noted_trashes

_NAME_LENGTH_MAX = 255
_NO_TRASH = (
    "a broker has used this trash, which is missing, and may have such records: mount its disk and "
    "erase again; if it is lost, remove {}"
)


def erase(
    request: EraseRequest, backend: ErasureBackend, *, listener: Listener | None = None
) -> Erasure:
    """Erases records from log directories, each under its lock; a dry run only searches.

    Raises:
        ConfigError: a topic is in none of the directories, or the expression cannot be evaluated.
        DirectoryInUseError: a broker, or another cleaning, runs on a directory.
        NotALogDirError: a directory is not Kafka's.
        CorruptError: the plan of an interrupted erasure, or a ledger, cannot be read.
        EngineError: the engine is needed and unavailable.
    """
    log_dirs = open_log_dirs(request.log_dirs)
    homes = [each.path for each in log_dirs]
    with (
        locked(log_dirs, dry_run=request.dry_run) as locks,
        ThreadPoolExecutor(1, thread_name_prefix="remover") as remover,
        RunDirectory() if any(map(is_archived, homes)) else nullcontext() as scratch,
    ):
        holds = HoldRegistry(OS)
        holds.read(homes)
        erasing = Erasing(request, backend, homes, holds=holds, listener=listener or Silence())
        run = OfflineRun(
            clock=SystemClock(), now_ms=request.now_ms, remover=remover, only_reads=request.dry_run
        )
        scratch_dir = None if scratch is None else scratch.path
        finder = _Finder(request, erasing, homes, holds, run, scratch_dir)
        finder.find(find_places(log_dirs), locks)
        finder.find_elsewhere()
        finder.require_topics()
        found = erasing.run()
    if request.is_from_ledger:  # of a copy, which is no replica
        return found
    erased = {TopicPartition.parse(each.partition) for each in found.report.partitions}
    return found.with_elsewhere({str(p): request.elsewhere(p) for p in sorted(erased)})


def is_cut_of_target(name: str, partition: TopicPartition, topics: Sequence[str]) -> bool:
    """Whether a directory to be deleted is of one of some topics, whose name was cut."""
    return len(name) == _NAME_LENGTH_MAX and any(
        topic.startswith(partition.topic) for topic in topics
    )


class _Finder:
    """Adds the partitions of the topics, and what is beside them, to an erasure."""

    def __init__(
        self,
        request: EraseRequest,
        erasing: Erasing,
        homes: Sequence[Path],
        holds: HoldRegistry,
        run: OfflineRun,
        scratch: Path | None,
    ) -> None:
        self._request = request
        self._scratch = scratch
        self._erasing = erasing
        self._homes = list(homes)
        self._run = run
        self._holds = holds
        self._seen: set[TopicPartition] = set()
        #: What was searched: one directory may have several names.
        self._searched: set[object] = set()

    def find(self, places: Sequence[Place], locks: Locks) -> None:
        """Adds what is in the log directories.

        Raises:
            DirectoryInUseError: a directory that really holds a partition is in use.
        """
        for place in places:
            self._add(place, locks)
            # Beside a running broker it may be gone by now.
            with suppress(FileNotFoundError):
                self._searched.add(OS.identity_of(place.partition.path))

    def _add(self, place: Place, locks: Locks) -> None:
        erasing, partition = self._erasing, place.partition.topic_partition
        path, home = place.partition.path, place.log_dir.path
        is_target = erasing.covers(partition)
        _, suffix = parse_directory_name(path.name)
        held = self._held(place) if is_target else None
        if held is not None:
            erasing.refuse(str(path), partition, held)
            self._seen.add(partition)
            return
        if suffix == DELETE_DIR_SUFFIX:
            topics = [target.topic for target in erasing.targets]
            if is_target or is_cut_of_target(path.name, partition, topics):
                erasing.add_removed(home, path)
                self._seen.add(partition)
            return
        if not is_target:
            return
        self._seen.add(partition)
        config = self._config_of(partition.topic)
        refused = self._refused(place, config, locks, is_live=not suffix)
        if refused is not None:
            erasing.refuse(str(path), partition, refused)
        elif suffix:
            erasing.add_stray(home, path, partition)
        else:
            access = owned_log(self._run, place, config=config, scratch=self._scratch)
            erasing.add_log(ErasedLog(access, self._request))

    def _refused(
        self, place: Place, config: LogConfig, locks: Locks, *, is_live: bool
    ) -> str | None:
        refused = place.refused
        if is_live:
            refused = refused or place.partition.left_alone or locks.take_for(place)
        if refused is None and config.remote_storage_enable:
            return TIERED
        return refused

    def _held(self, place: Place) -> str | None:
        """Why nothing of a partition may be removed; None where no legal hold is on it."""
        log_dir = place.log_dir.path
        ids = self._holds.ids(place.partition.topic_partition, log_dir)
        damage = self._holds.damage().get(log_dir)
        return damage if damage is not None else refused_by(ids)

    def _config_of(self, topic: str) -> LogConfig:
        resolved = self._request.resolve(topic)
        return LogConfig() if resolved is None else resolved.config

    def find_elsewhere(self) -> None:
        """Adds what is in a trash, whose partitions count as found, and in other directories.

        Raises:
            ConfigError: a directory is not there.
        """
        trashes = self._trashes()
        for top in dict.fromkeys([*self._request.also, *trashes]):
            if not OS.exists(top):
                raise ConfigError(f"{top}: there is no such directory")
            # An interrupted run is continued by names, whichever way each run was given them.
            for path, partition in partitions_below(top.resolve()):
                if not self._erasing.covers(partition):
                    continue
                if top in trashes:
                    self._seen.add(partition)
                identity = OS.identity_of(path)
                if identity not in self._searched:
                    self._searched.add(identity)
                    self._add_elsewhere(path, partition)

    def _add_elsewhere(self, path: Path, partition: TopicPartition) -> None:
        if self._config_of(partition.topic).remote_storage_enable:
            self._erasing.refuse(str(path), partition, TIERED)
        else:
            self._erasing.add_elsewhere(path, partition)

    def _trashes(self) -> list[Path]:
        """The trash that is named, and those that brokers of the log directories have used.

        One of the latter that is missing fails, by its name: it may have such records.
        """
        found = [] if self._request.trash is None else [self._request.trash]
        if self._request.is_from_ledger:
            return found
        for home in self._homes:
            for path in map(Path, noted_trashes(home)):
                if OS.exists(path / TRASH_ID):
                    found.append(path)
                else:
                    self._erasing.fail(str(path), _NO_TRASH.format(home / TRASH_MARK))
        return list(dict.fromkeys(found))

    def require_topics(self) -> None:
        """Requires a partition of each topic; a ledger may name topics that are gone.

        Raises:
            ConfigError: a topic is not there.
        """
        if self._request.is_from_ledger:
            return
        for target in self._request.targets:
            if not any(target.covers(partition) for partition in self._seen):
                raise ConfigError(
                    f"--topic {target}: no partition of it is in "
                    f"{', '.join(map(str, self._request.log_dirs))}"
                )
