"""Kafka's own cleaner at work on a log directory, timed by what it logs."""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from loggen import TOPIC, WARM_TOPIC
from support.kafka import RealKafka, poll_until
from support.workload import Workload

# kafka-server-start.sh's own flags, with a heap that holds two large buffers of the cleaner.
JVM_FLAGS = (
    "-Xms2g -Xmx2g -XX:-UseSerialGC -XX:+UseG1GC -XX:MaxGCPauseMillis=20 "
    "-XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent"
)
_DEDUPE_BYTES_A_THREAD = 256 << 20
_NEVER_MS = 10 * 365 * 86_400_000
_CLEAN_SECONDS_MAX = 600

_BEGINNING = re.compile(
    r"^\[(?P<at>[^\]]+)\] INFO Cleaner \d+: Beginning cleaning of log (?P<log>\S+)", re.MULTILINE
)
_CLEANED = re.compile(
    r"^\[(?P<at>[^\]]+)\] INFO \[kafka-log-cleaner-thread-\d+\]: *\n"
    r"\tLog cleaner thread \d+ cleaned log (?P<log>\S+) \(dirty section = "
    r"\[(?P<first>\d+), (?P<end>\d+)\]\)\n"
    r"\t(?P<processed>[\d,.]+) MB of log processed in (?P<seconds>[\d,.]+) seconds \([^)]*\)\.\n"
    r"\tIndexed (?P<indexed>[\d,.]+) MB in (?P<index_seconds>[\d,.]+) seconds[^\n]*\n"
    r"\tBuffer utilization: (?P<utilization>[\d,.]+)%\n"
    r"\tCleaned (?P<cleaned>[\d,.]+) MB in (?P<clean_seconds>[\d,.]+) seconds[^\n]*\n"
    r"\tStart size: (?P<start>[\d,.]+) MB \((?P<records_before>[\d,]+) messages\)\n"
    r"\tEnd size: (?P<end_size>[\d,.]+) MB \((?P<records_after>[\d,]+) messages\)\n",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass over one log, as Kafka's cleaner reports it; sizes in its own MB (2**20)."""

    log: str
    at: dt.datetime
    first_dirty: int
    end: int
    seconds: float
    index_seconds: float
    clean_seconds: float
    megabytes: float
    buffer_percent: float
    records_before: int
    records_after: int


def parse_passes(log: str) -> list[Pass]:
    """The passes in a broker's log."""
    return [
        Pass(
            log=found["log"],
            at=_moment(found["at"]),
            first_dirty=int(found["first"]),
            end=int(found["end"]),
            seconds=_number(found["seconds"]),
            index_seconds=_number(found["index_seconds"]),
            clean_seconds=_number(found["clean_seconds"]),
            megabytes=_number(found["processed"]),
            buffer_percent=_number(found["utilization"]),
            records_before=int(_number(found["records_before"])),
            records_after=int(_number(found["records_after"])),
        )
        for found in _CLEANED.finditer(log)
    ]


def parse_beginnings(log: str) -> list[tuple[str, dt.datetime]]:
    """(log, moment) of each beginning of a pass."""
    return [(found["log"], _moment(found["at"])) for found in _BEGINNING.finditer(log)]


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _moment(text: str) -> dt.datetime:
    return dt.datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRun:
    """Time that Kafka's cleaner took.

    `seconds` is what the cleaner itself says of a single partition; of several, the time from the
    first beginning to the last end. `wall_seconds` is the latter always.
    """

    seconds: float
    wall_seconds: float
    index_seconds: float
    records_before: int
    records_after: int
    rounds: int
    buffer_percent: float


def run_kafka_from_start(log_dir: Path, root: Path) -> tuple[float, float]:
    """Starts Kafka on `log_dir`, whose topic is to be cleaned, and stops it when that is done.

    Returns:
        The seconds from the start of its process to the cleaner's last line, and those that the
        cleaner itself took.
    """
    properties = {
        "log.cleaner.threads": "1",
        "log.cleaner.dedupe.buffer.size": str(_DEDUPE_BYTES_A_THREAD),
        "log.segment.delete.delay.ms": "60000",
    }
    flags = f"{JVM_FLAGS} -Duser.timezone=UTC"
    with jvm_flags(flags), RealKafka(root, log_dirs=[log_dir], properties=properties) as kafka:
        started = time.time()
        kafka.start_cleaning(properties)
        done, *_ = poll_until(
            lambda: (
                [p for p in parse_passes(kafka.log_since_start) if p.log == f"{TOPIC}-0"] or None
            ),
            timeout_s=_CLEAN_SECONDS_MAX,
            what="Kafka's cleaner is done",
        )
        kafka.stop()
    return done.at.timestamp() - started, done.seconds


def run_kafka(
    log_dir: Path,
    root: Path,
    *,
    partitions: Mapping[str, int],
    threads: int,
    warm: bool,
    watch: Callable[[int], AbstractContextManager[object]] = lambda _pid: nullcontext(),
) -> KafkaRun:
    """Starts Kafka on `log_dir`, lets it clean the topics named in `partitions`, and stops it.

    With `warm` it cleans the small topic first, so that its code is compiled. Until then the other
    topics are held back by a lag that nothing is old enough for. `watch` is entered with the
    process's id while they are cleaned.
    """
    properties = {
        "log.cleaner.threads": str(threads),
        "log.cleaner.dedupe.buffer.size": str(_DEDUPE_BYTES_A_THREAD * threads),
        "log.cleaner.min.compaction.lag.ms": str(_NEVER_MS),
        "log.cleaner.backoff.ms": "200",
        "log.segment.delete.delay.ms": "60000",
    }
    logs = {f"{topic}-{number}" for topic, count in partitions.items() for number in range(count)}
    with jvm_flags(JVM_FLAGS), RealKafka(root, log_dirs=[log_dir], properties=properties) as kafka:
        kafka.start_cleaning(properties)

        def passes_of(wanted: set[str]) -> list[Pass] | None:
            passes = [p for p in parse_passes(kafka.log_since_start) if p.log in wanted]
            return passes if {p.log for p in passes} == wanted else None

        if warm:
            poll_until(
                lambda: passes_of({f"{WARM_TOPIC}-0"}),
                timeout_s=_CLEAN_SECONDS_MAX,
                what="Kafka's cleaner warms up",
            )
        with watch(kafka.pid):
            for topic in partitions:
                Workload(kafka, 1).alter(topic, {"min.compaction.lag.ms": "0"})
            passes = poll_until(
                lambda: passes_of(logs),
                timeout_s=_CLEAN_SECONDS_MAX,
                what="Kafka's cleaner is done",
            )
        begun = min(at for log, at in parse_beginnings(kafka.log_since_start) if log in logs)
        kafka.stop()
    wall_seconds = (max(p.at for p in passes) - begun).total_seconds()
    return KafkaRun(
        seconds=passes[0].seconds if len(passes) == 1 else wall_seconds,
        wall_seconds=wall_seconds,
        index_seconds=sum(p.index_seconds for p in passes),
        records_before=sum(p.records_before for p in passes),
        records_after=sum(p.records_after for p in passes),
        rounds=len(passes) - len(logs) + 1,
        buffer_percent=max(p.buffer_percent for p in passes),
    )


@contextmanager
def jvm_flags(flags: str) -> Iterator[None]:
    """Flags that count above those on the command line, for processes started meanwhile."""
    before = os.environ.get("_JAVA_OPTIONS")
    os.environ["_JAVA_OPTIONS"] = flags
    try:
        yield
    finally:
        if before is None:
            del os.environ["_JAVA_OPTIONS"]
        else:
            os.environ["_JAVA_OPTIONS"] = before
