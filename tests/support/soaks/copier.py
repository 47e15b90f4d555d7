"""A client that copies a topic in transactions, and whether each record was copied once.

A transaction has copies and the group's offsets after what was copied: whatever happens to brokers,
both are there, or neither is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from support.kafka import poll_until
from support.soaks.ledger import COMPLAINTS_MAX, Place
from support.stock_clients.base import StockClientError
from support.stock_clients.program import ProgramClient
from support.stock_clients.sessions.base import FencedError

_SESSION: Final = "copier"
_BATCH_MAX: Final = 20
_PAUSE_S: Final = 0.05
_STOP_S: Final = 60.0
_PREFIX: Final = b"done "


class Copier:
    """Runs transactions in a thread, and begins again at the committed offsets when one fails."""

    def __init__(
        self,
        client: ProgramClient,
        *,
        source: str,
        target: str,
        group: str,
        written: Callable[[], int],
        committed: Callable[[], Mapping[Place, int] | None],
    ) -> None:
        """Starts it.

        Args:
            client: of this object alone.
            source: the topic that is read.
            target: the topic whose partition 0 is written.
            group: whose offsets are committed; also the transactional id.
            written: how many records of the source there are, at least.
            committed: the offsets of the group; None if they are not known yet.
        """
        self.copied = 0
        """The number of records whose copies are committed."""
        self.failures: list[str] = []
        self._client = client
        self._source, self._target, self._group = source, target, group
        self._written, self._committed = written, committed
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the client, after the transaction that is open if it ends in time.

        Raises:
            BaseException: what has ended the thread before.
        """
        self._stop.set()
        self._thread.join(_STOP_S)
        self._client.close()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._copy()
                except (FencedError, StockClientError) as error:
                    self.failures.append(str(error))
                    self._client.close()
        except BaseException as error:  # raised by `stop`
            self._failure = error

    def _copy(self) -> None:
        """Copies until it is stopped, from the offsets on that are committed."""
        self._client.open_session(_SESSION, self._group, self._source, self._group)
        # The producer has its id only when the transaction of the one before has ended.
        found = poll_until(self._committed, timeout_s=_STOP_S, what="the group's offsets")
        self.copied = sum(max(offset, 0) for offset in found.values())
        while not self._stop.is_set():
            count = min(self._written() - self.copied, _BATCH_MAX)
            if count <= 0:
                self._stop.wait(_PAUSE_S)
                continue
            self._client.process(_SESSION, self._target, count, end="commit")
            self.copied += count


def complaints_of_copies(
    source: Mapping[int, Sequence[bytes]], copies: Sequence[bytes]
) -> list[str]:
    """Complaints about copies: each record once, those of a partition in their order.

    Args:
        source: the values of each partition's records, none of them twice.
        copies: the values of the committed copies, in their order.
    """
    return list(_complaints(source, copies))[:COMPLAINTS_MAX]


def _complaints(source: Mapping[int, Sequence[bytes]], copies: Sequence[bytes]) -> Iterator[str]:
    places = {
        value: (partition, offset)
        for partition, values in source.items()
        for offset, value in enumerate(values)
    }
    copied: dict[int, list[int]] = {partition: [] for partition in source}
    for copy in copies:
        place = places.get(copy.removeprefix(_PREFIX))
        if place is None:
            yield f"{copy!r} is a copy of no record"
        else:
            copied[place[0]].append(place[1])
    for partition, offsets in copied.items():
        for before, after in pairwise(offsets):
            if after <= before:
                yield f"partition {partition}: the copy of {after} comes after that of {before}"
        counts = Counter(offsets)
        for offset in range(len(source[partition])):
            if counts[offset] != 1:
                yield f"partition {partition}: record {offset} was copied {counts[offset]} times"
