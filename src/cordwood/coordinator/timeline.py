"""State whose committed version can be read while later changes are not committed.

For each change of a timeline's maps, the previous value is kept. So a change can be reverted, and
a reader can read the state as of an offset. While everything is committed, no previous values are
kept, and a read costs as much as a read of a dict.

Source: org.apache.kafka.timeline.SnapshotRegistry, TimelineHashMap, SnapshottableHashTable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar, cast

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LATEST: Final = 2**63 - 1
"""The offset at which a reader sees every change, committed or not."""


class Missing:
    """Stands for the value of a key that was not in its map."""


MISSING: Final = Missing()

Before = dict[Any, Any]
"""Values by key as they were before a change; MISSING for a key that was not there."""


class Restorable(Protocol):
    """A map whose changes can be undone."""

    def restore(self, before: Before) -> None:
        """Sets keys back to the values that were noted, without noting that."""


class _Delta:
    """The values that one change replaced: per map, the value of each key before the change."""

    __slots__ = ("before", "end_offset")

    def __init__(self) -> None:
        self.end_offset = LATEST
        self.before: dict[Restorable, Before] = {}


class Timeline:
    """The changes of a group of maps that are not committed, in the order of their offsets.

    Invariant: `_deltas` are in the order of their end offsets; `_open` is the last of them.
    """

    def __init__(self) -> None:
        self._deltas: deque[_Delta] = deque()
        self._open: _Delta | None = None
        self.change_id = 0
        """Of the change that has begun last; 0 before the first one."""

    def check_invariants(self) -> None:
        """Checks that the changes are in the order of the log, and each has changed something."""
        ends = [each.end_offset for each in self._deltas]
        assert ends == sorted(ends), ends
        assert self._open is None or self._deltas[-1] is self._open, ends
        for delta in self._deltas:
            assert delta.before or delta is self._open, delta.end_offset

    @property
    def uncommitted_count(self) -> int:
        """The number of uncommitted changes."""
        return len(self._deltas)

    @property
    def is_changing(self) -> bool:
        """Whether a change is open."""
        return self._open is not None

    def begin(self) -> None:
        """Begins a change: it can be reverted, and is seen by readers of later offsets only."""
        assert self._open is None, "a change has not ended"
        self.change_id += 1
        self._open = _Delta()
        self._deltas.append(self._open)

    def end(self, end_offset: int) -> None:
        """Ends a change: it is committed when the high watermark is `end_offset` or higher."""
        assert self._open is not None, "no change has begun"
        self._open.end_offset = end_offset
        if not self._open.before:
            self._deltas.pop()
        self._open = None

    def settle(self) -> None:
        """Ends a change whose records are committed, and with it all earlier ones.

        What is changed before the next one begins is not noted: nothing may read the maps or revert
        the change until its records are replayed.
        """
        assert self._open is not None, "no change has begun"
        self._deltas.clear()
        self._open = None

    def revert(self) -> None:
        """Undoes the change that has begun."""
        delta = self._open
        assert delta is not None, "no change has begun"
        self._deltas.pop()
        self._open = None
        for changed, before in delta.before.items():
            changed.restore(before)

    def commit(self, high_watermark: int) -> None:
        """Drops the previous values of changes that are committed."""
        while self._deltas and self._deltas[0].end_offset <= high_watermark:
            self._deltas.popleft()

    def note(self, changed: Restorable, key: Hashable, before: object) -> None:
        """Notes the value of a key before it changes."""
        if self._open is not None:
            self._open.before.setdefault(changed, {}).setdefault(key, before)

    def before_first(self, changed: Restorable, key: Hashable, otherwise: object) -> object:
        """The value of a key before its first uncommitted change; `otherwise` if it has none."""
        for delta in self._deltas:
            noted = delta.before.get(changed)
            if noted is not None and key in noted:
                return noted[key]
        return otherwise

    def before(self, changed: Restorable, offset: int) -> Before:
        """The values that the map had at `offset`, for the keys that have changed since."""
        found: Before = {}
        for delta in reversed(self._deltas):
            if delta.end_offset <= offset:
                break
            found.update(delta.before.get(changed, {}))
        return found


class TimelineMap(Generic[K, V]):
    """A dict whose changes are noted in a timeline."""

    __slots__ = ("_timeline", "_values")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._values: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: K, at: int = LATEST) -> V | None:
        """The value of a key at an offset; None if there was none."""
        if at != LATEST and self._timeline.uncommitted_count:
            before = self._timeline.before(self, at).get(key, self._values.get(key))
            return None if before is MISSING else cast("V | None", before)
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Sets the value of a key."""
        self._timeline.note(self, key, self._values.get(key, MISSING))
        self._values[key] = value

    def remove(self, key: K) -> V | None:
        """Removes a key; its value, or None if it was not there."""
        found = self._values.pop(key, None)
        if found is not None:
            self._timeline.note(self, key, found)
        return found

    def items(self, at: int = LATEST) -> Iterator[tuple[K, V]]:
        """The keys and values as of an offset; the map may change during the iteration."""
        if at == LATEST or not self._timeline.uncommitted_count:
            return iter(list(self._values.items()))
        found = {**self._values, **self._timeline.before(self, at)}
        return iter([(key, value) for key, value in found.items() if value is not MISSING])

    def values(self, at: int = LATEST) -> Iterator[V]:
        """The values as of an offset; the map may change during the iteration."""
        return (value for _, value in self.items(at))

    def committed(self, key: K) -> V | None:
        """The value of a key without the changes that are not committed; None if there was none."""
        before = self._timeline.before_first(self, key, self._values.get(key))
        return None if before is MISSING else cast("V | None", before)

    def restore(self, before: Before) -> None:
        """Sets keys back to the values that were noted; a missing one is removed."""
        for key, value in before.items():
            if value is MISSING:
                self._values.pop(key, None)
            else:
                self._values[key] = value
