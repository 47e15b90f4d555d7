"""Compacted logs whose keys are distributed in as many ways as estimates of a compaction may err.

Each has a name in `DISTRIBUTIONS`, which gives the batches of a log of so many records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Header, Record
from support.log_builder import NOW_MS, KeyValue, LogBuilder

Ints = npt.NDArray[np.int64]

_DAY_MS: Final = 86_400_000
_TEXT: Final = b'{"customer": "of an ordinary name", "total": 12.50, "currency": "EUR", "items": '
_SEGMENTS: Final = 12

#: Any dirty log is compacted.
CONFIG: Final = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=_DAY_MS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A log: the number of the key of each record, and how they are written.

    `keys` gives the numbers of so many records. A record is null with probability `nulls`; its
    value has `value_bytes` on average, or as many as `size_of` says for each key. The first
    `clean` of the records, a share, are below the cleaner checkpoint. `batch_records` is how many
    records a batch has. With `transactions` every fourth transaction of some batches is aborted;
    with `stamped` some batches have a delete horizon that is over. With another `strategy` than
    `offset`, records have versions, of which many are delivered late or not at all. With `ttl` most
    have a time to live, which is over for the older ones.
    """

    keys: Callable[[np.random.Generator, int], Ints]
    nulls: float = 0.0
    value_bytes: int = 100
    size_of: Callable[[Ints], Ints] | None = None
    codec: Codec = Codec.NONE
    clean: float = 0.0
    batch_records: int = 40
    transactions: bool = False
    stamped: bool = False
    strategy: str = "offset"
    ttl: bool = False

    @property
    def config(self) -> LogConfig:
        """The settings of the log."""
        return replace(
            CONFIG,
            cordwood_compaction_strategy=self.strategy,
            cordwood_compaction_strategy_header="v",
            cordwood_record_ttl_header="ttl" if self.ttl else "",
        )

    def log(self, name: str, *, records: int, seed: int) -> LogBuilder:
        """The log, with an active segment behind what is compacted."""
        rng = np.random.default_rng(seed)
        log = LogBuilder(name)
        batches = list(self._batches(rng, records))
        for number, batch in enumerate(batches):
            self._append(log, batch, number, rng)
            if number + 1 == round(len(batches) * self.clean):
                log.roll()
                log.cleaner_checkpoint = log.next_offset
            elif (number + 1) % -(-len(batches) // _SEGMENTS) == 0:
                log.roll()
        for producer in log.open_transactions():
            log.marker((producer, 0), commit=True)
        if log.next_offset > log.active.base_offset:
            log.roll()
        log.put(b"last", b"")
        return log

    def _append(
        self, log: LogBuilder, batch: list[KeyValue], number: int, rng: np.random.Generator
    ) -> None:
        # Each producer has some transactions, one after the other.
        producer = (number % 3, 0) if self.transactions else None
        records: list[KeyValue] | list[Record] = batch
        if self.strategy != "offset":
            records = [
                _versioned(log.next_offset + n, key, value, rng)
                for n, (key, value) in enumerate(batch)
            ]
        elif self.ttl:
            records = [
                _mortal(log.next_offset + n, key, value, rng)
                for n, (key, value) in enumerate(batch)
            ]
        log.batch(
            records,
            codec=self.codec,
            timestamp=NOW_MS - 2 * _DAY_MS + number,
            producer=producer,
            transactional=self.transactions,
            delete_horizon_ms=NOW_MS - 1 if self.stamped and number % 4 == 0 else None,
        )
        if producer is not None and number % 5 == 4:
            log.marker(producer, commit=number % 4 != 0)

    def _batches(self, rng: np.random.Generator, records: int) -> Iterator[list[KeyValue]]:
        keys = self.keys(rng, records)
        if self.size_of is None:
            sizes = rng.integers(self.value_bytes // 2, self.value_bytes * 3 // 2, records)
        else:
            sizes = self.size_of(keys)
        nulls = rng.random(records) < self.nulls
        noise = rng.bytes(int(sizes.max()))
        values = [
            None if null else (_TEXT * (size // len(_TEXT) + 1))[: size // 2] + noise[: size // 2]
            for size, null in zip(sizes.tolist(), nulls.tolist(), strict=True)
        ]
        every = [(b"key-%d" % key, v) for key, v in zip(keys.tolist(), values, strict=True)]
        for first in range(0, records, self.batch_records):
            yield list(every[first : first + self.batch_records])


def _versioned(
    offset: int, key: bytes | None, value: bytes | None, rng: np.random.Generator
) -> Record:
    """A record whose timestamp and header are a version, which may be late."""
    version = max(0, offset - int(rng.exponential(3_000)))
    headers = (Header("v", version.to_bytes(8, "big")),) if rng.random() < 0.9 else ()
    return Record(offset, NOW_MS - 3 * _DAY_MS + version, key, value, headers)


def _mortal(
    offset: int, key: bytes | None, value: bytes | None, rng: np.random.Generator
) -> Record:
    """A record that lives as long as many later ones take to be written, or for ever."""
    headers = (Header("ttl", b"%d" % rng.exponential(2 * _DAY_MS)),) if rng.random() < 0.7 else ()
    return Record(offset, NOW_MS - 2 * _DAY_MS + offset, key, value, headers)


def _uniform(share: float) -> Callable[[np.random.Generator, int], Ints]:
    """Draws keys for each record at random, a share of the records."""
    return lambda rng, n: rng.integers(0, max(1, int(n * share)), n)


def _zipf(exponent: float) -> Callable[[np.random.Generator, int], Ints]:
    """Keys of which the k-th has a probability of k to the power of -exponent."""

    def keys(rng: np.random.Generator, n: int) -> Ints:
        weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
        return np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(n)).astype(np.int64)

    return keys


def _drifting(rng: np.random.Generator, n: int) -> Ints:
    """A hot set that moves on, so that old keys are never written again."""
    return np.arange(n) // 8 + rng.integers(0, max(1, n // 40), n)


def _bursts(rng: np.random.Generator, n: int) -> Ints:
    """Each key some times in a row, then, mostly, no more."""
    lengths = rng.geometric(1 / 30, n)
    return np.repeat(rng.integers(0, n, n), lengths)[:n]


def _reinserted(rng: np.random.Generator, n: int) -> Ints:
    """Every key in order, and nearly in the same order again, by whole batches."""
    once = np.arange(n * 2 // 3)
    again = np.sort(rng.integers(0, n * 2 // 3, n - len(once)))
    return np.concatenate([once, again + rng.integers(0, 3, len(again))])


def _heavy(keys: Ints) -> Ints:
    """Sizes that belong to the key, few of them large."""
    return np.minimum(20 + 100_000 // (1 + keys * 37 % 4999), 8_000)


DISTRIBUTIONS: Final = {
    "few keys": Distribution(keys=_uniform(0.001)),
    "many keys": Distribution(keys=_uniform(0.5)),
    "zipf 0.8": Distribution(keys=_zipf(0.8)),
    "zipf 1.1": Distribution(keys=_zipf(1.1)),
    "zipf 1.5": Distribution(keys=_zipf(1.5)),
    "all unique": Distribution(keys=lambda _, n: np.arange(n)),
    "one key": Distribution(keys=lambda _, n: np.zeros(n, dtype=np.int64)),
    "drifting hot set": Distribution(keys=_drifting),
    "bursts": Distribution(keys=_bursts),
    "tombstones": Distribution(keys=_uniform(0.4), nulls=0.4, stamped=True),
    "sizes by key": Distribution(keys=_uniform(0.3), size_of=_heavy),
    "re-inserted in order": Distribution(keys=_reinserted),
    "lz4": Distribution(keys=_uniform(0.3), codec=Codec.LZ4),
    "zstd": Distribution(keys=_zipf(1.0), codec=Codec.ZSTD),
    "transactions": Distribution(keys=_uniform(0.3), transactions=True),
    "clean section": Distribution(keys=_uniform(0.4), clean=0.7),
    "late by header": Distribution(
        keys=_uniform(0.2), nulls=0.2, clean=0.3, strategy="header", stamped=True
    ),
    "late by timestamp": Distribution(keys=_zipf(0.9), strategy="timestamp"),
    "times to live": Distribution(keys=_uniform(0.6), nulls=0.1, clean=0.4, ttl=True),
    "small batches": Distribution(keys=_zipf(0.9), batch_records=2),
}
