"""Topics with settings and contents drawn at random, cleaned by a real Kafka several times over.

What no list of cases thinks of: lags with retention, log starts inside open transactions,
policies changed back and forth. Timestamps and lags are drawn far enough apart that the minute
between two cleanings of one directory decides nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from support.kafka import RealKafka
from support.live import Live, Pair, Timestamps
from support.workload import CODECS, DAY_MS, Workload

_FOREVER: Final = str(2**63 - 1)
_POLICIES: Final = ("compact", "compact", "compact", "compact,delete", "delete")
_CHOICES: Final = {
    "internal.segment.bytes": ("8192", "8192", "16384", "40000"),
    "min.cleanable.dirty.ratio": ("0", "0.01", "0.01", "0.3", "0.6"),
    "delete.retention.ms": ("0", "1000", str(DAY_MS)),
    "min.compaction.lag.ms": ("0", "0", "0", str(DAY_MS)),
    "max.compaction.lag.ms": (_FOREVER, _FOREVER, str(2 * DAY_MS)),
    "retention.ms": ("-1", str(DAY_MS), str(5 * DAY_MS)),
    "retention.bytes": ("-1", "-1", "30000", "120000"),
    "compression.type": ("producer", "producer", "uncompressed", *CODECS[1:]),
    "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
    "index.interval.bytes": ("64", "1024", "4096"),
    "segment.index.bytes": ("300", "100000", "100000"),
}
_CHANGED_LATER: Final = (
    "internal.segment.bytes",
    "min.cleanable.dirty.ratio",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "retention.ms",
    "retention.bytes",
)
_BATCH_BYTES: Final = 3000  # A batch must fit the smallest segment.


class _Topic:
    """One topic's present settings, and what is done to it next."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.rng = rng
        self.config = {key: rng.choice(choices) for key, choices in _CHOICES.items()}
        self.config["cleanup.policy"] = rng.choice(_POLICIES)
        self.config["message.timestamp.after.max.ms"] = _FOREVER
        self.keys = rng.choice((1, 20, 150, 600))
        self.open: str | None = None

    def write(self, live: Live, number: int) -> None:
        """Some writes, of records or transactions, in this round."""
        for _ in range(self.rng.randint(1, 4)):
            kind = self.rng.random()
            if kind < 0.6:
                self._fill(live)
            elif kind < 0.85:
                self._transactions(live)
            else:
                self._toggle_transaction(live, number)
        if self.rng.random() < 0.2 and "delete" in self.config["cleanup.policy"]:
            bases = [base for base, _ in live.segments(self.name)]
            live.work.delete_records(self.name, max(bases[-1] // 2, 1) if bases[-1] else 0)

    def reconfigure(self, work: Workload) -> None:
        """Changes a setting or two, the policy now and then."""
        changed = {}
        for key in self.rng.sample(_CHANGED_LATER, self.rng.randint(0, 2)):
            changed[key] = self.rng.choice(_CHOICES[key])
        if self.rng.random() < 0.25:
            changed["cleanup.policy"] = self.rng.choice(_POLICIES)
        if changed:
            self.config |= changed
            work.alter(self.name, changed)

    def _fill(self, live: Live) -> None:
        live.work.fill(
            self.name,
            self.rng.randint(20, 500),
            keys=self.keys,
            unkeyed=0.2 if self.config["cleanup.policy"] == "delete" else 0,
            tombstones=self.rng.choice((0, 0.05, 0.5)),
            timestamp=self._timestamps(live),
            headers=self.rng.random() < 0.2,
            length_max=self.rng.choice((10, 200, 700)),
            settings={
                "compression.type": self.rng.choice(CODECS),
                "enable.idempotence": self.rng.random() < 0.4,
                "batch.size": _BATCH_BYTES,
            },
        )

    def _timestamps(self, live: Live) -> Timestamps:
        kind = self.rng.random()
        if kind < 0.5:
            return live.ago(0.01)
        if kind < 0.85:
            return live.ago(self.rng.choice((0.5, 1.5, 3, 7)))
        days = (-2.0, 0.5, 1.5, 3.0, 7.0)
        return lambda _: live.now_ms - int(self.rng.choice(days) * DAY_MS)

    def _transactions(self, live: Live) -> None:
        aborted = self.rng.choice((0.2, 0.5, 1))
        live.work.transactions(
            self.name, self.rng.randint(3, 20), ids=2, aborted=aborted, keys=self.keys
        )

    def _toggle_transaction(self, live: Live, number: int) -> None:
        if self.open is None:
            self.open = f"{self.name}-open-{number}"
            producer = live.work.transactional(self.open, transaction_timeout_ms=900_000)
            producer.begin_transaction()
            live.work.fill(self.name, 20, keys=self.keys, producer=producer)
        else:
            producer = live.work.transactional(self.open)
            live.work.fill(self.name, 20, keys=self.keys, producer=producer)
            producer.abort_transaction() if self.rng.random() < 0.5 else (
                producer.commit_transaction()
            )
            self.open = None


def record_fuzz(root: Path, *, seed: int, topics: int = 30, rounds: int = 3) -> list[Pair]:
    """Rounds of random writing and Kafka's cleaning on one broker."""
    rng = random.Random(seed)  # noqa: S311  # nothing here is secret
    made = [_Topic(f"fuzz-{number}", random.Random(f"{seed}-{number}")) for number in range(topics)]  # noqa: S311
    pairs = []
    with RealKafka(root / "kafka") as kafka:
        work = Workload(kafka, seed)
        for number in range(1, rounds + 1):
            kafka.start_without_cleaning()
            if number == 1:
                work.create({topic.name: topic.config for topic in made})
            live = Live(kafka=kafka, work=work, now_ms=time.time_ns() // 1_000_000)
            for topic in rng.sample(made, len(made) if number == 1 else topics * 2 // 3):
                topic.write(live, number)
                topic.reconfigure(work)
            kafka.stop()
            pairs.append(Pair.record(kafka, root / f"round-{number}"))
    return pairs


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: records rounds below a directory, and says when each was cleaned."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--topics", type=int, default=30)
    options = parser.parse_args(arguments)
    for pair in record_fuzz(options.out, seed=options.seed, topics=options.topics):
        print(pair.server_properties.parent, pair.now_ms, pair.cleaned_first)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
