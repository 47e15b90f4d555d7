"""Order in which due logs are compacted: cordwood.cleaner.order.

With `ratio`, as in Kafka, the log with the highest dirty ratio is the next. With `freed` it is the
one of which a compaction frees the most for each byte that it reads, by an estimate from a sample:
a log of which every key is new has a high ratio, and frees nothing.

The estimate of a log is kept until its first dirty offset moves, or its dirty section has another
size by a quarter. A look at the logs reads no more than so many bytes for new estimates; a log that
has none yet follows those that have one.

No log waits for ever. Logs take turns: of those that are due, none is compacted for a second time
before each of the others was compacted once. A log that max.compaction.lag.ms makes due comes
before all that it does not, the one that is furthest beyond it first; so only such logs can keep
another waiting, while the cleaner cannot keep what that setting promises.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cordwood.cleanup.plan.estimates import QuickEstimate
from cordwood.cleanup.plan.request import CleaningOrder
from cordwood.cleanup.rules.cleanable import Cleanable
from cordwood.model.errors import CordwoodError
from cordwood.model.extras import NATIVE, missing_packages
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.source import ReadBounds, SegmentSource

_log = logging.getLogger(__name__)

#: What one look at the logs reads for estimates, in bytes.
LOOK_BYTES_MAX: Final = 64 << 20
# A dirty section of another size by this share is estimated again.
_GROWTH: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLog:
    """A log that is due.

    `cleanable` is its dirty section; `identity` is another one where a log of that name has other
    records. `segments` gives those of the compaction, which are read from `fs`; it may raise
    CordwoodError and OSError. `bounds` are of what is decompressed.
    """

    partition: TopicPartition
    cleanable: Cleanable
    identity: object
    segments: Callable[[], Sequence[SegmentSource]]
    bounds: ReadBounds
    fs: FileSystem = OS

    @property
    def size_bytes(self) -> int:
        """Bytes that a compaction of the log reads."""
        return self.cleanable.bytes_to_read


#: Estimates what a compaction of a log frees. Raises CordwoodError, OSError.
Sampler = Callable[[DueLog], QuickEstimate]


def sample(due: DueLog) -> QuickEstimate:
    """Estimates a compaction from windows of the log."""
    # Compiled code is loaded when it is first needed.
    from cordwood.cleanup.estimate.windows import estimate_from_windows  # noqa: PLC0415

    return estimate_from_windows(
        due.segments(),
        # A producer that knows it can change the order, and nothing else.
        seed=int.from_bytes(str(due.partition).encode()),
        bounds=due.bounds,
        fs=due.fs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The estimate of one log, None if it could not be made, and what it was made of."""

    identity: object
    first_dirty: int
    cleanable_bytes: int
    estimate: QuickEstimate | None

    def is_of(self, due: DueLog) -> bool:
        cleanable = due.cleanable
        change = abs(cleanable.cleanable_bytes - self.cleanable_bytes)
        return (
            self.identity == due.identity
            and self.first_dirty == cleanable.first_dirty
            and change <= _GROWTH * self.cleanable_bytes
        )


class CleaningSchedule:
    """Puts logs that are due in order; threads may share one.

    `order` may be changed at any time.
    """

    def __init__(
        self, order: CleaningOrder = CleaningOrder.RATIO, *, sampler: Sampler = sample
    ) -> None:
        """Takes the order, and what estimates logs."""
        self.order = order
        self._sampler = sampler
        self._lock = threading.Lock()
        self._known: dict[TopicPartition, _Known] = {}
        self._had_turn: set[TopicPartition] = set()
        self._is_refused = False

    def ranked(self, due: Sequence[DueLog]) -> list[DueLog]:
        """The logs in the order in which they are compacted; may read a part of them."""
        by_ratio = sorted(due, key=lambda each: -each.cleanable.ratio)
        if self.order is CleaningOrder.RATIO or not self._can_estimate():
            return by_ratio
        if len(due) > 1:  # else there is nothing to put in order
            self._estimate(by_ratio)
        return self.ranked_by_what_is_known(by_ratio)

    def ranked_by_what_is_known(self, due: Iterable[DueLog]) -> list[DueLog]:
        """The same without reading anything: with the estimates that there are."""
        by_ratio = sorted(due, key=lambda each: -each.cleanable.ratio)
        if self.order is CleaningOrder.RATIO:
            return by_ratio
        with self._lock:
            had_turn = set(self._had_turn)

        def rank(due: DueLog) -> tuple[bool, bool, float]:
            is_late = due.cleanable.delay_ms > 0
            estimate = self.estimate_of(due)
            share = -1.0 if estimate is None else estimate.share
            first = float(due.cleanable.delay_ms) if is_late else share
            return not is_late, due.partition in had_turn, -first

        return sorted(by_ratio, key=rank)

    def note_turn(self, due: DueLog) -> None:
        """Notes that a log is compacted; it comes after all logs that were not, in this round."""
        if self.order is CleaningOrder.RATIO:
            return
        with self._lock:
            if due.partition in self._had_turn and not due.cleanable.delay_ms:
                self._had_turn.clear()  # all others have had theirs: the next round
            self._had_turn.add(due.partition)

    def estimate_of(self, due: DueLog) -> QuickEstimate | None:
        """The estimate of a compaction, if there is one, for as many bytes as there are now.

        Nothing is read.
        """
        with self._lock:
            known = self._known.get(due.partition)
        if known is None or known.estimate is None or not known.is_of(due):
            return None
        return QuickEstimate(
            bytes_before=due.size_bytes,
            bytes_freed=round(known.estimate.share * due.size_bytes),
            bytes_read=known.estimate.bytes_read,
        )

    def _estimate(self, due: Sequence[DueLog]) -> None:
        """Estimates those of which nothing is known, as far as one look may read."""
        with self._lock:
            # A log that is no longer due was compacted, or has gone.
            names = {each.partition for each in due}
            self._known = {name: known for name, known in self._known.items() if name in names}
            known = dict(self._known)
        bytes_read = 0
        for each in due:
            before = known.get(each.partition)
            if before is not None and before.is_of(each):
                continue
            estimate = self._estimated(each)
            with self._lock:
                self._known[each.partition] = _Known(
                    identity=each.identity,
                    first_dirty=each.cleanable.first_dirty,
                    cleanable_bytes=each.cleanable.cleanable_bytes,
                    estimate=estimate,
                )
            bytes_read += 0 if estimate is None else estimate.bytes_read
            if bytes_read >= LOOK_BYTES_MAX:
                break

    def _estimated(self, due: DueLog) -> QuickEstimate | None:
        try:
            estimate = self._sampler(due)
        except (CordwoodError, OSError) as error:  # its compaction says so, if it is still so
            _log.debug("What a compaction of %s frees is unknown: %s", due.partition, error)
            return None
        _log.debug(
            "A compaction of %s frees about %s of %s bytes (%s read)",
            due.partition,
            estimate.bytes_freed,
            estimate.bytes_before,
            estimate.bytes_read,
        )
        return estimate

    def _can_estimate(self) -> bool:
        missing = missing_packages(NATIVE)
        if missing and not self._is_refused:
            self._is_refused = True
            _log.warning(
                "cordwood.cleaner.order=freed: logs are cleaned by their dirty ratio, since %s is "
                "missing: pip install 'cordwood[native]'",
                ", ".join(missing),
            )
        return not missing
