"""Erases records from stopped log directories: search, plan, rewrite, search again, report.

1. Every segment of the topics is searched, and so are the files beside live logs. Nothing changes.
2. What is to be done is written to each log directory (`pending`), and to the ledger.
3. Segments with records to be erased are rewritten and put in place, as by a compaction.
4. Files beside live logs are rewritten; directories that wait for their deletion are removed.
5. What was rewritten is searched again: a record that is still found fails the erasure.

After a crash at any step the next erasure does what is left, whatever its own criteria are, and
reports both as one. What goes wrong with one partition is reported, and the others continue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordwood import __version__
from cordwood.cleanup.commit import CompactionCommitter, StalePlanError
from cordwood.cleanup.compaction_values import OffsetRanges, SegmentSource
from cordwood.cleanup.erasure.bits import present_in
from cordwood.cleanup.erasure.criteria import Suppression, digest_of, parse_target
from cordwood.cleanup.erasure.erased_log import ErasedLog
from cordwood.cleanup.erasure.ledger import LEDGER_NAME, Ledger
from cordwood.cleanup.erasure.loose import (
    LooseFile,
    loose_in,
    partitions_below,
    remove_staged,
    rewrite_loose,
)
from cordwood.cleanup.erasure.offsets import count_in, united, within
from cordwood.cleanup.erasure.pending import Part, Pending
from cordwood.cleanup.erasure.report import FORMAT, hash_of
from cordwood.cleanup.erasure.request import EraseRequest, Erasure, Means
from cordwood.cleanup.erasure.search import Found, Searched
from cordwood.cleanup.request import Listener, Silence
from cordwood.format.file_names import DELETE_DIR_SUFFIX
from cordwood.model.config import LogConfig
from cordwood.model.errors import ConfigError, CordwoodError, EngineError
from cordwood.model.hold import held_by
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import parse_directory_name
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldRegistry
from cordwood.storage.offline_directories import Locks, Place, find_places, locked, open_log_dirs
from cordwood.storage.offline_log_directory import OfflineLogDirectory

_NAME_LENGTH_MAX = 255


def erase(request: EraseRequest, means: Means, *, listener: Listener | None = None) -> Erasure:
    """Erases records from log directories, each under its lock; a dry run only searches.

    Raises:
        ConfigError: a topic is in none of the directories, or the predicate cannot be evaluated.
        DirectoryInUseError: a broker, or another cleaning, runs on a directory.
        NotALogDirError: a directory is not Kafka's.
        CorruptError: the plan of an interrupted erasure, or a ledger, cannot be read.
        EngineError: the engine is needed and unavailable.
    """
    log_dirs = open_log_dirs(request.log_dirs)
    with (
        locked(log_dirs, dry_run=request.dry_run) as locks,
        ThreadPoolExecutor(1, thread_name_prefix="remover") as remover,
    ):
        run = _Erasing(request, means, listener or Silence(), remover, log_dirs)
        run.find(find_places(log_dirs), locks)
        run.read()
        run.search()
        if not request.dry_run:
            run.begin()
            run.rewrite()
            run.rewrite_loose()
            run.remove()
            run.search_again()
        return run.end()


@dataclass(slots=True, kw_only=True)
class _Log:
    """A partition, and what is erased of it."""

    log: ErasedLog
    part: Part | None = None

    @property
    def name(self) -> str:
        """The path by which it is known in plans and reports."""
        return str(self.log.directory.absolute())


@dataclass(slots=True, kw_only=True)
class _Loose:
    """A file beside live logs, and what is erased of it."""

    file: LooseFile
    home: Path
    part: Part | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """The path by which it is known in plans and reports."""
        return str(self.file.path.absolute())


def still_planned(
    part: Part, source: SegmentSource, erased: OffsetRanges, *, name: str | None = None
) -> OffsetRanges:
    """What an interrupted run has planned and not done, of one file.

    Raises:
        StalePlanError: the file has changed since, and still has records at such offsets that this
            run has not found: nobody can say that they are the same ones.
    """
    planned = within(part.erased, source.base_offset, source.next_base_offset)
    if not planned:
        return ()
    facts = part.files.get(name or Path(source.path).name)
    present = present_in(source, planned)
    if facts is not None and facts["size"] == source.size_bytes:
        return present
    if count_in(united([*erased, *present])) > count_in(erased):
        raise StalePlanError(
            f"{source.path}: the log has changed since an erasure was interrupted, and still has "
            f"a record at offset {present[0][0]} that was to be erased. Erase again with the "
            "criteria of that erasure"
        )
    return present


class _Erasing:
    """One call of `erase`."""

    def __init__(
        self,
        request: EraseRequest,
        means: Means,
        listener: Listener,
        remover: ThreadPoolExecutor,
        log_dirs: Sequence[OfflineLogDirectory],
    ) -> None:
        self._request = request
        self._means = means
        self._listener = listener
        self._remover = remover
        self._dirs = [each.path for each in log_dirs]
        self._logs: list[_Log] = []
        self._loose: list[_Loose] = []
        self._searched_dirs: set[Path] = set()
        self._removed: list[tuple[Path, Path]] = []
        self._failed: dict[str, str] = {}
        self._holds = HoldRegistry(OS)
        self._before = {
            home: pending for home in self._dirs if (pending := Pending.read(home)) is not None
        }
        planned = [parse_target(t) for pending in self._before.values() for t in pending.topics]
        self._targets = list(dict.fromkeys([*request.targets, *planned]))
        found = next(iter(self._before.values()), None)
        self._id = request.id if found is None else found.id
        self._criteria = self._all_criteria()

    def _all_criteria(self) -> list[dict[str, Any]]:
        """Those of the interrupted run, and of this one if they are others."""
        mine = self._request.criteria
        found: list[dict[str, Any]] = []
        for pending in self._before.values():
            found += [each for each in pending.criteria if each not in found]
        if self._request.is_from_ledger:
            names = [entry.id for each in self._request.suppressions for entry in each.entries]
            return [*found, {"erasures": names}]
        for known in found:
            salt = bytes.fromhex(known.get("keys", {}).get("salt", ""))
            if mine.described(salt) == known:
                return found
        return [*found, mine.described(self._request.salt)]

    def _covers(self, partition: TopicPartition) -> bool:
        return any(target.covers(partition) for target in self._targets)

    # ---- what there is

    def find(self, places: Sequence[Place], locks: Locks) -> None:
        """The partitions of the topics, and what is beside them.

        Raises:
            ConfigError: a topic is not there.
            DirectoryInUseError: a directory that really holds a partition is in use.
        """
        self._holds.read(self._dirs)
        seen: set[TopicPartition] = set()
        for place in places:
            partition, path = place.partition.topic_partition, place.partition.path
            _, suffix = parse_directory_name(path.name)
            held = self._held(place) if self._covers(partition) else None
            if held is not None:
                self._failed[str(path)] = held
                seen.add(partition)
                continue
            if suffix == DELETE_DIR_SUFFIX and self._is_cut_of_target(path.name, partition):
                self._removed.append((place.log_dir.path, path))
                seen.add(partition)
            if not self._covers(partition) or suffix == DELETE_DIR_SUFFIX:
                continue
            seen.add(partition)
            refused = place.refused
            if not suffix:
                refused = refused or place.partition.left_alone or locks.take_for(place)
            config = self._config_of(partition.topic)
            if refused is None and config.remote_storage_enable:
                refused = (
                    "tiered storage is on: its records in remote storage cannot be reached, and "
                    "an erasure of the local ones alone would not be whole"
                )
            if refused is not None:
                self._failed[str(path)] = refused
            elif suffix:
                self._add_loose(place.log_dir.path, path, partition)
            else:
                log = ErasedLog(
                    place,
                    config,
                    attempt=self._request.id,
                    dry_run=self._request.dry_run,
                    now_ms=self._request.now_ms,
                )
                self._logs.append(_Log(log=log))
        self._find_elsewhere(seen)
        self._require_topics(seen)

    def _held(self, place: Place) -> str | None:
        """Why nothing of a partition may be removed; None where no legal hold is on it."""
        log_dir = place.log_dir.path
        ids = self._holds.ids(place.partition.topic_partition, log_dir)
        damage = self._holds.damage().get(log_dir)
        if damage is not None or not ids:
            return damage
        return f"{held_by(ids)}. Release it with `cordwood hold release` to erase its records"

    def _is_cut_of_target(self, name: str, partition: TopicPartition) -> bool:
        """Whether a directory to be deleted is of a target, whose name may have been cut."""
        return self._covers(partition) or (
            len(name) == _NAME_LENGTH_MAX
            and any(target.topic.startswith(partition.topic) for target in self._targets)
        )

    def _config_of(self, topic: str) -> LogConfig:
        resolved = self._request.resolve(topic)
        return LogConfig() if resolved is None else resolved.config

    def _require_topics(self, seen: set[TopicPartition]) -> None:
        if self._request.is_from_ledger:
            return
        for target in self._request.targets:
            if not any(target.covers(partition) for partition in seen):
                raise ConfigError(
                    f"--topic {target}: no partition of it is in "
                    f"{', '.join(map(str, self._request.log_dirs))}"
                )

    def _find_elsewhere(self, seen: set[TopicPartition]) -> None:
        """Finds files that are not of live logs; the partitions of a trash count as seen."""
        tops = [*self._request.also]
        if self._request.trash is not None:
            tops.append(self._request.trash)
        for top in tops:
            if not OS.exists(top):
                raise ConfigError(f"{top}: there is no such directory")
            for path, partition in partitions_below(top):
                if self._covers(partition):
                    self._add_loose(self._dirs[0], path, partition)
                    if top == self._request.trash:
                        seen.add(partition)

    def _add_loose(self, home: Path, directory: Path, partition: TopicPartition) -> None:
        try:
            files = loose_in(directory, partition)
        except (CordwoodError, OSError) as error:
            self._failed[str(directory)] = str(error)
            return
        self._loose += [_Loose(file=file, home=home) for file in files]
        self._searched_dirs.add(directory)

    def _alive(self) -> list[_Log]:
        return [each for each in self._logs if not each.log.outcome.error]

    def read(self) -> None:
        """Finishes half-done work, and reads every log."""
        self._listener.begin("reading partitions", len(self._logs))
        for each in self._logs:
            log = each.log
            with log.guard():
                if not self._request.dry_run:
                    log.recover()
                log.capture()
                self._loose += [_Loose(file=f, home=log.log_dir.path) for f in log.loose]
            self._listener.advance(each.name)

    # ---- what is found

    def search(self) -> None:
        """Finds the records, in all files at once; adds what an interrupted run has planned."""
        wanted = [
            Searched(partition=each.log.partition, source=source)
            for each in self._alive()
            for source in each.log.sources
        ]
        wanted += [
            Searched(partition=each.file.partition, source=each.file.source) for each in self._loose
        ]
        found = self._found_in([each for each in wanted if self._is_searched(each.partition)])
        for each in self._alive():
            with each.log.guard():
                each.part = self._part_of_log(each, found)
        for one in self._loose:
            try:
                one.part = self._part_of_file(one, found.get(one.file.source.path))
            except (CordwoodError, OSError) as error:
                one.error = str(error)

    def _is_searched(self, partition: TopicPartition) -> bool:
        """Whether it is a target of this run, not only of one that was interrupted."""
        return any(target.covers(partition) for target in self._request.targets)

    def _found_in(self, wanted: Sequence[Searched]) -> dict[str, Found]:
        total = sum(each.source.size_bytes for each in wanted)
        self._listener.begin("searching", len(wanted))
        searcher = self._means.searcher(total)
        found = dict(zip((each.source.path for each in wanted), searcher.find(wanted), strict=True))
        self._listener.advance("searching")
        return found

    def _earlier(self, home: Path, name: str) -> Part | None:
        pending = self._before.get(home)
        return None if pending is None else pending.parts.get(name)

    def _part_of_log(self, each: _Log, found: Mapping[str, Found]) -> Part | None:
        log, sources = each.log, each.log.sources
        files = [found[source.path] for source in sources if source.path in found]
        erased = united(r for one in files for r in one.offsets)
        earlier = self._earlier(log.log_dir.path, each.name)
        if earlier is not None:
            left = [r for source in sources for r in still_planned(earlier, source, erased)]
            return replace(earlier, erased=united([*earlier.erased, *left, *erased]))
        if len(files) < len(sources):
            return None
        return Part(
            partition=str(log.partition),
            erased=erased,
            records=sum(one.records for one in files),
            bytes=sum(source.size_bytes for source in sources),
            files=log.files(),
            end=log.captured.view.log_end_offset,
        )

    def _part_of_file(self, one: _Loose, found: Found | None) -> Part | None:
        erased = () if found is None else found.offsets
        earlier = self._earlier(one.home, one.name)
        if earlier is not None:
            still_planned(earlier, one.file.source, erased, name=one.name)
            return replace(earlier, erased=united([*earlier.erased, *erased]))
        if found is None:
            return None
        return Part(
            partition=str(one.file.partition),
            erased=found.offsets,
            records=found.records,
            bytes=one.file.source.size_bytes,
            files={one.name: hash_of(one.file.path)},
        )

    # ---- the work

    def begin(self) -> None:
        """Writes down what will be done: durably, before anything changes."""
        for home in self._dirs:
            parts = {e.name: e.part for e in self._parts(home) if e.part is not None}
            removed = [str(path) for where, path in self._removed if where == home]
            earlier = self._before.get(home)
            if earlier is not None:
                parts = {**earlier.parts, **parts}
                removed = [*earlier.removed, *(r for r in removed if r not in earlier.removed)]
            Pending(
                id=self._id,
                criteria=tuple(self._criteria),
                topics=tuple(map(str, self._targets)),
                parts=parts,
                removed=tuple(removed),
            ).write(home)
        if not self._request.is_from_ledger:
            self._note_in_ledgers()

    def _parts(self, home: Path) -> list[_Log | _Loose]:
        logs: list[_Log | _Loose] = [e for e in self._logs if e.log.log_dir.path == home]
        return logs + [e for e in self._loose if e.home == home]

    def _note_in_ledgers(self) -> None:
        request = self._request
        paths = [request.ledger] if request.ledger else [h / LEDGER_NAME for h in self._dirs]
        for path in paths:
            ledger = Ledger(path, salt=request.ledger_salt)
            parts = [each.part for each in self._logs if each.part is not None]
            keys = request.criteria.keys
            ledger.add(
                Suppression(
                    id=request.id,
                    time_ms=request.now_ms,
                    targets=request.targets,
                    until={part.partition: part.end for part in parts if part.end is not None},
                    digests=frozenset(digest_of(key, ledger.salt) for key in keys),
                    where=request.criteria.where,
                )
            )

    def rewrite(self) -> None:
        """Rewrites the segments of live logs, and puts them in place."""
        work: list[tuple[_Log, CompactionCommitter]] = []
        for each in self._alive():
            with each.log.guard():
                each.log.cut_tail()
                committer = each.log.committer(
                    self._erased(each), self._remover, space_max=self._request.max_extra_bytes
                )
                if committer is not None:
                    work.append((each, committer))
        if not work:
            return
        engine = self._means.engine(sum(c.compaction.size_bytes for _, c in work))
        try:
            engine.run([committer for _, committer in work])
        except EngineError as error:
            for _, committer in work:
                if not committer.done:
                    committer.result.error = committer.result.error or error
        except BaseException:
            for each, committer in work:
                each.log.abandon(committer)
            raise
        for each, committer in work:
            with each.log.guard():
                each.log.finish(committer)

    def _erased(self, each: _Log | _Loose) -> OffsetRanges:
        return () if each.part is None else each.part.erased

    def rewrite_loose(self) -> None:
        """Rewrites the files beside live logs that have records to be erased."""
        for directory in self._searched_dirs:
            remove_staged(directory)
        for one in self._loose:
            if self._erased(one):
                try:
                    rewrite_loose(
                        one.file,
                        self._erased(one),
                        token=self._request.id,
                        space_max=self._request.max_extra_bytes,
                    )
                except (CordwoodError, OSError) as error:
                    one.error = str(error)

    def remove(self) -> None:
        """Removes the directories of the topics that wait for their deletion."""
        for _, path in self._removed:
            try:
                OS.remove_tree(path)
            except (CordwoodError, OSError) as error:
                self._failed[str(path)] = str(error)

    def search_again(self) -> None:
        """Searches what was rewritten: nothing must be found.

        Raises:
            CorruptError, OSError, EngineError: as the first search.
        """
        wanted: list[tuple[_Log | _Loose, Searched]] = []
        for each in self._alive():
            wanted += [
                (each, Searched(partition=each.log.partition, source=source))
                for source in each.log.touched(self._erased(each))
            ]
        for one in self._loose:
            if self._erased(one) and not one.error:
                files = loose_in(one.file.path.parent, one.file.partition)
                source = next(f.source for f in files if f.path == one.file.path)
                wanted.append((one, Searched(partition=one.file.partition, source=source)))
        searched = [each for _, each in wanted if self._is_searched(each.partition)]
        found = self._found_in(searched) if searched else {}
        for owner, each_of in wanted:
            path = each_of.source.path
            left = united(
                [
                    *present_in(each_of.source, self._erased(owner)),
                    *(found[path].offsets if path in found else ()),
                ]
            )
            if left:
                text = f"records are still found after the erasure, first at offset {left[0][0]}"
                self._failed[owner.name] = f"{path}: {text}"

    # ---- the result

    def end(self) -> Erasure:
        """The report; the plan is forgotten if nothing failed."""
        for each in self._logs:
            if each.log.outcome.error:
                self._failed[each.name] = each.log.outcome.error
        for one in self._loose:
            if one.error:
                self._failed[one.name] = one.error
        self._require_all_planned()
        removed = {str(path) for _, path in self._removed}
        removed |= {path for pending in self._before.values() for path in pending.removed}
        warnings = [
            f"{each.log.partition}: {warning}"
            for each in self._logs
            for warning in each.log.outcome.warnings
        ]
        report = {
            "format": FORMAT,
            "tool": f"cordwood {__version__}",
            "id": self._id,
            "time_ms": self._request.now_ms,
            "operator": self._request.operator,
            "reason": self._request.reason,
            "status": self._status(),
            "topics": [str(target) for target in self._targets],
            "criteria": self._criteria,
            "partitions": [self._entry_of_log(each) for each in self._logs if each.part],
            "beside": [self._entry_of_file(one) for one in self._loose if self._erased(one)],
            "removed": sorted(removed | {r for e in self._logs for r in e.log.outcome.removed}),
            "failed": dict(sorted(self._failed.items())),
        }
        if not self._request.dry_run and not self._failed:
            for home in self._dirs:
                Pending.end(home)
        return Erasure(report=report, failed=self._failed, warnings=tuple(warnings))

    def _require_all_planned(self) -> None:
        """Fails what an interrupted run had planned, is still there, and was not looked at."""
        known = {*(each.name for each in self._logs), *(each.name for each in self._loose)}
        for pending in self._before.values():
            for name in pending.parts:
                if name not in known and OS.exists(Path(name)):
                    self._failed.setdefault(
                        name,
                        "it is part of an erasure that was interrupted; name its directory, too, "
                        "for its rest to be done",
                    )

    def _status(self) -> str:
        if self._failed:
            return "failed"
        return "planned" if self._request.dry_run else "erased"

    def _entry_of_log(self, each: _Log) -> dict[str, Any]:
        part = each.part
        assert part is not None, "there are entries only for what was searched"
        log, erased = each.log, count_in(part.erased)
        entry: dict[str, Any] = {
            "partition": part.partition,
            "directory": each.name,
            "erased": erased,
            "offsets": [list(each) for each in part.erased],
            "records_before": part.records,
            "bytes_before": part.bytes,
        }
        if self._request.dry_run or log.outcome.error:
            return entry
        touched = {source.base_offset for source in log.touched(part.erased)}
        stay = {
            name: facts
            for name, facts in part.files.items()
            if int(name.partition(".")[0]) not in touched
        }
        after = log.files(stay)
        names = sorted({*part.files, *after})
        return entry | {
            "records_after": part.records - erased,
            "bytes_after": sum(source.size_bytes for source in log.sources),
            "log_end_offset": log.captured.view.log_end_offset,
            "files": [
                {"name": name, "before": part.files.get(name), "after": after.get(name)}
                for name in names
            ],
        }

    def _entry_of_file(self, one: _Loose) -> dict[str, Any]:
        part = one.part
        assert part is not None, "there are entries only for what was searched"
        entry: dict[str, Any] = {
            "path": one.name,
            "partition": part.partition,
            "erased": count_in(part.erased),
            "offsets": [list(each) for each in part.erased],
            "before": part.files[one.name],
        }
        if self._request.dry_run or one.error:
            return entry
        return entry | {"after": hash_of(one.file.path)}
