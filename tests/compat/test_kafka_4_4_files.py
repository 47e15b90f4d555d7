"""Files that a real Kafka 4.4 wrote and cleaned, of every kind, with groups of every kind.

`cordwood clean` leaves what its cleaner left, `cordwood dump-log` prints what its tool prints of
every file, and `cordwood verify` finds them sound. Each night `test_clean_golden` compares with
more of its cleaner's work.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from cordwood.format.record_batch import RecordBatch, iter_batches
from support.clean import run_clean
from support.compare import require_alike
from support.damage import damage_in
from support.group_kinds import make_groups
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4
from support.live import STATIC_PROPERTIES, Live, Pair
from support.workload import CODECS, DAY_MS, Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")]

_COMPACT: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "32768",
}
_AT_ONCE: Final = {**_COMPACT, "delete.retention.ms": "0"}
_DELETE: Final = {**_COMPACT, "cleanup.policy": "delete", "retention.ms": str(DAY_MS)}
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    **{f"codec-{codec}": _COMPACT for codec in CODECS},
    "transactions": _COMPACT,
    "transactions-gone": _AT_ONCE,
    "tombstones-gone": _AT_ONCE,
    "retention": _DELETE,
    "both": {**_DELETE, "cleanup.policy": "compact,delete"},
}


def write(live: Live) -> None:
    work = live.work
    work.create(TOPICS)
    for codec in CODECS:
        work.fill(f"codec-{codec}", 1000, settings={"compression.type": codec}, headers=True)
    for topic in ("transactions", "transactions-gone"):
        work.transactions(topic, 25)
        work.fill(topic, 300)
    work.fill("tombstones-gone", 800, tombstones=0.4)
    for topic in ("retention", "both"):
        work.fill(topic, 500, timestamp=live.ago(3))
        work.fill(topic, 400)
    work.delete_records("retention", 100)
    work.commit_offsets(["both"], groups=2, commits=20)
    make_groups(live.kafka.port, "codec-none")


@pytest.fixture(scope="module")
def pair(kafka_4_4_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Not to be changed."""
    assert kafka_4_4_jars.is_dir()
    root = tmp_path_factory.mktemp("kafka")
    with RealKafka(root / "kafka", properties=STATIC_PROPERTIES, version=KAFKA_4_4) as kafka:
        work = Workload(kafka, seed=4)
        kafka.start_without_cleaning()
        write(Live(kafka=kafka, work=work, now_ms=time.time_ns() // 1_000_000))
        kafka.stop()
        return Pair.record(kafka, root)


@pytest.fixture
def files(pair: Pair) -> Callable[..., list[Path]]:
    """Files of both sides, by patterns of their paths in a log directory."""

    def matching(*patterns: str) -> list[Path]:
        sides = (*pair.before, *pair.after)
        return [file for side in sides for each in patterns for file in sorted(side.glob(each))]

    return matching


@pytest.mark.spark
def test_each_partition_is_left_as_its_cleaner_leaves_it(
    pair: Pair, copy_of: Callable[[Path], Path]
) -> None:
    (before,), (after,) = pair.before, pair.after
    cleaned = copy_of(before)
    run_clean([cleaned], now_ms=pair.now_ms, server_properties=pair.server_properties)
    compared = require_alike(cleaned, after, include_internal=True)
    assert {"codec-zstd-0", "__consumer_offsets-1", "__share_group_state-1"} <= set(compared)
    for topic in TOPICS:
        assert size_of(after / f"{topic}-0") < size_of(before / f"{topic}-0"), topic


def size_of(partition: Path) -> int:
    return sum(log.stat().st_size for log in partition.glob("*.log"))


def test_there_are_records_of_groups_of_each_kind(files: Callable[..., list[Path]]) -> None:
    classic, consumer, share = {1, 2}, {3, 5, 6, 7, 8}, {10, 11, 12, 13, 14, 15}
    streams = {17, 19, 20, 21, 22, 23}
    assert classic | consumer | share | streams <= kinds_in(files("__consumer_offsets-*/*.log"))
    assert kinds_in(files("__share_group_state-*/*.log")) == {0, 1}


def kinds_in(logs: Iterable[Path]) -> set[int]:
    """The types of the records of a coordinator."""
    return {
        struct.unpack_from(">h", record.key)[0]
        for log in logs
        for _, batch in iter_batches(log.read_bytes())
        if isinstance(batch, RecordBatch) and not batch.header.is_control
        for record in batch.records()
        if record.key is not None
    }


@pytest.mark.parametrize(
    ("patterns", "flags"),
    [
        (["*/*.log"], []),
        (["*/*.log"], ["--print-data-log"]),
        (["*/*.index", "*/*.timeindex"], []),
        (["*/*.index", "[!_]*/*.timeindex", "__[!c]*/*.timeindex"], ["--index-sanity-check"]),
        (["*/*.txnindex", "*/*.snapshot"], []),
        (
            ["__cluster_metadata-0/*.log", "__cluster_metadata-0/*.checkpoint"],
            ["--cluster-metadata-decoder"],
        ),
        (["__consumer_offsets-*/*.log"], ["--offsets-decoder"]),
        (["__transaction_state-*/*.log"], ["--transaction-log-decoder"]),
        (["__share_group_state-*/*.log"], ["--share-group-state-decoder"]),
        (["*-checkpoint", "*.properties", "codec-none-0/*-checkpoint", "*/*.metadata"], []),
    ],
)
def test_its_tool_prints_the_same_of_every_file(
    files: Callable[..., list[Path]],
    compare: Callable[..., None],
    patterns: list[str],
    flags: list[str],
) -> None:
    compare(files(*patterns), *flags, versions=[KAFKA_4_4])


def test_its_tool_refuses_the_time_index_of_its_own_metadata_log(
    files: Callable[..., list[Path]], compare: Callable[..., None]
) -> None:
    indexes = files("__cluster_metadata-0/*.timeindex")
    compare(indexes[:1], "--index-sanity-check", is_broken=True, versions=[KAFKA_4_4])


def test_they_are_sound(pair: Pair) -> None:
    assert damage_in(pair.before) == []
    assert damage_in(pair.after) == []
