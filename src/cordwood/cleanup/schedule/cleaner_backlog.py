"""Whether the cleaner keeps up with what is appended.

Records arrive faster than they are cleaned if, for ten minutes, a log was due at each look at the
logs, and the dirty bytes of what was due have grown. One look that finds nothing due ends that.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

_log = logging.getLogger(__name__)

#: For how long what is due has to grow (ms).
BEHIND_MS: Final = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Dirty bytes that were due at two looks, `since_ms` and the last."""

    since_ms: int
    bytes_then: int
    bytes_now: int


class CleanerBacklog:
    """The dirty bytes of what was due at the looks of some minutes; threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: deque[tuple[int, int]] = deque()
        self._is_behind = False

    @property
    def due_bytes(self) -> int:
        """The dirty bytes of the logs that were due at the last look."""
        with self._lock:
            return self._looks[-1][1] if self._looks else 0

    def note(self, now_ms: int, due_bytes: int) -> None:
        """A look at the logs: the dirty bytes of those that are due, 0 if none is.

        The first look at which the cleaner has fallen behind is logged.
        """
        with self._lock:
            looks = self._looks
            if not due_bytes or (looks and looks[-1][0] > now_ms):  # the clock was set back
                looks.clear()
            if due_bytes:
                looks.append((now_ms, due_bytes))
            # The first is the newest that is old enough, so that it is about ten minutes old.
            while len(looks) > 1 and looks[1][0] <= now_ms - BEHIND_MS:
                looks.popleft()
        growth = self.growth()
        if growth is not None and not self._is_behind:
            _log.warning(
                "Records arrive faster than they are cleaned: in %s s the dirty bytes of the logs "
                "that are due grew from %s to %s, and at no time was none due. See "
                "log.cleaner.threads and log.cleaner.io.max.bytes.per.second",
                (now_ms - growth.since_ms) // 1000,
                growth.bytes_then,
                growth.bytes_now,
            )
        self._is_behind = growth is not None

    def growth(self) -> Growth | None:
        """The growth of the backlog; None while the cleaner keeps up, as far as is known."""
        with self._lock:
            if not self._looks:
                return None
            (then_ms, before), (now_ms, after) = self._looks[0], self._looks[-1]
        if now_ms - then_ms < BEHIND_MS or after <= before:
            return None
        return Growth(since_ms=then_ms, bytes_then=before, bytes_now=after)
