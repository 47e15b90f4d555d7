"""The steps of an erasure, of stopped logs or of running ones.

1. Every segment of the topics is searched, and so are the files beside live logs. Nothing changes.
   A log with a segment that cannot be searched fails as a whole, and a file beside logs by itself.
2. What is to be done is written to each log directory (`pending`), with the lines for the ledgers.
3. Segments with records to be erased are rewritten and put in place, as by a compaction.
4. Files beside live logs are rewritten; directories that wait for their deletion are removed.
5. What was rewritten is searched again: a record that is still found fails the erasure.
6. The ledgers get their lines, and what step 2 has written is removed.

After a crash before step 2 nothing has changed. After one at a later step the next erasure does
what is left, whatever its own criteria are, and reports both as one. What goes wrong with one
partition is reported, and the others continue. What is refused, such as a partition with a legal
hold, is in no plan and in no ledger; where all is refused, nothing is written. What lies in a
trash, or in another directory that is named, is refused with its partition, and a legal hold also
stops what is not rewritten yet when it comes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cordwood import __version__
from cordwood.cleanup.access.announcements import remove_staged
from cordwood.cleanup.access.commit import CompactionCommitter, Engine
from cordwood.cleanup.engine.search.offsets import count_in
from cordwood.cleanup.erasure.criteria import (
    Suppression,
    Target,
    digest_of,
    hash_of_key,
    narrowed,
    parse_target,
)
from cordwood.cleanup.erasure.erased_log import ErasedLog
from cordwood.cleanup.erasure.ledger import LEDGER_NAME, Ledger
from cordwood.cleanup.erasure.pending import Pending
from cordwood.cleanup.erasure.planned_files import LogErasure, StrayErasure
from cordwood.cleanup.erasure.record_search import RecordSearch
from cordwood.cleanup.erasure.refusals import Refusals
from cordwood.cleanup.erasure.report import (
    FORMAT,
    DescribedCriteria,
    ErasureReport,
    ReportStatus,
    audit_erasure,
)
from cordwood.cleanup.erasure.request import EraseRequest, Erasure, ErasureBackend
from cordwood.cleanup.erasure.stray_files import (
    rewrite_stray,
    stray_files_in,
)
from cordwood.cleanup.plan.request import Listener
from cordwood.cleanup.schedule.cleaning import execute
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import parse_directory_name
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.holds import HoldRegistry


class Erasing:
    """One erasure of the logs and files that are added to it, in the log directories `homes`."""

    def __init__(
        self,
        request: EraseRequest,
        backend: ErasureBackend,
        homes: Sequence[Path],
        *,
        holds: HoldRegistry,
        listener: Listener,
        fs: FileSystem = OS,
    ) -> None:
        """Reads what an interrupted erasure has left in `homes`, whose legal holds are `holds`.

        Raises:
            CorruptError: it cannot be read.
        """
        self._request = request
        self._backend = backend
        self._listener = listener
        self._fs = fs
        self._homes = list(homes)
        self._logs: list[LogErasure] = []
        self._strays: list[StrayErasure] = []
        self._searched_dirs: set[Path] = set()
        self._removed: list[tuple[Path, Path]] = []
        self._failed: dict[str, str] = {}
        self._refusals = Refusals(holds, homes)
        #: The names of what had failed before anything was written.
        self._unplanned: set[str] = set()
        self._ledgers: dict[str, list[dict[str, Any]]] = {}
        self._before = {
            home: pending
            for home in self._homes
            if (pending := Pending.read(home, fs=fs)) is not None
        }
        self._search = RecordSearch(request, backend, self._before, listener=listener, fs=fs)
        planned = [parse_target(t) for pending in self._before.values() for t in pending.topics]
        #: The topics of this erasure, and of one that was interrupted.
        self.targets = list(dict.fromkeys([*request.targets, *planned]))
        found = next(iter(self._before.values()), None)
        self._id = request.id if found is None else found.id
        self._criteria = self._all_criteria()

    def _all_criteria(self) -> list[DescribedCriteria]:
        """The criteria of the interrupted run, and of this one if they are others."""
        mine = self._request.criteria
        found: list[DescribedCriteria] = []
        for pending in self._before.values():
            found += [each for each in pending.criteria if each not in found]
        if self._request.is_from_ledger:
            entries = (entry for each in self._request.suppressions for entry in each.entries)
            return [*found, DescribedCriteria(erasures=tuple(entry.id for entry in entries))]
        for known in found:
            salt = bytes.fromhex("" if known.keys is None else known.keys.salt)
            if mine.described(salt) == known:
                return found
        return [*found, mine.described(self._request.salt)]

    def covers(self, partition: TopicPartition) -> bool:
        """Whether a partition is one of `targets`."""
        return any(target.covers(partition) for target in self.targets)

    # ---- what there is

    def refuse(self, name: str, partition: TopicPartition, reason: str) -> None:
        """Reports a partition's directory, by its path, of which nothing may be erased."""
        self._failed[name] = reason
        self._refusals.partitions.setdefault(partition, reason)

    def fail(self, name: str, reason: str) -> None:
        """Reports a file or directory that may have such records and cannot be read."""
        self._failed[name] = reason

    def add_log(self, log: ErasedLog) -> None:
        """Adds a log."""
        self._logs.append(LogErasure(log=log))

    def add_stray(
        self, home: Path, directory: Path, partition: TopicPartition, *, is_elsewhere: bool = False
    ) -> None:
        """Adds the log files of a directory that is no live log's, in `home` or elsewhere."""
        try:
            files = stray_files_in(directory, partition, fs=self._fs)
        except (CordwoodError, OSError) as error:
            self._failed[str(directory)] = str(error)
            return
        self._strays += [
            StrayErasure(file=file, home=home, is_elsewhere=is_elsewhere) for file in files
        ]
        self._searched_dirs.add(directory)

    def add_elsewhere(self, directory: Path, partition: TopicPartition) -> None:
        """Adds a directory that is in none of `homes`, such as one in a trash; after all others.

        It is refused if its partition is: where its files are changes nothing of a legal hold.
        """
        refused = self._refusals.elsewhere(partition)
        if refused is not None:
            self.refuse(str(directory), partition, refused)
        else:
            self.add_stray(self._homes[0], directory, partition, is_elsewhere=True)

    def add_removed(self, home: Path, directory: Path) -> None:
        """Adds a directory that goes as a whole."""
        self._removed.append((home, directory))

    def run(self) -> Erasure:
        """Does all that the module describes; a dry run only searches.

        Raises:
            ConfigError: the expression cannot be evaluated.
            CorruptError: a ledger cannot be read.
            EngineError: the engine is needed and unavailable.
            OSError, NoSpaceError: the disk refused the plan; nothing was changed.
        """
        self._read()
        self._search.search(self._logs, self._strays)
        if self._is_refused():
            return self._end(ReportStatus.REFUSED)
        if self._request.dry_run:
            return self._end(ReportStatus.PLANNED)
        engine = self._engine()
        self._begin()
        self._rewrite(engine)
        self._give_up()
        self._rewrite_stray()
        self._remove()
        self._search_again()
        return self._end(ReportStatus.ERASED)

    def _is_refused(self) -> bool:
        """Whether there is nothing that may be done."""
        return bool(self._broken() or self._failed) and not (self._before or self._begun())

    def _engine(self) -> Engine | None:
        """The engine that rewrites segments, None if there are none; before anything is written.

        Raises:
            CordwoodError: what is needed is not installed.
        """
        touched = [s for e in self._alive() for s in e.log.touched(e.erased)]
        if not touched:
            return None
        return self._backend.engine(sum(source.size_bytes for source in touched))

    def _broken(self) -> set[TopicPartition]:
        """The partitions of which something has failed."""
        return {each.partition for each in self._everything() if each.error}

    def _begun(self) -> set[TopicPartition]:
        """The partitions of which something is done."""
        begun = {e.partition for e in self._everything() if e.planned is not None and not e.error}
        begun |= {parse_directory_name(path.name)[0] for _, path in self._removed}
        return begun - self._refusals.partitions.keys()

    def _alive(self) -> list[LogErasure]:
        return [each for each in self._logs if not each.error]

    def _read(self) -> None:
        """Finishes half-done work, and reads every log."""
        self._listener.begin("reading partitions", len(self._logs))
        for each in self._logs:
            log = each.log
            with log.guard():
                if not self._request.dry_run:
                    log.recover()
                log.capture()
                self._strays += [StrayErasure(file=f, home=log.home) for f in log.strays]
            self._listener.advance(each.name)

    # ---- the work

    def _begin(self) -> None:
        """Writes down what will be done: durably, before anything changes.

        Raises:
            ConfigError, CorruptError: a ledger cannot be read; nothing was written.
            OSError, NoSpaceError: the disk refused; what was written is removed.
        """
        request, begun = self._request, self._begun()
        without = (self._refusals.partitions.keys() | self._broken()) - begun
        mine = narrowed(request.targets, without=without, known=begun)
        self._unplanned = {*self._failed, *(e.name for e in self._everything() if e.error)}
        for pending in self._before.values():
            for path, lines in pending.ledgers.items():
                known = self._ledgers.setdefault(path, [])
                known += [line for line in lines if line not in known]
        ledgers = self._open_ledgers() if mine and not request.is_from_ledger else []
        with ExitStack() as undo:
            for ledger in ledgers:
                if ledger.is_new:
                    undo.callback(self._fs.remove, ledger.path)
                ledger.begin()
                line = self._suppression(ledger.salt, mine).to_json()
                self._ledgers.setdefault(str(ledger.path.absolute()), []).append(line)
            for home in self._homes:
                before = self._before.get(home)
                undo.callback(self._write_back, home, before)
                self._pending_of(home, mine).write(home, fs=self._fs)
            undo.pop_all()

    def _write_back(self, home: Path, before: Pending | None) -> None:
        """Restores the earlier plan, as far as the disk, which has just refused, lets it."""
        with suppress(OSError, CordwoodError):
            if before is None:
                Pending.end(home, fs=self._fs)
            else:
                before.write(home, fs=self._fs)

    def _pending_of(self, home: Path, mine: tuple[Target, ...]) -> Pending:
        parts = {
            e.name: e.planned
            for e in self._everything()
            if e.home == home and e.planned is not None and e.name not in self._unplanned
        }
        removed = [str(path) for where, path in self._removed if where == home]
        earlier = self._before.get(home)
        if earlier is not None:
            parts = {**earlier.parts, **parts}
            removed = [*earlier.removed, *(r for r in removed if r not in earlier.removed)]
        planned = [parse_target(each) for p in self._before.values() for each in p.topics]
        found = [each for pending in self._before.values() for each in pending.criteria]
        return Pending(
            id=self._id,
            criteria=tuple(self._criteria if mine else found),
            topics=tuple(map(str, dict.fromkeys([*mine, *planned]))),
            parts=parts,
            removed=tuple(removed),
            ledgers={path: tuple(lines) for path, lines in self._ledgers.items()},
        )

    def _everything(self) -> list[LogErasure | StrayErasure]:
        return [*self._logs, *self._strays]

    def _open_ledgers(self) -> list[Ledger]:
        request = self._request
        paths = [request.ledger] if request.ledger else [h / LEDGER_NAME for h in self._homes]
        return [Ledger(path, salt=request.ledger_salt, fs=self._fs) for path in paths]

    def _suppression(self, salt: bytes, targets: tuple[Target, ...]) -> Suppression:
        """The line of this erasure in a ledger, without the partitions that are refused."""
        request = self._request
        counts: dict[str, int] = {}
        until: dict[str, int] = {}
        for each in self._everything():
            planned = each.planned
            if planned is None or each.name in self._unplanned:
                continue
            counts[planned.partition] = counts.get(planned.partition, 0) + count_in(planned.erased)
            if planned.end is not None:
                until[planned.partition] = planned.end
        return Suppression(
            id=request.id,
            time_ms=request.now_ms,
            targets=targets,
            until=until,
            digests=frozenset(digest_of(key, salt) for key in request.criteria.keys),
            where=request.criteria.where,
            erased=counts,
        )

    def _note_in_ledgers(self, unfinished: Collection[TopicPartition]) -> None:
        """Adds what was erased to the ledgers, without some partitions; a failure is reported."""
        begun = self._begun()
        for path, lines in self._ledgers.items():
            try:
                ledger = Ledger(Path(path), salt=self._request.ledger_salt, fs=self._fs)
                for line in lines:
                    entry = Suppression.from_json(line)
                    targets = narrowed(entry.targets, without=unfinished, known=begun)
                    names = set(map(str, unfinished))
                    erased = {name: n for name, n in entry.erased.items() if name not in names}
                    if targets:
                        ledger.add(replace(entry, targets=targets, erased=erased))
            except (CordwoodError, OSError) as error:
                self._failed[path] = f"the erasure could not be noted in this ledger: {error}"

    def _rewrite(self, engine: Engine | None) -> None:
        """Rewrites the segments of live logs, and puts them in place."""
        work: list[tuple[LogErasure, CompactionCommitter]] = []
        for each in self._alive():
            with each.log.guard():
                each.log.cut_tail()
                committer = each.log.committer(each.erased)
                if committer is not None:
                    work.append((each, committer))
        if not work:
            return
        assert engine is not None, "there is one where segments are touched"
        execute(engine, [(each.log, committer) for each, committer in work])
        for each, committer in work:
            with each.log.guard():
                each.log.finish(committer)

    def _give_up(self) -> None:
        """Gives up partitions that a legal hold forbids by now, or whose log was stopped."""
        stopped: dict[TopicPartition, str] = {}
        for each in self._logs:
            if each.log.result.is_refused:
                stopped[each.log.partition] = each.log.result.error
                self._give_up_one(each.name, each.log.partition, each.log.result.error)
        for one in self._strays:
            if not one.erased:
                continue
            partition = one.file.partition
            if one.is_elsewhere:
                refused = self._refusals.elsewhere(partition)
            else:
                refused = stopped.get(partition) or self._refusals.in_home(partition, one.home)
            if refused is not None:
                self._give_up_one(one.name, partition, refused)
                one.planned = None
        for home, path in list(self._removed):
            partition, _ = parse_directory_name(path.name)
            refused = self._refusals.in_home(partition, home)
            if refused is not None:
                self._give_up_one(str(path), partition, refused)
                self._removed.remove((home, path))

    def _give_up_one(self, name: str, partition: TopicPartition, reason: str) -> None:
        self.refuse(name, partition, reason)
        self._refusals.given_up.add(name)

    def _rewrite_stray(self) -> None:
        """Rewrites the files beside live logs that have records to be erased."""
        for directory in self._searched_dirs:
            remove_staged(directory, fs=self._fs)
        for one in self._strays:
            if one.erased:
                try:
                    rewrite_stray(
                        one.file,
                        one.erased,
                        token=self._request.id,
                        space_max=self._request.max_extra_bytes,
                        fs=self._fs,
                    )
                except (CordwoodError, OSError) as error:
                    one.error = str(error)

    def _remove(self) -> None:
        """Removes the directories of the topics that wait for their deletion."""
        for _, path in self._removed:
            try:
                self._fs.remove_tree(path)
            except (CordwoodError, OSError) as error:
                self._failed[str(path)] = str(error)

    def _search_again(self) -> None:
        """Searches the rewritten files: nothing must be found.

        Raises:
            CorruptError, OSError, EngineError: as `RecordSearch.search_again`.
        """
        for each in self._alive():
            with each.log.guard():
                each.log.conclude()
        self._failed |= self._search.search_again(self._logs, self._strays)

    # ---- the result

    def _end(self, status: ReportStatus) -> Erasure:
        """The report; the plan is forgotten unless some of it is left to be done."""
        self._failed |= {e.name: e.error for e in self._everything() if e.error}
        self._require_all_planned()
        if status is ReportStatus.ERASED:
            self._conclude()
        if self._failed and status is not ReportStatus.REFUSED:
            status = ReportStatus.FAILED
        removed = {str(path) for _, path in self._removed}
        removed |= {path for pending in self._before.values() for path in pending.removed}
        removed -= self._failed.keys()
        warnings = [
            f"{each.log.partition}: {warning}"
            for each in self._logs
            for warning in each.log.result.warnings
        ]
        is_done = not self._request.dry_run
        report = ErasureReport(
            format=FORMAT,
            tool=f"cordwood {__version__}",
            id=self._id,
            time_ms=self._request.now_ms,
            operator=self._request.operator,
            reason=self._request.reason,
            status=status,
            topics=[str(target) for target in self.targets],
            criteria=self._criteria,
            keys=self._counts_of_keys(),
            partitions=[e.entry(is_done=is_done) for e in self._logs if e.planned],
            beside=[one.entry(is_done=is_done, fs=self._fs) for one in self._strays if one.erased],
            removed=sorted(removed | {r for e in self._logs for r in e.log.result.removed}),
            failed=dict(sorted(self._failed.items())),
        )
        if is_done:
            audit_erasure(report)
        return Erasure(report=report, failed=self._failed, warnings=tuple(warnings))

    def _counts_of_keys(self) -> dict[str, int]:
        """The number of records found for each key, by the key's hash.

        Nothing where an interrupted run was completed: of what it had done, nobody counts.
        """
        if self._before:
            return {}
        request = self._request
        keys = request.criteria.keys
        return {hash_of_key(key, request.salt): self._search.by_key[key] for key in sorted(keys)}

    def _conclude(self) -> None:
        """Notes in the ledgers what was erased, and forgets the plan if none of it is left."""
        planned = {name for pending in self._before.values() for name in pending.parts}
        given_up = self._refusals.given_up
        left = self._failed.keys() - (self._unplanned | given_up) | self._failed.keys() & planned
        self._note_in_ledgers(self._broken() | self._refusals.partitions.keys())
        for home in self._homes:
            if not left and not self._failed.keys() & self._ledgers.keys():
                Pending.end(home, fs=self._fs)
                continue
            pending = Pending.read(home, fs=self._fs)
            if pending is not None and given_up & {*pending.parts, *pending.removed}:
                rest = {n: each for n, each in pending.parts.items() if n not in given_up}
                removed = tuple(name for name in pending.removed if name not in given_up)
                replace(pending, parts=rest, removed=removed).write(home, fs=self._fs)

    def _require_all_planned(self) -> None:
        """Fails what an interrupted run had planned, is still there, and was not looked at."""
        known = {*(each.name for each in self._logs), *(each.name for each in self._strays)}
        for pending in self._before.values():
            for name in pending.parts:
                if name not in known and self._fs.exists(Path(name)):
                    refused = self._failed.get(str(Path(name).parent))
                    self._failed.setdefault(
                        name,
                        refused
                        or "it is part of an erasure that was interrupted; name its directory, "
                        "too, for its rest to be done",
                    )
