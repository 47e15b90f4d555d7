"""The searches of an erasure: for the records to be erased, and for those that are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cordwood.cleanup.engine.search.bits import present_in
from cordwood.cleanup.engine.search.offsets import united
from cordwood.cleanup.engine.search.search import Found, Searched, SearchResult, Unsearched
from cordwood.cleanup.erasure.pending import Pending, PlannedErasure
from cordwood.cleanup.erasure.planned_files import LogErasure, StrayErasure, still_planned
from cordwood.cleanup.erasure.report import hash_of
from cordwood.cleanup.erasure.request import EraseRequest, ErasureBackend
from cordwood.cleanup.erasure.stray_files import StrayFile, stray_files_in
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.cleanup.plan.request import Listener
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import FileSystem


class RecordSearch:
    """Searches logs and the files beside them; `by_key` counts the records of each key."""

    def __init__(
        self,
        request: EraseRequest,
        backend: ErasureBackend,
        before: Mapping[Path, Pending],
        *,
        listener: Listener,
        fs: FileSystem,
    ) -> None:
        """Takes what an interrupted erasure has planned, by log directory."""
        self.by_key: Counter[bytes] = Counter()
        self._request = request
        self._backend = backend
        self._before = before
        self._listener = listener
        self._fs = fs

    def search(self, logs: Sequence[LogErasure], strays: Sequence[StrayErasure]) -> None:
        """Plans the erasure of each log and file; adds what an interrupted run has planned.

        All files are searched at once. One that cannot be searched fails its log, or itself.

        Raises:
            ConfigError: the expression cannot be evaluated.
            EngineError: the engine fails.
        """
        wanted = [
            each.log.searched(source)
            for each in logs
            if not each.error
            for source in each.log.sources
        ]
        wanted += [self._searched_file(each.file) for each in strays]
        results = self._results_of([each for each in wanted if self._is_searched(each.partition)])
        found = _found_of(results, logs, strays)
        found |= self._found_in_rolled(logs, found)
        for each_found in found.values():
            self.by_key.update(each_found.by_key)
        for each in logs:
            if not each.error:
                with each.log.guard():
                    each.planned = self._plan_of_log(each, found)
        for one in strays:
            if one.error:
                continue
            try:
                one.planned = self._plan_of_file(one, found.get(one.file.source.path))
            except (CordwoodError, OSError) as error:
                one.error = str(error)

    def _found_in_rolled(
        self, logs: Sequence[LogErasure], found: Mapping[str, Found]
    ) -> dict[str, Found]:
        """Rolls active segments in which a record was found, and searches them."""
        wanted = []
        for each in logs:
            if each.error:
                continue
            offsets = [found[s.path].offsets for s in each.log.sources if s.path in found]
            with each.log.guard():
                rolled = each.log.roll_if_touched(united(r for one in offsets for r in one))
                wanted += [each.log.searched(s) for s in rolled]
        return _found_of(self._results_of(wanted), logs) if wanted else {}

    def _is_searched(self, partition: TopicPartition) -> bool:
        """Whether it is a target of this run, not only of one that was interrupted."""
        return any(target.covers(partition) for target in self._request.targets)

    def _searched_file(self, file: StrayFile) -> Searched:
        bounds = self._request.bounds_of(file.partition.topic)
        return Searched(partition=file.partition, source=file.source, bounds=bounds)

    def _results_of(self, wanted: Sequence[Searched]) -> dict[str, SearchResult]:
        total = sum(each.source.size_bytes for each in wanted)
        self._listener.begin("searching", len(wanted))
        results = self._backend.searcher(total).find(wanted)
        self._listener.advance("searching")
        return {each.source.path: result for each, result in zip(wanted, results, strict=True)}

    def _earlier(self, home: Path, name: str) -> PlannedErasure | None:
        pending = self._before.get(home)
        return None if pending is None else pending.parts.get(name)

    def _plan_of_log(self, each: LogErasure, found: Mapping[str, Found]) -> PlannedErasure | None:
        log, sources = each.log, each.log.sources
        files = [found[source.path] for source in sources if source.path in found]
        erased = united(r for one in files for r in one.offsets)
        earlier = self._earlier(log.home, each.name)
        if earlier is not None:
            left = [
                r
                for source in sources
                for r in still_planned(earlier, log.searched(source), erased, fs=self._fs)
            ]
            return replace(earlier, erased=united([*earlier.erased, *left, *erased]))
        if len(files) < len(sources):
            return None
        return PlannedErasure(
            partition=str(log.partition),
            erased=erased,
            records=sum(one.records for one in files),
            bytes=sum(source.size_bytes for source in sources),
            files=log.files(),
            end=log.end,
        )

    def _plan_of_file(self, one: StrayErasure, found: Found | None) -> PlannedErasure | None:
        erased = () if found is None else found.offsets
        earlier = self._earlier(one.home, one.name)
        if earlier is not None:
            searched = self._searched_file(one.file)
            still_planned(earlier, searched, erased, name=one.name, fs=self._fs)
            return replace(earlier, erased=united([*earlier.erased, *erased]))
        if found is None:
            return None
        return PlannedErasure(
            partition=str(one.file.partition),
            erased=found.offsets,
            records=found.records,
            bytes=one.file.source.size_bytes,
            files={one.name: hash_of(one.file.path, fs=self._fs)},
        )

    def search_again(
        self, logs: Sequence[LogErasure], strays: Sequence[StrayErasure]
    ) -> dict[str, str]:
        """Searches the rewritten files; by name, those that may still have a record to be erased.

        Raises:
            CorruptError: a name in a directory of files is no offset.
            OSError: a directory cannot be read.
            EngineError: the engine fails.
        """
        wanted: list[tuple[LogErasure | StrayErasure, Searched]] = []
        for each in logs:
            if not each.error:
                wanted += [
                    (each, each.log.searched(source)) for source in each.log.touched(each.erased)
                ]
        for one in strays:
            if one.erased and not one.error:
                files = stray_files_in(one.file.path.parent, one.file.partition, fs=self._fs)
                file = next(f for f in files if f.path == one.file.path)
                wanted.append((one, self._searched_file(file)))
        searched = [each for _, each in wanted if self._is_searched(each.partition)]
        results = self._results_of(searched) if searched else {}
        failed = {}
        for owner, each_of in wanted:
            path = each_of.source.path
            try:
                left = self._left_in(each_of, owner.erased, results.get(path))
            except (CordwoodError, OSError) as error:
                failed[owner.name] = str(error)
                continue
            if left:
                text = f"records are still found after the erasure, first at offset {left[0][0]}"
                failed[owner.name] = f"{path}: {text}"
        return failed

    def _left_in(
        self, searched: Searched, erased: OffsetRanges, result: SearchResult | None
    ) -> OffsetRanges:
        """The offsets of a rewritten file that were to go.

        Raises:
            CorruptError, OSError: it cannot be searched.
        """
        if isinstance(result, Unsearched):
            raise result.error
        found = () if result is None else result.offsets
        return united([*present_in(searched, erased, fs=self._fs), *found])


def _found_of(
    results: Mapping[str, SearchResult],
    logs: Sequence[LogErasure],
    strays: Sequence[StrayErasure] = (),
) -> dict[str, Found]:
    """The findings by file; fails logs of which a file could not be searched, and such files."""
    failed = {path: each.error for path, each in results.items() if isinstance(each, Unsearched)}
    for each in logs:
        for source in () if each.error else each.log.sources:
            if source.path in failed:
                with each.log.guard():
                    raise failed[source.path]
    for one in strays:
        if one.file.source.path in failed:
            one.error = str(failed[one.file.source.path])
    return {path: each for path, each in results.items() if isinstance(each, Found)}
