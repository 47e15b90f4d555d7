"""Copies files of a log to objects: read once, with their digests, at a limited rate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.model.clock import Clock, pause
from cordwood.model.errors import CordwoodError
from cordwood.storage.archives.digested import CHUNK_BYTES, put_digested
from cordwood.storage.archives.manifest import DATA, ArchivedFile, ArchivedLogId
from cordwood.storage.filesystem import File, FileFacts, FileSystem
from cordwood.storage.objects.object_store import ObjectStore

#: How often a segment's files are opened again that a broker's cleaner has just replaced.
_TRIES: Final = 5


class ChangedSegmentError(CordwoodError):
    """The files of a segment were replaced or removed while they were opened."""


@dataclass(frozen=True, slots=True)
class WantedFile:
    """A file to copy: its first `size_bytes` bytes, all for None; it has to be there if needed.

    With `modified_ns` it has to be the one that was last modified then, and had that size.
    """

    path: Path
    size_bytes: int | None = None
    modified_ns: int | None = None
    is_needed: bool = False


class RateLimit:
    """Lets bytes pass at a rate, in any thread.

    Source: org.apache.kafka.server.log.remote.quota.RLMQuotaManager, whose quota is of the same
    kind: what is over it waits.
    """

    def __init__(
        self, bytes_per_second: int | None, clock: Clock, wait: Callable[[float], None] = pause
    ) -> None:
        """Takes the rate, None for no limit."""
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._free_at_s = clock.monotonic_s()
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> None:
        """Waits until these bytes may pass."""
        if not self._rate:
            return
        with self._lock:
            now_s = self._clock.monotonic_s()
            begin_s = max(now_s, self._free_at_s)
            self._free_at_s = begin_s + size_bytes / self._rate
        if begin_s > now_s:
            self._wait(begin_s - now_s)


class FileCopier:
    """Puts files of logs as objects, with keys of one run."""

    def __init__(
        self,
        store: ObjectStore,
        run: str,
        *,
        fs: FileSystem,
        limit: RateLimit,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Takes the store, the part of keys that was drawn for this run, and where files are.

        `on_bytes` is called with the number of bytes that have been read, in any thread.
        """
        self._store = store
        self._run = run
        self._fs = fs
        self._limit = limit
        self._on_bytes = on_bytes

    def copy(self, log: ArchivedLogId, wanted: Sequence[WantedFile]) -> tuple[ArchivedFile, ...]:
        """Copies files that belong together, as they all are at one moment.

        They are opened first: a broker may then replace or remove them.

        Args:
            log: whose.
            wanted: which; one that is not needed may be missing.

        Raises:
            ChangedSegmentError: they were replaced again and again while they were opened, or one
                that is needed is gone, or is another by now; or one is cut off while it is copied.
            ObjectStoreError: the store refuses, or does not answer.
            OSError: a file cannot be read.
        """
        with ExitStack() as stack:
            files = _opened(stack, wanted, self._fs)
            return tuple(self._put(log, *each) for each in files)

    def _put(
        self, log: ArchivedLogId, wanted: WantedFile, file: File, facts: FileFacts
    ) -> ArchivedFile:
        path = wanted.path
        size_bytes = file.size() if wanted.size_bytes is None else wanted.size_bytes
        key = f"{DATA}{log.place}{path.stem}-{self._run}{path.suffix}"
        chunks = self._chunks(file, size_bytes, path)
        digest = put_digested(self._store, key, chunks, size_bytes)
        return ArchivedFile(
            name=path.name,
            key=key,
            size_bytes=size_bytes,
            sha256=digest,
            modified_ns=facts.modified_ns,
        )

    def _chunks(self, file: File, size_bytes: int, path: Path) -> Iterator[bytes]:
        position = 0
        while position < size_bytes:
            chunk = file.read_at(min(CHUNK_BYTES, size_bytes - position), position)
            if not chunk:
                raise ChangedSegmentError(
                    f"{path}: it ends at byte {position}, and had {size_bytes} bytes: it was cut "
                    "off while it was copied"
                )
            self._limit.take(len(chunk))
            position += len(chunk)
            self._on_bytes(len(chunk))
            yield chunk


def _opened(
    stack: ExitStack, wanted: Sequence[WantedFile], fs: FileSystem
) -> list[tuple[WantedFile, File, FileFacts]]:
    """The files, all as they are at one moment: each is still in its place when all are open.

    With each, its metadata.
    """
    for _ in range(_TRIES):
        before = [_identity(each.path, fs) for each in wanted]
        with ExitStack() as opened:
            found = []
            try:
                for each, identity in zip(wanted, before, strict=True):
                    if identity is not None:
                        file = opened.enter_context(closing(fs.open(each.path)))
                        found.append((each, file, fs.facts_of(each.path)))
            except FileNotFoundError:
                continue
            # A file that is open keeps its identity: none of another one can be equal to it.
            if [_identity(each.path, fs) for each in wanted] == before:
                _require(wanted, before)
                _require_planned(found)
                stack.enter_context(opened.pop_all())
                return found
    raise ChangedSegmentError(
        f"{wanted[0].path}: it was replaced each time that it was opened; a broker is cleaning it"
    )


def _identity(path: Path, fs: FileSystem) -> object:
    try:
        return fs.identity_of(path)
    except FileNotFoundError:
        return None


def _require(wanted: Sequence[WantedFile], found: Sequence[object]) -> None:
    for each, identity in zip(wanted, found, strict=True):
        if each.is_needed and identity is None:
            raise ChangedSegmentError(f"{each.path}: there is no such file any more")


def _require_planned(found: Sequence[tuple[WantedFile, File, FileFacts]]) -> None:
    for each, _, facts in found:
        # A cleaner gives a segment the modification time of the last one of its group.
        planned = each.modified_ns, each.size_bytes
        if each.modified_ns is not None and planned != (facts.modified_ns, facts.size_bytes):
            raise ChangedSegmentError(
                f"{each.path}: it was replaced since the run began; a broker has cleaned it"
            )
