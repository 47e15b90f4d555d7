"""An archive: the manifests below a URL, which one is in force, and how the next one gets there.

A commit is the put of a manifest with the next number, unless there is one: of two writers one
wins, and the other has a `ManifestConflictError`. Nothing else decides. So objects are put before
the manifest that names them, and removed when no manifest has named them for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.storage.archives.manifest import (
    DATA,
    MANIFESTS,
    ArchivedLogId,
    ArchiveManifest,
    manifest_key,
    parse_manifest_key,
)
from cordwood.storage.objects.object_store import ObjectFacts, ObjectStore

#: Requests that wait for answers at a time.
REQUESTS_MAX: Final = 16

#: How long an object stays that no manifest names any more, ms: a reader may have the manifest
#: before, and a writer may be about to put the manifest that names it.
GRACE_MS: Final = 24 * 3_600_000


class ManifestConflictError(CordwoodError):
    """Another writer has changed the log in the archive; nothing of this change is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """Objects that nothing refers to: their keys and their bytes."""

    keys: tuple[str, ...]
    size_bytes: int


class Archive:
    """The archive below a URL."""

    def __init__(self, store: ObjectStore) -> None:
        """Reads nothing yet."""
        self.store = store

    @property
    def url(self) -> str:
        """Its URL."""
        return self.store.url

    # ---- reading

    def numbers(self) -> Mapping[ArchivedLogId, int]:
        """The number of each log's manifest in force, by one list of all manifests.

        Raises:
            ObjectStoreError: the store refuses, or does not answer.
        """
        return _newest(self.store.list(MANIFESTS))

    def manifests(self, wanted: Iterable[ArchivedLogId] | None = None) -> list[ArchiveManifest]:
        """The manifests in force, sorted by log; of the logs that are wanted, or of all.

        Raises:
            CorruptError: one cannot be understood; names its URL.
            ObjectStoreError: the store refuses, or does not answer.
        """
        numbers = self.numbers()
        chosen = sorted(numbers if wanted is None else set(wanted) & set(numbers))
        return self._read_all([(log, numbers[log]) for log in chosen])

    def manifest(self, log: ArchivedLogId) -> ArchiveManifest | None:
        """The manifest of a log that is in force; None if the archive does not have it.

        Raises:
            As `manifests`.
        """
        numbers = _newest(self.store.list(f"{MANIFESTS}{log.place}"))
        return self._read(log, numbers[log]) if log in numbers else None

    def _read_all(self, wanted: Sequence[tuple[ArchivedLogId, int]]) -> list[ArchiveManifest]:
        with ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="manifests") as pool:
            return list(pool.map(lambda each: self._read(*each), wanted))

    def _read(self, log: ArchivedLogId, number: int) -> ArchiveManifest:
        key = manifest_key(log, number)
        url = self.store.url_of(key)
        manifest = ArchiveManifest.parse(self.store.get(key), url=url)
        if manifest.key != key:
            raise CorruptError(f"the manifest of another place: {manifest.key}", path=url)
        return manifest

    # ---- writing

    def commit(self, manifest: ArchiveManifest) -> None:
        """Puts a manifest, which from then on is in force.

        Args:
            manifest: its number is one more than that of the manifest on which it is based, 1 for
                the first.

        Raises:
            ManifestConflictError: another writer has put one since.
            ObjectStoreError: the store gave no answer: the manifest may be in force, or be later.
        """
        if not self.store.put_new(manifest.key, manifest.to_bytes()):
            raise self._conflict(manifest.log)
        # Where that number had been collected, the put has succeeded in vain.
        newest = _newest(self.store.list(f"{MANIFESTS}{manifest.log.place}"))
        if newest[manifest.log] > manifest.number:
            self.store.delete([manifest.key])
            raise self._conflict(manifest.log)

    def _conflict(self, log: ArchivedLogId) -> ManifestConflictError:
        return ManifestConflictError(
            f"{self.url}: {log}: another writer has changed it in the archive meanwhile; nothing "
            "of this change is there. Run the command again"
        )

    # ---- garbage

    def garbage(self, clock: Clock, *, grace_ms: int = GRACE_MS) -> Garbage:
        """The objects that no manifest in force needs, nor has needed within `grace_ms`.

        Those are manifests that were followed by another one before that, and files that neither
        the others name nor anybody has put since. An object of another kind is left alone.

        Raises:
            As `manifests`.
        """
        before_ms = clock.now_ms() - grace_ms
        versions: dict[ArchivedLogId, list[tuple[int, ObjectFacts]]] = {}
        for each in self.store.list(MANIFESTS):
            parsed = parse_manifest_key(each.key)
            if parsed is not None:
                versions.setdefault(parsed[0], []).append((parsed[1], each))
        gone: list[ObjectFacts] = []
        needed: list[tuple[ArchivedLogId, int]] = []
        for log, found in versions.items():
            found.sort()
            needed.append((log, found[-1][0]))
            for (number, each), (_, next_one) in pairwise(found):
                if next_one.modified_ms < before_ms:
                    gone.append(each)
                else:
                    needed.append((log, number))
        named = {file.key for each in self._read_all(needed) for file in each.files}
        gone += [
            each
            for each in self.store.list(DATA)
            if each.key not in named and each.modified_ms < before_ms
        ]
        return Garbage(
            keys=tuple(each.key for each in gone), size_bytes=sum(each.size_bytes for each in gone)
        )

    def unnamed(self, manifest: ArchiveManifest) -> list[str]:
        """The keys of a log's objects that no reader of the manifest in force needs.

        Those of a writer that has begun since stay: they are not older than the manifest, by the
        store's clock, nor named by an earlier one.

        Args:
            manifest: the one in force.

        Raises:
            As `manifests`.
        """
        put_ms, earlier = 0, []
        for each in self.store.list(f"{MANIFESTS}{manifest.log.place}"):
            parsed = parse_manifest_key(each.key)
            if each.key == manifest.key:
                put_ms = each.modified_ms
            elif parsed is not None and parsed[1] < manifest.number:
                earlier.append(parsed)
        named = {file.key for file in manifest.files}
        found = [
            each for each in self.store.list(f"{DATA}{manifest.log.place}") if each.key not in named
        ]
        gone = [each.key for each in found if each.modified_ms < put_ms]
        left = {each.key for each in found if each.modified_ms >= put_ms}
        for log, number in sorted(earlier, reverse=True):
            if not left:
                break
            known = left & {file.key for file in self._read(log, number).files}
            gone += known
            left -= known
        return sorted(gone)

    def collect(self, garbage: Garbage) -> None:
        """Removes garbage.

        Raises:
            ObjectStoreError: the store refuses, or does not answer; some may be gone.
        """
        self.store.delete(garbage.keys)


def _newest(found: Iterable[ObjectFacts]) -> dict[ArchivedLogId, int]:
    newest: dict[ArchivedLogId, int] = {}
    for each in found:
        parsed = parse_manifest_key(each.key)
        if parsed is not None:
            log, number = parsed
            newest[log] = max(number, newest.get(log, 0))
    return newest
