"""The steps of an erasure, of stopped logs or of running ones.

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cordwood import __version__
from cordwood.cleanup.cleaning import execute
from cordwood.cleanup.commit import CompactionCommitter, StalePlanError
from cordwood.cleanup.compaction_values import OffsetRanges, SegmentSource
from cordwood.cleanup.erasure.bits import present_in
from cordwood.cleanup.erasure.criteria import Suppression, digest_of, parse_target
from cordwood.cleanup.erasure.erased_partition import ErasedPartition
from cordwood.cleanup.erasure.ledger import LEDGER_NAME, Ledger
from cordwood.cleanup.erasure.loose import LooseFile, loose_in, remove_staged, rewrite_loose
from cordwood.cleanup.erasure.offsets import count_in, united, within
from cordwood.cleanup.erasure.pending import Part, Pending
from cordwood.cleanup.erasure.report import FORMAT, hash_of
from cordwood.cleanup.erasure.request import EraseRequest, Erasure, Means
from cordwood.cleanup.erasure.search import Found, Searched
from cordwood.cleanup.request import Listener
from cordwood.model.errors import CordwoodError
from cordwood.model.hold import held_by
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem

#: Why nothing is erased of a topic with remote.storage.enable.
TIERED: Final = (
    "tiered storage is on: its records in remote storage cannot be reached, and an erasure of the "
    "local ones alone would not be whole"
)


def refused_by(holds: Sequence[str]) -> str | None:
    """Why nothing is erased of a partition with these legal holds; None if there is none."""
    if not holds:
        return None
    return f"{held_by(holds)}. Release it with `cordwood hold release` to erase its records"


@dataclass(slots=True, kw_only=True)
class _Log:
    """A partition, and what is erased of it."""

    log: ErasedPartition
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
    part: Part,
    source: SegmentSource,
    erased: OffsetRanges,
    *,
    name: str | None = None,
    fs: FileSystem,
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
    present = present_in(source, planned, fs=fs)
    if facts is not None and facts["size"] == source.size_bytes:
        return present
    if count_in(united([*erased, *present])) > count_in(erased):
        raise StalePlanError(
            f"{source.path}: the log has changed since an erasure was interrupted, and still has "
            f"a record at offset {present[0][0]} that was to be erased. Erase again with the "
            "criteria of that erasure"
        )
    return present


class Erasing:
    """One erasure of the logs and files that are added to it, in the log directories `homes`."""

    def __init__(
        self,
        request: EraseRequest,
        means: Means,
        homes: Sequence[Path],
        *,
        listener: Listener,
        fs: FileSystem = OS,
    ) -> None:
        """Reads what an interrupted erasure has left in the log directories `homes`.

        Raises:
            CorruptError: it cannot be read.
        """
        self._request = request
        self._means = means
        self._listener = listener
        self._fs = fs
        self._homes = list(homes)
        self._logs: list[_Log] = []
        self._loose: list[_Loose] = []
        self._searched_dirs: set[Path] = set()
        self._removed: list[tuple[Path, Path]] = []
        self._failed: dict[str, str] = {}
        self._before = {
            home: pending
            for home in self._homes
            if (pending := Pending.read(home, fs=fs)) is not None
        }
        planned = [parse_target(t) for pending in self._before.values() for t in pending.topics]
        #: The topics of this erasure, and of one that was interrupted.
        self.targets = list(dict.fromkeys([*request.targets, *planned]))
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

    def covers(self, partition: TopicPartition) -> bool:
        """Whether a partition is one of `targets`."""
        return any(target.covers(partition) for target in self.targets)

    # ---- what there is

    def fail(self, name: str, reason: str) -> None:
        """Reports a partition or a file, by its path, of which nothing can be erased."""
        self._failed[name] = reason

    def add_log(self, log: ErasedPartition) -> None:
        """Adds a log."""
        self._logs.append(_Log(log=log))

    def add_loose(self, home: Path, directory: Path, partition: TopicPartition) -> None:
        """Adds the log files of a directory that is no live log's."""
        try:
            files = loose_in(directory, partition, fs=self._fs)
        except (CordwoodError, OSError) as error:
            self._failed[str(directory)] = str(error)
            return
        self._loose += [_Loose(file=file, home=home) for file in files]
        self._searched_dirs.add(directory)

    def add_removed(self, home: Path, directory: Path) -> None:
        """Adds a directory that goes as a whole."""
        self._removed.append((home, directory))

    def run(self) -> Erasure:
        """Does all that the module describes; a dry run only searches.

        Raises:
            ConfigError: the predicate cannot be evaluated.
            CorruptError: a ledger, or a file that is searched, cannot be read.
            EngineError: the engine is needed and unavailable.
            OSError, NoSpaceError: the disk refused the plan; nothing was changed.
        """
        self._read()
        self._search()
        if not self._request.dry_run:
            self._begin()
            self._rewrite()
            self._rewrite_loose()
            self._remove()
            self._search_again()
        return self._end()

    def _alive(self) -> list[_Log]:
        return [each for each in self._logs if not each.log.outcome.error]

    def _read(self) -> None:
        """Finishes half-done work, and reads every log."""
        self._listener.begin("reading partitions", len(self._logs))
        for each in self._logs:
            log = each.log
            with log.guard():
                if not self._request.dry_run:
                    log.recover()
                log.capture()
                self._loose += [_Loose(file=f, home=log.home) for f in log.loose]
            self._listener.advance(each.name)

    # ---- what is found

    def _search(self) -> None:
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
        found |= self._found_in_rolled(found)
        for each in self._alive():
            with each.log.guard():
                each.part = self._part_of_log(each, found)
        for one in self._loose:
            try:
                one.part = self._part_of_file(one, found.get(one.file.source.path))
            except (CordwoodError, OSError) as error:
                one.error = str(error)

    def _found_in_rolled(self, found: Mapping[str, Found]) -> dict[str, Found]:
        """What is in the active segments that are rolled, as a record was found in them."""
        wanted = []
        for each in self._alive():
            offsets = [found[s.path].offsets for s in each.log.sources if s.path in found]
            with each.log.guard():
                rolled = each.log.roll_if_touched(united(r for one in offsets for r in one))
                wanted += [Searched(partition=each.log.partition, source=s) for s in rolled]
        return self._found_in(wanted) if wanted else {}

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
        earlier = self._earlier(log.home, each.name)
        if earlier is not None:
            left = [
                r for source in sources for r in still_planned(earlier, source, erased, fs=self._fs)
            ]
            return replace(earlier, erased=united([*earlier.erased, *left, *erased]))
        if len(files) < len(sources):
            return None
        return Part(
            partition=str(log.partition),
            erased=erased,
            records=sum(one.records for one in files),
            bytes=sum(source.size_bytes for source in sources),
            files=log.files(),
            end=log.end,
        )

    def _part_of_file(self, one: _Loose, found: Found | None) -> Part | None:
        erased = () if found is None else found.offsets
        earlier = self._earlier(one.home, one.name)
        if earlier is not None:
            still_planned(earlier, one.file.source, erased, name=one.name, fs=self._fs)
            return replace(earlier, erased=united([*earlier.erased, *erased]))
        if found is None:
            return None
        return Part(
            partition=str(one.file.partition),
            erased=found.offsets,
            records=found.records,
            bytes=one.file.source.size_bytes,
            files={one.name: hash_of(one.file.path, fs=self._fs)},
        )

    # ---- the work

    def _begin(self) -> None:
        """Writes down what will be done: durably, before anything changes."""
        for home in self._homes:
            parts = {e.name: e.part for e in self._parts(home) if e.part is not None}
            removed = [str(path) for where, path in self._removed if where == home]
            earlier = self._before.get(home)
            if earlier is not None:
                parts = {**earlier.parts, **parts}
                removed = [*earlier.removed, *(r for r in removed if r not in earlier.removed)]
            Pending(
                id=self._id,
                criteria=tuple(self._criteria),
                topics=tuple(map(str, self.targets)),
                parts=parts,
                removed=tuple(removed),
            ).write(home, fs=self._fs)
        if not self._request.is_from_ledger:
            self._note_in_ledgers()

    def _parts(self, home: Path) -> list[_Log | _Loose]:
        logs: list[_Log | _Loose] = [e for e in self._logs if e.log.home == home]
        return logs + [e for e in self._loose if e.home == home]

    def _note_in_ledgers(self) -> None:
        request = self._request
        paths = [request.ledger] if request.ledger else [h / LEDGER_NAME for h in self._homes]
        for path in paths:
            ledger = Ledger(path, salt=request.ledger_salt, fs=self._fs)
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

    def _rewrite(self) -> None:
        """Rewrites the segments of live logs, and puts them in place."""
        work: list[tuple[_Log, CompactionCommitter]] = []
        for each in self._alive():
            with each.log.guard():
                each.log.cut_tail()
                committer = each.log.committer(self._erased(each))
                if committer is not None:
                    work.append((each, committer))
        if not work:
            return
        engine = self._means.engine(sum(c.compaction.size_bytes for _, c in work))
        execute(engine, [(each.log, committer) for each, committer in work])
        for each, committer in work:
            with each.log.guard():
                each.log.finish(committer)

    def _erased(self, each: _Log | _Loose) -> OffsetRanges:
        return () if each.part is None else each.part.erased

    def _rewrite_loose(self) -> None:
        """Rewrites the files beside live logs that have records to be erased."""
        for directory in self._searched_dirs:
            remove_staged(directory, fs=self._fs)
        for one in self._loose:
            if self._erased(one):
                try:
                    rewrite_loose(
                        one.file,
                        self._erased(one),
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
        """Searches what was rewritten: nothing must be found.

        Raises:
            CorruptError, OSError, EngineError: as the first search.
        """
        wanted: list[tuple[_Log | _Loose, Searched]] = []
        for each in self._alive():
            with each.log.guard():
                each.log.conclude()
        for each in self._alive():
            wanted += [
                (each, Searched(partition=each.log.partition, source=source))
                for source in each.log.touched(self._erased(each))
            ]
        for one in self._loose:
            if self._erased(one) and not one.error:
                files = loose_in(one.file.path.parent, one.file.partition, fs=self._fs)
                source = next(f.source for f in files if f.path == one.file.path)
                wanted.append((one, Searched(partition=one.file.partition, source=source)))
        searched = [each for _, each in wanted if self._is_searched(each.partition)]
        found = self._found_in(searched) if searched else {}
        for owner, each_of in wanted:
            path = each_of.source.path
            left = united(
                [
                    *present_in(each_of.source, self._erased(owner), fs=self._fs),
                    *(found[path].offsets if path in found else ()),
                ]
            )
            if left:
                text = f"records are still found after the erasure, first at offset {left[0][0]}"
                self._failed[owner.name] = f"{path}: {text}"

    # ---- the result

    def _end(self) -> Erasure:
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
            "topics": [str(target) for target in self.targets],
            "criteria": self._criteria,
            "partitions": [self._entry_of_log(each) for each in self._logs if each.part],
            "beside": [self._entry_of_file(one) for one in self._loose if self._erased(one)],
            "removed": sorted(removed | {r for e in self._logs for r in e.log.outcome.removed}),
            "failed": dict(sorted(self._failed.items())),
        }
        if not self._request.dry_run and not self._failed:
            for home in self._homes:
                Pending.end(home, fs=self._fs)
        return Erasure(report=report, failed=self._failed, warnings=tuple(warnings))

    def _require_all_planned(self) -> None:
        """Fails what an interrupted run had planned, is still there, and was not looked at."""
        known = {*(each.name for each in self._logs), *(each.name for each in self._loose)}
        for pending in self._before.values():
            for name in pending.parts:
                if name not in known and self._fs.exists(Path(name)):
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
            "log_end_offset": log.end,
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
        return entry | {"after": hash_of(one.file.path, fs=self._fs)}
