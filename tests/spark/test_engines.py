"""One log directory, cleaned by every engine there is: the same bytes, and those of the reference.

The directory holds logs that one task does whole, on one core or several, one whose keys are
indexed in chunks that spill, one whose clean section is spilled too, one whose clean section is
only looked up, two whose records have versions, by timestamp and by a header, and one whose
records expire.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.log_compaction import prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Header, Record
from cordwood.testing.reference_cleaner import clean_by_reference
from support.engine_run import Job, Outcome, config_of, run_jobs
from support.in_process_engine import clean_in_process
from support.log_builder import NOW_MS, KeyValue, LogBuilder, write_log_dir
from support.random_log import Contents, random_log
from support.spark_servers import connect_server, standalone_cluster

pytestmark = pytest.mark.spark

CONFIG = {
    "cleanup_policy": ["compact"],
    "segment_bytes": 60_000,
    "index_interval_bytes": 500,
    "delete_retention_ms": 1_000,
}
SMALL = CONFIG | {"segment_bytes": 1_500, "index_interval_bytes": 200}
TIMED = CONFIG | {"cordwood_compaction_strategy": "timestamp"}
HEADED = CONFIG | {
    "cordwood_compaction_strategy": "header",
    "cordwood_compaction_strategy_header": "v",
}
AGED = CONFIG | {"cordwood_record_ttl_header": "v"}
TOPICS = {
    "big": CONFIG,
    "mixed": CONFIG,
    "probed": CONFIG,
    "small": SMALL,
    "timed": TIMED,
    "headed": HEADED,
    "aged": AGED,
}
ENTRIES_MAX, WHOLE_BYTES = 2_500, 200_000
DONE = {"cleaned", "unchanged"}
MASTERS = ("local[1]", "local[2]", "standalone", "connect")


def big_log(
    name: str, seed: int, *, records: int = 16_000, keys: int = 9_000, headers: bool = False
) -> LogBuilder:
    """Keys of all lengths in batches of all codecs, a segment every 40 KB or so."""
    rng = random.Random(seed)
    log = LogBuilder(name, index_interval_bytes=500)
    names = [b"%d" % n + b"k" * rng.choice([0, 3, 20, 40]) for n in range(keys)]
    while log.next_offset < records:
        count = rng.randint(20, 200)
        batch: list[KeyValue] = [
            (rng.choice(names), None if rng.random() < 0.1 else rng.randbytes(12))
            for _ in range(count)
        ]
        log.batch(
            [_with_version(log.next_offset + n, each, rng) for n, each in enumerate(batch)]
            if headers
            else batch,
            codec=rng.choice(list(Codec)),
            producer=(rng.randrange(3), 0) if rng.random() < 0.5 else None,
            timestamp=NOW_MS - rng.randrange(86_400_000),
        )
        if log.active.size_bytes > 40_000:
            log.roll()
    if log.next_offset > log.active.base_offset:
        log.roll()
    log.put(b"end", b"v")
    return log


def _with_version(offset: int, key_value: KeyValue, rng: random.Random) -> Record:
    """A record whose header is a version: late, the same as others, or none at all.

    As a time to live in ms it is short: such records have expired, the others do not expire.
    """
    version = rng.choice([offset, offset - rng.randrange(3_000), 7])
    made = version.to_bytes(8, "big", signed=True) if rng.random() < 0.9 else b"none"
    headers = (Header("v", made),) if rng.random() < 0.9 else ()
    return Record(offset, NOW_MS - rng.randrange(86_400_000), *key_value, headers)


def logs() -> list[LogBuilder]:
    mixed, probed = big_log("mixed-0", 2), big_log("probed-0", 3)
    mixed.cleaner_checkpoint = mixed.segments[len(mixed.segments) // 2].base_offset + 7
    probed.cleaner_checkpoint = probed.active.base_offset - 500
    timed = big_log("timed-0", 4)
    timed.cleaner_checkpoint = timed.segments[len(timed.segments) // 2].base_offset
    headed = big_log("headed-0", 5, records=6_000, keys=4_000, headers=True)
    headed.cleaner_checkpoint = headed.segments[len(headed.segments) // 2].base_offset
    aged = big_log("aged-0", 6, records=6_000, keys=4_000, headers=True)
    aged.cleaner_checkpoint = aged.segments[len(aged.segments) // 2].base_offset + 7
    made = [big_log("big-0", 1), mixed, probed, timed, headed, aged]
    for seed in range(6):
        log = random_log(seed, Contents(batches=60), name=f"small-{seed}")
        log.log_start_offset = None
        made.append(log)
    return made


@dataclass(frozen=True)
class Case:
    """The directory before cleaning, and the files of each partition that the reference gives."""

    before: Path
    expected: dict[str, dict[str, bytes]]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    made = logs()
    root = write_log_dir(tmp_path_factory.mktemp("engines") / "before", made)
    expected: dict[str, dict[str, bytes]] = {}
    rounds = 0
    for log in made:
        partition = log.topic_partition
        config = config_of(TOPICS[partition.topic])
        captured = log.capture(root / str(partition), config)
        files = segment_files(root / str(partition))
        cleanable = plan_cleanable(captured.view, now_ms=NOW_MS, force=True)
        if cleanable.reason is None:
            plan = plan_compaction(captured.view, cleanable)
            cleaned = clean_by_reference(prepare_compaction(captured, plan, now_ms=NOW_MS, seed=0))
            gone = {base for group in plan.groups for base in group}
            files = {name: d for name, d in files.items() if int(name.split(".")[0]) not in gone}
            for segment in cleaned:
                for suffix, data in segment.files.items():
                    files[f"{segment.base_offset:020d}{suffix}"] = data
            rounds += 1
        expected[str(partition)] = files
    assert rounds > 6
    return Case(root, expected)


def segment_files(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for suffix in (".log", ".index", ".timeindex", ".txnindex")
        for path in directory.glob(f"*{suffix}")
    }


@contextmanager
def address_of(master: str, scratch: Path) -> Iterator[str]:
    servers = {
        "standalone": lambda: standalone_cluster(scratch),
        "connect": lambda: connect_server(scratch),
    }
    with servers.get(master, lambda: nullcontext(master))() as address:
        yield address


@dataclass(frozen=True)
class Cleaned:
    """Results of one engine: with limits that split logs, the same again, and with others.

    `crowded` was first tried on two cores, whose memory its keys did not fit. It and `on_cores`
    were compared with their sources before they were put in place.
    """

    split: Path
    whole: Path
    on_cores: Path
    crowded: Path
    outcomes: list[Outcome]


@pytest.fixture(scope="module", params=MASTERS)
def cleaned(
    request: pytest.FixtureRequest, case: Case, tmp_path_factory: pytest.TempPathFactory
) -> Cleaned:
    """All that is asked of one engine, on one session."""
    scratch = tmp_path_factory.mktemp("engine")
    names = ("split", "whole", "on_cores", "crowded")
    split, whole, on_cores, crowded = (
        shutil.copytree(case.before, scratch / name) for name in names
    )

    def job(root: Path, entries_max: int, whole_bytes: int, verified_on: int | None = None) -> Job:
        return Job(
            log_dir=str(root),
            now_ms=NOW_MS,
            configs=TOPICS,
            entries_max=entries_max,
            whole_bytes=whole_bytes,
            cores=verified_on or 1,
            verify=verified_on is not None,
        )

    tight = job(split, ENTRIES_MAX, WHOLE_BYTES)
    with address_of(request.param, scratch) as address:
        outcomes = run_jobs(
            address,
            [
                tight,
                tight,
                job(whole, 1 << 20, 1 << 30),
                job(on_cores, 1 << 20, WHOLE_BYTES, 3),
                job(crowded, ENTRIES_MAX, WHOLE_BYTES, 2),
            ],
        )
    return Cleaned(split, whole, on_cores, crowded, outcomes)


def assert_as_expected(root: Path, case: Case) -> None:
    for partition, files in case.expected.items():
        found = segment_files(root / partition)
        assert found.keys() == files.keys(), partition
        different = [name for name, data in files.items() if found[name] != data]
        assert not different, f"{partition}: {different}"
    left = [p.name for p in root.rglob("*") if p.name.startswith("cordwood.")]
    left += [p.name for p in root.rglob("*") if p.suffix in {".staged", ".deleted", ".swap"}]
    assert not left


def test_every_partition_is_done(cleaned: Cleaned) -> None:
    for outcome in cleaned.outcomes:
        left = {name: s for name, s in outcome.partitions.items() if s[0] not in DONE}
        assert not left
        assert outcome.slots >= 1


def test_the_share_that_is_done_is_reported_until_all_is(cleaned: Cleaned) -> None:
    reported = [outcome.shares for outcome in cleaned.outcomes if _has_cleaned(outcome)]
    assert reported
    for shares in reported:
        assert shares[-1] == max(shares) == 1.0, shares
        assert all(0 <= share <= 1 for share in shares), shares


def _has_cleaned(outcome: Outcome) -> bool:
    return any(status == "cleaned" for status, _ in outcome.partitions.values())


def test_logs_split_over_tasks_have_the_bytes_of_the_reference(
    cleaned: Cleaned, case: Case
) -> None:
    assert_as_expected(cleaned.split, case)


def test_logs_done_by_one_task_each_have_the_bytes_of_the_reference(
    cleaned: Cleaned, case: Case
) -> None:
    assert_as_expected(cleaned.whole, case)


def test_logs_done_by_one_task_on_several_cores_have_the_bytes_of_the_reference(
    cleaned: Cleaned, case: Case
) -> None:
    assert_as_expected(cleaned.on_cores, case)


def test_logs_whose_keys_do_not_fit_one_task_have_the_bytes_of_the_reference(
    cleaned: Cleaned, case: Case
) -> None:
    assert_as_expected(cleaned.crowded, case)


def test_a_second_run_changes_no_byte(cleaned: Cleaned) -> None:
    first, second, *_ = cleaned.outcomes
    assert second.digest == first.digest
    assert {s[0] for s in second.partitions.values()} == {"unchanged"}


def test_an_engine_without_spark_gives_the_same(case: Case, tmp_path: Path) -> None:
    root = shutil.copytree(case.before, tmp_path / "logs")
    configs = {topic: config_of(fields) for topic, fields in TOPICS.items()}
    assert not clean_in_process(root, configs, now_ms=NOW_MS, force=True).failed
    assert_as_expected(root, case)
