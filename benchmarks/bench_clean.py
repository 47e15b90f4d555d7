"""Compares `cordwood clean` with Kafka's own log cleaner on equal copies of one log.

Both sides run in turn; a turn counts when other programs left the machine alone meanwhile. Needs
Java, the jars of Apache Kafka (fetched by the tests' fixture), and about 6 GB of disk. How to read
the figures: benchmarks/README.md.

usage: bench_clean.py [--quick] [--cases CASE,...] [--repetitions N] [--work-dir DIR] [--json FILE]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import measure
from command import parser_of, write_figures
from contents import contents_of, require_agreement
from cordwood.format.file_names import LOG_SUFFIX
from floor import Floor, floor_of
from kafka_side import KafkaRun, run_kafka
from loggen import TOPIC, Shape, generate, generate_topics
from our_side import WarmSession, run_cold
from support.compare import compare_log_dirs

CODECS = ("none", "lz4", "zstd")
SHAPES = {
    shape.name: shape
    for shape in [
        *(Shape(codec=codec, partitions=n) for n in (1, 8) for codec in CODECS),
        Shape(steady=True),
    ]
}
#: What the table at the top of benchmarks/README.md calls each case, behind its size.
LABELS = {
    "none-1": "plain, one partition",
    "lz4-1": "lz4, one partition",
    "zstd-1": "zstd, one partition",
    "none-8": "plain, eight partitions, Kafka with two threads",
    "lz4-8": "lz4, eight partitions, Kafka with two threads",
    "zstd-8": "zstd, eight partitions, Kafka with two threads",
    "none-1-steady": "plain, 90 % cleaned before",
}
_QUICK = 0.1
_SMALL = 0.003
_WARM_RECORDS = 600_000
_PLAIN_SHARE = 0.1
_PLAIN_SECONDS_MAX = 900


@dataclass(slots=True, kw_only=True)
class Run:
    """One side once; seconds as that side counts them."""

    seconds: float
    cpu: dict[str, float]
    others_cores: float
    detail: dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Result:
    """All runs of one case. `kafka` and `ours` hold the turns in order; those that count say so."""

    case: str
    log_bytes: int
    segments: int
    records: int
    kafka: list[Run] = field(default_factory=list)
    ours: list[Run] = field(default_factory=list)
    counted: list[bool] = field(default_factory=list)
    kafka_cold: float = 0.0
    ours_cold: float = 0.0
    ours_cold_timing: dict[str, float] = field(default_factory=dict)
    kafka_peak_bytes: int = 0
    ours_peak_bytes: dict[str, int] = field(default_factory=dict)
    ours_peak_together: int = 0
    records_after: int = 0
    floor: Floor | None = None
    phases: dict[str, Any] = field(default_factory=dict)

    def chosen(self, runs: Sequence[Run]) -> list[Run]:
        """The undisturbed turns, or the least disturbed one."""
        if any(self.counted):
            return [run for run, counts in zip(runs, self.counted, strict=True) if counts]
        both = zip(self.kafka, self.ours, strict=True)
        others = [max(kafka.others_cores, ours.others_cores) for kafka, ours in both]
        return [runs[others.index(min(others))]]

    @property
    def kafka_seconds(self) -> float:
        return median(run.seconds for run in self.chosen(self.kafka))

    @property
    def our_seconds(self) -> float:
        return median(run.seconds for run in self.chosen(self.ours))

    @property
    def ratio(self) -> float:
        """The factor by which it is faster than Kafka's cleaner: the median over turns."""
        pairs = zip(self.chosen(self.kafka), self.chosen(self.ours), strict=True)
        return median(kafka.seconds / ours.seconds for kafka, ours in pairs)

    def line(self) -> str:
        megabytes = self.log_bytes / 1e6
        cpu = [
            median(sum(run.cpu.values()) for run in self.chosen(runs))
            for runs in (self.kafka, self.ours)
        ]
        flag = " " if any(self.counted) else "*"
        return (
            f"{self.case:14} {megabytes:7,.0f} {self.kafka_seconds:8.2f} {self.our_seconds:7.2f} "
            f"{megabytes / self.kafka_seconds:7,.0f} {megabytes / self.our_seconds:7,.0f} "
            f"{self.ratio:6.2f}{flag} {cpu[0]:6.1f} {cpu[1]:6.1f} {self.kafka_cold:7.2f} "
            f"{self.ours_cold:7.2f} {self.kafka_peak_bytes / 1e6:6,.0f} "
            f"{self.ours_peak_together / 1e6:6,.0f}"
        )

    def markdown(self) -> str:
        """The row of that table."""
        megabytes = self.log_bytes / 1e6

        def speed(seconds: float) -> str:
            return f"{seconds:.2f} s, {megabytes / seconds:,.0f} MB/s"

        return (
            f"| {megabytes:,.0f} MB {LABELS[self.case]} | {speed(self.kafka_seconds)} | "
            f"{speed(self.our_seconds)} | {self.ratio:.1f} | {self.ours_cold:.1f} s |"
        )


MARKDOWN = (
    "| log | Kafka | Cordwood | ratio | `cordwood clean` from a shell |",
    "| --- | --- | --- | --- | --- |",
)
HEADING = (
    "case                MB  Kafka s  ours s Kafka MB/s ours MB/s  ratio  "
    "CPU s Kafka, ours  cold s Kafka, ours  MB PSS Kafka, ours"
)


@dataclass(slots=True, kw_only=True)
class Bench:
    """Settings of a run, and the session that all cases share."""

    work: Path
    session: WarmSession
    small: Path
    repetitions: int
    others_max: float
    patience_s: float

    def copy(self, source: Path, name: str, *, linked: bool = False) -> Path:
        """An equal copy that is on disk; with `linked` its finished segments are shared files.

        Kafka never writes to a finished segment's log.
        """
        target = self.work / name
        active = {max(d.glob("*.log")) for d in source.iterdir() if any(d.glob("*.log"))}

        def one(from_: str, to: str) -> str:
            if linked and from_.endswith(LOG_SUFFIX) and Path(from_) not in active:
                os.link(from_, to)
                return to
            return str(shutil.copy2(from_, to))

        shutil.copytree(source, target, copy_function=one)
        os.sync()
        return target

    def warm_up(self) -> None:
        """Cleans a small log, so that workers are there and their code is loaded."""
        for split in (True, False):
            copy = self.copy(self.small, "warm-up")
            self.session.clean(copy, split=split)
            shutil.rmtree(copy)

    def wait_for_quiet(self) -> None:
        """Waits a while for the machine to be idle."""
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline:
            if measure.busy_cores(1.0) < self.others_max:
                return

    def kafka(self, source: Path, shape: Shape, *, warm: bool, peaks: measure.Peaks | None) -> Run:
        copy = self.copy(source, "kafka", linked=True)
        spent = measure.Spent()

        @contextmanager
        def watch(process: int) -> Iterator[None]:
            if peaks is not None:
                with measure.sampling(peaks)(process):
                    yield
            else:
                self.wait_for_quiet()
                with measure.spent_by(process, spent):
                    yield

        root = self.work / "kafka-root"
        run: KafkaRun = run_kafka(
            copy,
            root,
            partitions={TOPIC: shape.partitions},
            threads=1 if shape.partitions == 1 else 2,
            warm=warm,
            watch=watch,
        )
        detail = asdict(run) | contents_of(copy)
        shutil.rmtree(root)
        shutil.rmtree(copy)
        return Run(
            seconds=run.seconds, cpu=spent.cpu, others_cores=spent.others_cores, detail=detail
        )

    def ours(self, source: Path, *, peaks: measure.Peaks | None = None) -> Run:
        copy = self.copy(source, "ours")
        spent = measure.Spent()
        process = self.session.process.pid
        self.warm_up()
        if peaks is not None:
            with measure.sampling(peaks)(process):
                answer = self.session.clean(copy)
        else:
            self.wait_for_quiet()
            with measure.spent_by(process, spent):
                answer = self.session.clean(copy)
        detail = {
            "timing": answer["timing_s"],
            "steps": answer["steps"],
            "counts": answer["step_counts"],
            "records_before": sum(p["records_before"] for p in answer["partitions"]),
            **contents_of(copy),
        }
        shutil.rmtree(copy)
        return Run(
            seconds=answer["timing_s"]["total"],
            cpu=spent.cpu,
            others_cores=spent.others_cores,
            detail=detail,
        )

    def cold(self, source: Path) -> tuple[float, dict[str, float]]:
        copy = self.copy(source, "cold")
        self.wait_for_quiet()
        seconds, report = run_cold(copy)
        shutil.rmtree(copy)
        return seconds, report["timing_s"]

    def phases(self, source: Path) -> dict[str, Any]:
        """Measures the same work without Spark, the second time in one machine's caches."""
        found: dict[str, Any] = {}
        program = Path(__file__).with_name("phases.py")
        for log_dir in (self.small, source):
            copy = self.copy(log_dir, "phases")
            self.wait_for_quiet()
            done = subprocess.run(
                [sys.executable, str(program), str(copy)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=_PLAIN_SECONDS_MAX,
            )
            found = json.loads(done.stdout)
            shutil.rmtree(copy)
        return found

    def case(self, shape: Shape, name: str) -> Result:
        source = self.work / "source"
        warm = Shape(codec=shape.codec, records=min(_WARM_RECORDS, shape.records), keys=100_000)
        written = generate(source, shape, warm=warm)
        result = Result(
            case=name,
            log_bytes=sum(w.bytes for w in written),
            segments=sum(w.segments for w in written),
            records=sum(w.records for w in written),
        )
        kafka_peaks, our_peaks = measure.Peaks(), measure.Peaks()
        first = self.kafka(source, shape, warm=False, peaks=kafka_peaks)
        ours = self.ours(source, peaks=our_peaks)
        require_agreement(first.detail, ours.detail)
        result.kafka_cold = first.seconds
        result.records_after = ours.detail["records"]
        result.kafka_peak_bytes = kafka_peaks.together
        result.ours_peak_bytes, result.ours_peak_together = our_peaks.by_kind, our_peaks.together
        result.ours_cold, result.ours_cold_timing = self.cold(source)
        while sum(result.counted) < self.repetitions and len(result.counted) < 2 * self.repetitions:
            result.kafka.append(self.kafka(source, shape, warm=True, peaks=None))
            result.ours.append(self.ours(source))
            require_agreement(result.kafka[-1].detail, result.ours[-1].detail)
            pair = result.kafka[-1], result.ours[-1]
            result.counted.append(all(run.others_cores <= self.others_max for run in pair))
            said = ", ".join(
                f"{side} {run.seconds:.2f} s (others {run.others_cores:.2f} cores)"
                for side, run in zip(("Kafka", "ours"), pair, strict=True)
            )
            print(f"  {name}: {said}{'' if result.counted[-1] else ': does not count'}", flush=True)
        if name == "none-1":
            result.floor = floor_of(source / f"{TOPIC}-0", self.work, ours.detail["bytes"])
            result.phases = self.phases(source)
        shutil.rmtree(source)
        return result


def compare_small(work: Path, session: WarmSession) -> None:
    """Cleans small logs of each codec on both sides and compares them record by record."""
    shapes = {codec: Shape(codec=codec).scaled(_SMALL) for codec in CODECS}
    shapes["steady"] = Shape(steady=True, partitions=2).scaled(_SMALL)
    source, root = work / "small", work / "kafka-root"
    generate_topics(source, shapes)
    ours, kafka = (shutil.copytree(source, work / name) for name in ("ours", "kafka"))
    for topic in shapes:
        session.clean(ours, topic=topic, split=True)
    partitions = {topic: shape.partitions for topic, shape in shapes.items()}
    run_kafka(kafka, root, partitions=partitions, threads=1, warm=False)
    for path in kafka.rglob("*.deleted"):
        path.unlink()
    differences = compare_log_dirs(ours, kafka, list(shapes))
    assert not differences, [str(difference) for difference in differences[:5]]
    for path in (source, ours, kafka, root):
        shutil.rmtree(path)
    print("small logs of each codec, cleaned on both sides: no difference record by record")


def run_plain(work: Path, share: float) -> dict[str, Any]:
    """The plain PySpark solution on a share of the log, and ours beside it."""
    source, out = work / "plain-source", work / "plain-out"
    written = generate(source, Shape().scaled(share))
    command = [
        sys.executable,
        str(Path(__file__).with_name("plain_spark.py")),
        str(source / f"{TOPIC}-0"),
        str(out),
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=_PLAIN_SECONDS_MAX
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(source)
    shutil.rmtree(out)
    return answer | {"log_bytes": sum(w.bytes for w in written), "share": share}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, free="6 GB are free", quick="once, and a tenth of the size")
    parser.add_argument("--scale", type=float, default=1.0, help="of the logs' size, by default 1")
    parser.add_argument("--cases", default=",".join(SHAPES), help="by default %(default)s")
    parser.add_argument("--repetitions", type=int, default=None, help="3, or 1 with --quick")
    parser.add_argument(
        "--no-plain", action="store_true", help="without the plain PySpark solution"
    )
    parser.add_argument("--others-max", type=float, default=0.25, metavar="CORES",
                        help="a turn counts when other programs took less")  # fmt: skip
    parser.add_argument("--patience", type=float, default=30.0, metavar="SECONDS",
                        help="how long to wait for an idle machine before a turn")  # fmt: skip
    options = parser.parse_args(arguments)
    names = options.cases.split(",")
    if unknown := [name for name in names if name not in SHAPES]:
        parser.error(f"no such case: {unknown}; there are {list(SHAPES)}")
    results: list[Result] = []
    plain = None
    scale = options.scale * (_QUICK if options.quick else 1)
    target = options.json or measure.results_file()
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.work_dir) as directory,
        WarmSession() as session,
    ):
        work = Path(directory)
        compare_small(work, session)
        small = work / "warm-up-source"
        generate(small, Shape().scaled(0.01))
        bench = Bench(
            work=work,
            session=session,
            small=small,
            repetitions=options.repetitions or (1 if options.quick else 3),
            others_max=options.others_max,
            patience_s=options.patience,
        )
        for name in names:
            results.append(bench.case(SHAPES[name].scaled(scale), name))
            print(HEADING, results[-1].line(), sep="\n", flush=True)
            write_results(target, results, plain, scale=scale)
        if not options.no_plain:
            plain = run_plain(work, _PLAIN_SHARE * scale)
            write_results(target, results, plain, scale=scale)
    show(results, plain)
    print(f"written to {target}")
    return 0


def show(results: Sequence[Result], plain: dict[str, Any] | None) -> None:
    print(HEADING)
    for result in results:
        print(result.line())
    for result in results:
        if result.floor is not None:
            show_phases(result)
    if not all(any(result.counted) for result in results):
        print("* other programs were busy during every turn: the least disturbed one")
    if plain is not None:
        speed = plain["log_bytes"] / 1e6 / plain["seconds"]
        print(
            f"plain PySpark on {plain['log_bytes'] / 1e6:,.0f} MB (none, 1 partition): "
            f"{plain['seconds']:.1f} s, {speed:,.0f} MB/s"
        )
    print(
        "for benchmarks/README.md:", *MARKDOWN, *(result.markdown() for result in results), sep="\n"
    )


def show_phases(result: Result) -> None:
    """Prints the phases of one case, beside the least time that any program could take."""
    runs = result.chosen(result.ours)
    floor = result.floor
    assert floor is not None, "measured with this case"

    def typical(name: str) -> float:
        return median(run.detail["steps"].get(name, 0.0) for run in runs)

    total = result.our_seconds
    jobs = {name: typical(name) for name in ("index", "rewrite", "clean")}
    capture = median(run.detail["timing"]["capture"] for run in runs)
    commit = median(run.detail["timing"]["commit"] for run in runs)
    kinds = sorted({kind for run in runs for kind in run.cpu})
    cpu = {kind: median(run.cpu.get(kind, 0.0) for run in runs) for kind in kinds}
    print(f"where the time goes ({result.case}, seconds)")
    print(
        f"  capture {capture:.2f}, "
        + "".join(f"{name} job {seconds:.2f}, " for name, seconds in jobs.items() if seconds)
        + f"(in the last, putting segments in place: {typical('put in place'):.2f}), "
        f"checkpoints {commit:.2f}, between {total - capture - sum(jobs.values()) - commit:.2f}; "
        f"in all {total:.2f}"
    )
    print(f"  processor time: {', '.join(f'{kind} {value:.2f}' for kind, value in cpu.items())}")
    named = ", ".join(
        f"{name} {cost['wall']:.2f} (CPU {cost['cpu']:.2f})" for name, cost in result.phases.items()
    )
    print(f"  one thread without Spark: {named}")
    print(
        f"  floor, one thread: read twice {floor.read_twice:.2f}, write {floor.write:.2f}, "
        f"fsync {floor.fsync:.2f}; {floor.total:.2f}"
    )


def write_results(
    target: Path, results: Sequence[Result], plain: dict[str, Any] | None, *, scale: float
) -> None:
    """Writes what there is so far."""
    write_figures(
        target,
        scale=scale,
        cases=[asdict(r) | {"ratio": r.ratio} for r in results],
        plain_pyspark=plain,
    )


if __name__ == "__main__":
    raise SystemExit(main())
