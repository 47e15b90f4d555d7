"""Engine of a broker in a test: the bytes of the product, and its refusals."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.engine.tasks import rewrite_specs
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.documents import to_document
from cordwood.model.errors import CorruptError
from cordwood.queries.cleaning import cleaned_partition
from cordwood.storage.replace import STAGED_SUFFIX
from cordwood.testing.in_process_engine import (
    COMPILED_BYTES_MAX,
    PLAIN_BYTES_MAX,
    InProcessEngine,
    is_plain,
    refusal_of,
    stage_groups,
)
from cordwood.testing.reference_cleaner import (
    CleanedSegment,
    ReferenceCleaner,
    ReferenceRound,
)
from support.base_installation import HIDE
from support.in_process_engine import CompiledEngine, clean_in_process
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.random_log import Contents, random_log
from support.whole_compaction import survivors_of

COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), segment_index_bytes=24)
_TIMED = frozenset({".log", ".index", ".timeindex"})
few = examples(max_examples=max(10, examples().max_examples // 4))
CONTENTS = st.builds(
    Contents,
    batches=st.integers(1, 60),
    records_max=st.sampled_from([1, 3, 8, 40]),
    keys=st.sampled_from([1, 4, 12, 60]),
    value_bytes_max=st.sampled_from([1, 40, 400]),
    roll=st.sampled_from([0.0, 0.1, 0.3]),
    legacy=st.booleans(),
    transactions=st.booleans(),
    unkeyed=st.booleans(),
    versions=st.booleans(),
    ttl=st.booleans(),
    index_interval_bytes=st.sampled_from([0, 200, 4096]),
)


def config_of(seed: int, contents: Contents) -> LogConfig:
    rng = random.Random(seed)
    return LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=rng.choice([300, 2_000, 100_000]),
        segment_index_bytes=rng.choice([24, 10_000]),
        index_interval_bytes=contents.index_interval_bytes,
        delete_retention_ms=rng.choice([0, 1, 86_400_000, 400_000_000]),
        cordwood_compaction_strategy=rng.choice(["offset", "timestamp", "header"]),
        cordwood_compaction_strategy_header="v",
        cordwood_record_ttl_header=rng.choice(["", "ttl"]),
    )


def cleaned(
    log_dir: Path, config: LogConfig, engine: InProcessEngine | None = None
) -> list[dict[str, Any]]:
    """Reports of each partition after a cleaning; with compiled code if engine is None."""
    options: dict[str, Any] = {} if engine is None else {"engine": lambda: nullcontext(engine)}
    report = clean_in_process(log_dir, {"log": config}, now_ms=NOW_MS, force=True, **options)
    return [
        to_document(replace(cleaned_partition(each), log_dir="", keys=None))
        for each in report.partitions
    ]


def files_in(root: Path) -> dict[str, tuple[bytes, int]]:
    """The bytes of all files, and the modification time of those whose time a cleaning sets."""
    # A file that a cleaning creates has the time of its creation.
    started_ns = (root / "meta.properties").stat().st_ctime_ns

    def time_of(path: Path) -> int:
        time_ns = path.stat().st_mtime_ns
        return 0 if time_ns >= started_ns or path.suffix not in _TIMED else time_ns

    return {
        str(path.relative_to(root)): (path.read_bytes(), time_of(path))
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@few
@given(seed=st.integers(0, 2**40), contents=CONTENTS)
def test_files_and_counts_are_those_of_compiled_code(seed: int, contents: Contents) -> None:
    log, config = random_log(seed, contents), config_of(seed, contents)
    with TemporaryDirectory() as root:
        plain = write_log_dir(Path(root) / "plain", [log])
        compiled = Path(root) / "compiled"
        shutil.copytree(plain, compiled)
        assert cleaned(plain, config, InProcessEngine()) == cleaned(compiled, config)
        assert files_in(plain) == files_in(compiled)


def compaction_of(
    log: LogBuilder, directory: Path, config: LogConfig = COMPACT
) -> LogCompaction | None:
    """A compaction of a written log; None when nothing is dirty."""
    captured = log.capture(log.write(directory / str(log.topic_partition)), config)
    cleanable = plan_cleanable(captured.view, now_ms=NOW_MS, force=True)
    if cleanable.reason is not None:
        return None
    plan = plan_compaction(captured.view, cleanable)
    return prepare_compaction(captured, plan, now_ms=NOW_MS, seed=5)


def staged(compaction: LogCompaction, attempt: str) -> list[tuple[Manifest, list[bytes]]]:
    """The groups that are left, as they are staged: the manifest, and the bytes of each file."""
    directory = Path(compaction.directory)
    found = []
    for manifest in stage_groups(replace(compaction, attempt=Attempt(token=attempt))):
        paths = sorted(directory.glob(f"*{STAGED_SUFFIX}"))
        found.append((replace(manifest, token=""), [path.read_bytes() for path in paths]))
        for path in paths:
            path.unlink()
    return found


@few
@given(seed=st.integers(0, 2**40), contents=CONTENTS)
def test_an_interrupted_compaction_goes_on_where_it_was(seed: int, contents: Contents) -> None:
    log, config = random_log(seed, contents), config_of(seed, contents)
    with TemporaryDirectory() as root:
        compaction = compaction_of(log, Path(root), config)
        if compaction is None:
            return
        whole = staged(compaction, "whole")
        groups = list(ReferenceCleaner(ReferenceRound.of(compaction)).groups())
        for done in range(1, len(groups)):
            before = groups[done - 1].tally.after.to_json()
            left = replace(compaction, groups_done=done, before=before)
            assert staged(left, "left") == whole[done:]


def aborted_below_a_later_transaction() -> LogBuilder:
    """Producer 7 aborts in the first segment, and commits a newer value of `k` in the second."""
    log = LogBuilder("log-0")
    producer = (7, 0)
    log.put(b"k", b"aborted", producer=producer, transactional=True)
    log.marker(producer, commit=False)
    log.put(b"a", b"1")
    log.roll()
    log.put(b"k", b"old")
    log.put(b"k", b"new", producer=producer, transactional=True)
    log.marker(producer, commit=True)
    log.roll()
    log.put(b"end", b"end")
    return log


def test_a_compaction_that_goes_on_behind_an_abort_indexes_the_producers_next_transaction(
    tmp_path: Path,
) -> None:
    config = replace(COMPACT, segment_bytes=1)
    compaction = compaction_of(aborted_below_a_later_transaction(), tmp_path, config)
    assert compaction is not None
    whole = staged(compaction, "whole")
    first, second = ReferenceCleaner(ReferenceRound.of(compaction)).groups()
    assert (first.tally.records_after, second.tally.records_after) == (2, 2)
    left = replace(compaction, groups_done=1, before=first.tally.after.to_json())
    assert staged(left, "left") == whole[1:]
    spec = rewrite_specs(left, survivors_of(left))[1]
    spec = replace(spec, staged=replace(spec.staged, token="compiled"))
    GroupRewriter().rewrite(spec)
    assert spec.staged.paths()[".log"].read_bytes() == second.segment.files[".log"]


class Counted(int):
    """A number that counts how often it is added and compared, up to a limit."""

    left = 0

    def __add__(self, other: int) -> Counted:
        self._count()
        return Counted(int(self) + int(other))

    __radd__ = __add__

    def __lt__(self, other: int) -> bool:
        self._count()
        return int(self) < int(other)

    def __le__(self, other: int) -> bool:
        self._count()
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        self._count()
        return int(self) > int(other)

    def __ge__(self, other: int) -> bool:
        self._count()
        return int(self) >= int(other)

    __hash__ = int.__hash__

    @staticmethod
    def _count() -> None:
        Counted.left -= 1
        assert Counted.left >= 0, "more work than the limit"


@pytest.mark.parametrize("segment_bytes", [10**9, 10_000])
def test_the_work_of_dividing_a_segment_grows_with_its_batches_only(segment_bytes: int) -> None:
    count, size = 50_000, 100
    cleaned_segment = CleanedSegment(
        base_offset=0,
        files={".log": b"".join(n.to_bytes(8) + bytes(size - 8) for n in range(count))},
        modified_ns=0,
        offsets=tuple(map(Counted, range(count))),
        facts=tuple((Counted(size), n, n) for n in range(count)),
        aborted=(),
    )
    Counted.left = 20 * count
    pieces = cleaned_segment.divided(segment_bytes, interval_bytes=4096)
    assert [len(piece.facts) for piece in pieces] == (
        [count] if segment_bytes > count * size else [100] * 500
    )
    assert [each for piece in pieces for each in piece.offsets] == list(range(count))


def superseded() -> LogBuilder:
    log = LogBuilder("log-0")
    log.put(b"a", b"1")
    log.put(b"a", b"2")
    log.roll()
    log.put(b"a", b"end")
    return log


@pytest.fixture
def compaction(tmp_path: Path) -> LogCompaction:
    """A compaction of a segment with two batches."""
    found = compaction_of(superseded(), tmp_path)
    assert found is not None
    return found


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.LZ4, 12), (Codec.ZSTD, 19)])
def test_a_densely_compressed_batch_is_written_as_compiled_code_writes_it(
    tmp_path: Path, codec: Codec, level: int
) -> None:
    rng = random.Random(3)
    words = [rng.randbytes(rng.randint(3, 9)) for _ in range(500)]
    records = [
        Record(n, NOW_MS, b"%d" % n, b"".join(rng.choices(words, k=30))) for n in range(1_500)
    ]
    log = LogBuilder("log-0")
    log.append(build_batch(records, base_offset=0, codec=codec, level=level))
    log.put(b"7", b"newer")
    log.roll()
    plain = write_log_dir(tmp_path / "plain", [log])
    shutil.copytree(plain, tmp_path / "compiled")
    cleaned(plain, COMPACT, InProcessEngine())
    cleaned(tmp_path / "compiled", COMPACT)
    assert files_in(plain) == files_in(tmp_path / "compiled")


@pytest.mark.parametrize("damage", ["crc", "cut", "order"])
def test_a_damaged_segment_is_named_and_stays(compaction: LogCompaction, damage: str) -> None:
    path = Path(compaction.segments[0].path)
    data = path.read_bytes()
    first = data[: len(data) // 2]
    damaged = {
        "crc": data[:-1] + bytes([data[-1] ^ 1]),
        "cut": data[:-3],
        "order": data + first,
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(CorruptError, match=path.name):
        list(stage_groups(compaction))
    assert path.read_bytes() == damaged
    assert not list(path.parent.glob(f"*{STAGED_SUFFIX}"))


def test_a_log_that_is_too_large_is_refused_with_the_bound_and_what_to_install(
    compaction: LogCompaction,
) -> None:
    (segment, *rest) = compaction.segments
    larger = replace(segment, size_bytes=COMPILED_BYTES_MAX + 1)
    refusal = refusal_of(
        replace(compaction, segments=(larger, *rest)), plain_bytes_max=PLAIN_BYTES_MAX
    )
    assert "1,073,741,824" in str(refusal)
    assert "cordwood[spark]" in str(refusal)
    assert "spark_engine" in str(refusal)


def test_too_many_keys_are_refused_with_the_bound_and_what_to_install(tmp_path: Path) -> None:
    engine = CompiledEngine()
    engine.keys_max = 1_000
    log = LogBuilder("log-0")
    for first in range(0, 9_000, 500):
        log.batch([(b"%d" % number, b"v") for number in range(first, first + 500)])
    log.roll()
    (partition,) = cleaned(write_log_dir(tmp_path, [log]), COMPACT, engine)
    assert partition["reason"].startswith(
        "log-0 has more keys in its dirty section than the 1,000 of a test: pass `engine="
    )


def test_what_plain_python_does_not_do_is_left_to_compiled_code(
    compaction: LogCompaction,
) -> None:
    assert is_plain(compaction)
    assert not is_plain(replace(compaction, attempt=Attempt(limits=Limits(verify=True))))
    assert not is_plain(replace(compaction, erased=((0, 0),)))
    assert refusal_of(compaction, plain_bytes_max=PLAIN_BYTES_MAX) is None


BASE = """
from dataclasses import replace
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cordwood.model.errors import NotCompactedError
from cordwood.testing.broker import RunningBroker
from cordwood.testing.in_process_engine import InProcessEngine

class Small(InProcessEngine):
    plain_bytes_max = 100

def compacted(broker):
    servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    config = {"cleanup.policy": "compact", "segment.ms": "60000"}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("prices", 1, 1, config=config)])["prices"].result()
    producer = Producer(servers)
    for number in range(20):
        producer.produce("prices", b"%d" % number, b"book", timestamp=broker.now_ms())
        assert producer.flush(30) == 0
    broker.advance(minutes=2)
    producer.produce("prices", b"end", b"end", timestamp=broker.now_ms())
    assert producer.flush(30) == 0
    broker.advance(days=8)
    consumer = Consumer(servers | {"group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("prices", 0, 0)])
    values = [record.value() for record in consumer.consume(2, 30)]
    consumer.close()
    return values

with RunningBroker() as broker:
    print(compacted(broker))
with RunningBroker(engine=Small) as broker:
    try:
        compacted(broker)
    except NotCompactedError as error:
        print(error)
with RunningBroker({"cordwood.cleaner.verify": True}) as broker:
    try:
        compacted(broker)
    except NotCompactedError as error:
        print(error)
"""


def test_a_base_installation_compacts_small_logs_and_says_what_others_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDE + BASE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values, too_large, verified = done.stdout.splitlines()
    assert values == "[b'19', b'end']"
    assert "bytes to compact, more than the 100 of a test" in too_large
    assert "install cordwood[native] for up to 1,073,741,824 bytes, or pass" in too_large
    assert "cordwood[spark]" in too_large
    assert "cordwood.cleaner.verify=true needs compiled code: install cordwood[native]" in verified


def test_a_signal_that_is_handled_while_the_task_starts_ends_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_log_dir(tmp_path / "logs", [superseded()])
    start, tasks = threading.Thread.start, []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("task of "):
            tasks.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cleaned(root, COMPACT)
    assert [task.is_alive() for task in tasks] == [False]
    assert not list(root.rglob(f"*{STAGED_SUFFIX}"))
