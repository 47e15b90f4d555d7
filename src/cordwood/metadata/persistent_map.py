"""An immutable mapping that is cheap to copy with changes.

A map consists of a dict that copies share and a small dict of differences; when that grows, a copy
gets a dict of its own. Keys are in the order in which they were first inserted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, Self, TypeVar, cast, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_DIFFERENT_MAX = 128
_GONE: Final = object()


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """A mapping that stays as it is."""

    __slots__ = ("_changes", "_count", "_shared")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._shared: dict[K, V] = dict(items or {})
        self._changes: dict[K, object] = {}
        self._count = len(self._shared)

    def changed(self, changes: Mapping[K, V], gone: frozenset[K] | set[K] = frozenset()) -> Self:
        """A copy with `changes` applied and the keys in `gone` removed."""
        if not changes and not gone:
            return self
        other = type(self)()
        if len(self._changes) + len(changes) + len(gone) > max(
            _DIFFERENT_MAX, len(self._shared) >> 7
        ):
            whole = dict(self.items())
            for key in gone:
                whole.pop(key, None)
            whole.update(changes)
            other._shared, other._count = whole, len(whole)
            return other
        different = dict(self._changes)
        count = self._count
        for key in gone:
            if key in self:
                count -= 1
                if key in self._shared:
                    different[key] = _GONE
                else:
                    del different[key]
        for key, value in changes.items():
            if key in gone or key not in self:
                count += 1
            different[key] = value
        other._shared, other._changes, other._count = self._shared, different, count
        return other

    def differing(self, other: PersistentMap[K, V]) -> set[K]:
        """The keys whose values in this map and in `other` are not one and the same object."""
        if self._shared is other._shared:
            keys = self._changes.keys() | other._changes.keys()
        else:
            keys = self.keys() | other.keys()
        return {key for key in keys if self.get(key, _GONE) is not other.get(key, _GONE)}

    def __getitem__(self, key: K) -> V:
        if self._changes:
            found = self._changes.get(key)
            if found is _GONE:
                raise KeyError(key)
            if found is not None:
                return cast("V", found)
        return self._shared[key]

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """The value of a key, or `default`."""
        if self._changes and key in self._changes:
            found = self._changes[key]
            return default if found is _GONE else found
        return self._shared.get(key, default)

    def __contains__(self, key: object) -> bool:
        if self._changes and key in self._changes:
            return self._changes[key] is not _GONE
        return key in self._shared

    def __iter__(self) -> Iterator[K]:
        if not self._changes:
            return iter(self._shared)
        return self._all_keys()

    def _all_keys(self) -> Iterator[K]:
        for key in self._shared:
            if self._changes.get(key) is not _GONE:
                yield key
        for key in self._changes:
            if key not in self._shared:
                yield key

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"
