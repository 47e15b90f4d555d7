"""A topic that random steps change, with transactions and tombstones, and what consumers see of it.

`state` and `rows` are kept step by step, beside the log, from what the steps do: no reader of logs
has a part in them.
"""

from __future__ import annotations

import random
import shutil
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from support.log_builder import KeyValue, LogBuilder, write_log_dir

#: By partition and key: the offset and the value of the newest record.
State = dict[tuple[int, bytes], tuple[int, bytes]]
#: Partition, offset, key, value.
Row = tuple[int, int, bytes, bytes | None]

_PRODUCERS = 3
_TOMBSTONES = 0.2


class _Transaction:
    """One transaction in one partition; `is_committed` is None while it is open."""

    def __init__(self) -> None:
        self.is_committed: bool | None = None


class _Partition:
    """A log, and its records in order that the last stable offset has not reached."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log = LogBuilder(f"orders-{number}")
        self.open: dict[tuple[int, int], _Transaction] = {}
        self.waiting: deque[tuple[int, _Transaction | None, KeyValue]] = deque()


class RandomTopic:
    """Topic `orders` with some partitions, whose keys are numbers below `keys`."""

    def __init__(self, rng: random.Random, *, keys: int, partitions: int = 2) -> None:
        self._rng = rng
        self._keys = keys
        self._partitions = [_Partition(number) for number in range(partitions)]
        self.state: State = {}
        self.rows: list[Row] = []

    @property
    def logs(self) -> list[LogBuilder]:
        """The partitions."""
        return [each.log for each in self._partitions]

    def fill(self) -> None:
        """A record for each key, each in the partition of its number."""
        for each in self._partitions:
            numbers = range(each.number, self._keys, len(self._partitions))
            for first in range(0, len(numbers), 1000):
                self._put(each, [_pair(number, b"first") for number in numbers[first:][:1000]])

    def step(self, *, records: int = 20) -> None:
        """One change: a batch, one of a transaction, the end of a transaction, or a new segment."""
        rng = self._rng
        each = rng.choice(self._partitions)
        chance = rng.random()
        if chance < 0.1:
            if each.log.next_offset > each.log.active.base_offset:
                each.log.roll()
        elif chance < 0.4 and each.open:
            self.end(each, rng.choice(sorted(each.open)), commit=rng.random() < 0.6)
        else:
            producer = None if rng.random() < 0.4 else (1 + rng.randrange(_PRODUCERS), 0)
            self._put(each, self._changes(each, 1 + rng.randrange(records)), producer)

    def end_all(self) -> None:
        """Ends every transaction."""
        for each in self._partitions:
            for producer in sorted(each.open):
                self.end(each, producer, commit=self._rng.random() < 0.6)

    def end(self, each: _Partition, producer: tuple[int, int], *, commit: bool) -> None:
        """Ends a transaction in a partition."""
        each.log.marker(producer, commit=commit)
        each.open.pop(producer).is_committed = commit
        self._see(each)

    def write(self, log_dir: Path) -> Path:
        """Writes the log directory in place of what is there; returns it."""
        shutil.rmtree(log_dir, ignore_errors=True)
        return write_log_dir(log_dir, self.logs)

    def _changes(self, each: _Partition, count: int) -> list[KeyValue]:
        """Changes of keys of the partition, of which some did not exist, some are tombstones."""
        rng, found = self._rng, list[KeyValue]()
        for _ in range(count):
            step = len(self._partitions)
            number = rng.randrange(self._keys * 11 // 10 // step) * step + each.number
            is_gone = rng.random() < _TOMBSTONES
            value = rng.randbytes(8) if rng.random() < 0.9 else b""
            key, value_or_none = _pair(number, value)
            found.append((key, None if is_gone else value_or_none))
        return found

    def _put(
        self, each: _Partition, pairs: Sequence[KeyValue], producer: tuple[int, int] | None = None
    ) -> None:
        base = each.log.batch(pairs, producer=producer, transactional=producer is not None)
        transaction = None
        if producer is not None:
            transaction = each.open.setdefault(producer, _Transaction())
        each.waiting.extend((base + i, transaction, pair) for i, pair in enumerate(pairs))
        self._see(each)

    def _see(self, each: _Partition) -> None:
        """Consumers see records up to the first one of an open transaction."""
        while each.waiting:
            offset, transaction, (key, value) = each.waiting[0]
            is_committed = transaction is None or transaction.is_committed
            if is_committed is None:
                return
            each.waiting.popleft()
            if not is_committed:
                continue
            assert key is not None
            self.rows.append((each.number, offset, key, value))
            if value is None:
                self.state.pop((each.number, key), None)
            else:
                self.state[each.number, key] = offset, value


def _pair(number: int, value: bytes) -> KeyValue:
    return b"key-%d" % number, value
