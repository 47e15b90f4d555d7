"""Cleans log directories on one Spark session, in a process of its own, with limits that tests set.

`cordwood clean` draws its limits from --memory; here a log of some thousand records can be made too
large for one task. Run as `python -m support.engine_run MASTER`, with jobs on standard
input; the statuses come out on standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cordwood.cleanup.plan.attempt import Limits
from cordwood.cleanup.plan.request import CleanRequest, Resolved
from cordwood.cleanup.schedule.clean import clean
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import SystemClock
from support.clean import digest_tree

_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One log directory to be cleaned at `now_ms`, whatever the dirty ratio.

    `configs` holds fields of `LogConfig` by topic; `cores` is how many a task that runs alone uses;
    `verify` compares what is written with its sources.
    """

    log_dir: str
    now_ms: int
    configs: Mapping[str, Mapping[str, Any]]
    entries_max: int
    whole_bytes: int
    cores: int = 1
    verify: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a job: each partition's (status, reason), how many tasks ran at once, the files.

    `digest` is what `support.clean.digest_tree` gives afterwards. `shares` are the parts of all
    compactions that were reported as done, one after the other.
    """

    partitions: Mapping[str, tuple[str, str]]
    slots: int
    shares: Sequence[float]
    digest: Mapping[str, str]


def config_of(fields: Mapping[str, Any]) -> LogConfig:
    """The settings of a topic of a job."""
    given = dict(fields)
    given["cleanup_policy"] = frozenset(given["cleanup_policy"])
    return LogConfig(**given)


def run_jobs(master: str, jobs: Sequence[Job]) -> list[Outcome]:
    """Runs jobs, one after the other, on one session in another process.

    Raises:
        AssertionError: the process failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "support.engine_run", master],
        input=json.dumps([asdict(job) for job in jobs]),
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return [
        Outcome(
            partitions={name: (found[0], found[1]) for name, found in value["partitions"].items()},
            slots=value["slots"],
            shares=value["shares"],
            digest=value["digest"],
        )
        for value in json.loads(done.stdout)
    ]


def _run(runner: Any, job: Job) -> Outcome:
    from cordwood.cleanup.engine.spark.engine import EngineCallbacks, SparkEngine  # noqa: PLC0415  # seconds to import
    from cordwood.cleanup.engine.spark.task_limits import TaskLimits  # noqa: PLC0415  # seconds to import

    configs = {topic: config_of(fields) for topic, fields in job.configs.items()}

    def resolve(topic: str) -> Resolved | None:
        return Resolved(config=configs[topic], origin={}) if topic in configs else None

    limits = TaskLimits(entries_max=job.entries_max, whole_bytes=job.whole_bytes)
    slots = runner.slots
    shares: list[float] = []
    callbacks = EngineCallbacks(overall=lambda done, total: shares.append(done / total))
    engine = SparkEngine(runner, slots=slots, cores=job.cores, limits=limits, callbacks=callbacks)
    engine.require_visible([Path(job.log_dir)])
    report = clean(
        CleanRequest(
            log_dirs=(Path(job.log_dir),),
            resolve=resolve,
            now_ms=job.now_ms,
            force=True,
            limits=Limits(verify=job.verify),
        ),
        lambda: nullcontext(engine),
        clock=SystemClock(),
    )
    partitions = {f"{p.topic}-{p.partition}": (str(p.status), p.reason) for p in report.partitions}
    digest = digest_tree(Path(job.log_dir))
    return Outcome(partitions=partitions, slots=slots, shares=shares, digest=digest)


def main() -> None:
    """The process that `run_jobs` starts."""
    from cordwood.cleanup.engine.spark.session import spark_runner  # noqa: PLC0415

    master = sys.argv[1]
    jobs = [Job(**value) for value in json.load(sys.stdin)]
    with spark_runner(master) as runner:
        outcomes = [asdict(_run(runner, job)) for job in jobs]
    print(json.dumps(outcomes))  # noqa: T201  # the answer


if __name__ == "__main__":
    main()
