"""Cordwood at work on a log directory: a session kept warm, and the command from cold.

Run as a program, it is the warm session: it starts Spark once, then reads a JSON document a line
from its standard input, `{"log_dir": ..., "topic": ..., "split": ...}`, cleans the topic there, and
answers with one line: the report's timing, what was found, and what each step of the engine took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loggen import TOPIC

_ANSWER_SECONDS_MAX = 900


class WarmSession:
    """The other end of the pipe; a context manager that leaves nothing running."""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None, "a pipe"
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def clean(self, log_dir: Path, *, topic: str = TOPIC, split: bool = False) -> dict[str, Any]:
        """Cleans one topic; with `split` even a small log is cut into chunks.

        Raises:
            RuntimeError: the session ended, or the cleaning failed.
        """
        assert self.process.stdin is not None, "a pipe"
        assert self.process.stdout is not None, "a pipe"
        request = {"log_dir": str(log_dir), "topic": topic, "split": split}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the warm session ended with {self.process.wait(60)}")
        answer: dict[str, Any] = json.loads(line)
        failed = [p for p in answer["partitions"] if p["status"] in {"failed", "no space"}]
        if failed:
            raise RuntimeError(f"not cleaned: {failed}")
        return answer


def run_cold(
    log_dir: Path, *, topic: str = TOPIC, options: Sequence[str] = ()
) -> tuple[float, dict[str, Any]]:
    """(seconds from start to exit, the report) of the command `cordwood clean`, as from a shell."""
    program = str(Path(sys.executable).with_name("cordwood"))
    command = [program, "clean", str(log_dir), "--topic", topic, "--json", "--yes", *options]
    started = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS_MAX
    )
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise RuntimeError(f"cordwood clean failed: {done.stdout}{done.stderr}")
    return seconds, json.loads(done.stdout)


class Steps:
    """Seconds of each step of an engine, as the engine reports them, and how often it was taken."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.counts: dict[str, int] = {}

    def reset(self) -> None:
        """Forgets everything."""
        self.seconds.clear()
        self.counts.clear()

    def add(self, name: str, seconds: float) -> None:
        """Notes a step that is over."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.counts[name] = self.counts.get(name, 0) + 1


def serve() -> None:
    # ruff: noqa: PLC0415  # seconds to import, and the other end of the pipe does without
    from cordwood.cleanup.access.commit import CompactionCommitter
    from cordwood.cleanup.engine.spark.engine import EngineCallbacks, SparkEngine
    from cordwood.cleanup.engine.spark.session import default_memory_bytes, spark_runner
    from cordwood.cleanup.engine.spark.task_limits import TaskLimits
    from cordwood.cleanup.plan.request import CleanRequest
    from cordwood.cleanup.schedule.clean import clean
    from cordwood.model.clock import SystemClock
    from cordwood.model.documents import to_document
    from cordwood.queries.cleaning import cleaning_of
    from cordwood.queries.settings import SettingOptions, read_settings

    class Stepping:
        """The engine, and the time it took to put groups in place, noted as a step."""

        def __init__(self, inner: SparkEngine) -> None:
            self._inner = inner

        def run(self, committers: Sequence[CompactionCommitter]) -> None:
            self._inner.run(committers)
            steps.add("put in place", sum(each.result.placing_s for each in committers))

    master = "local[*]"
    steps = Steps()
    with spark_runner(master) as runner:
        slots = runner.slots
        limits = {
            False: TaskLimits.within(default_memory_bytes(), slots),
            True: TaskLimits(whole_bytes=1, entries_max=50_000),
        }
        callbacks = EngineCallbacks(ended=steps.add)
        engines = {
            split: Stepping(
                SparkEngine(
                    runner,
                    slots=slots,
                    cores=1 if split else runner.cores,
                    limits=each,
                    callbacks=callbacks,
                )
            )
            for split, each in limits.items()
        }
        for line in sys.stdin:
            asked = json.loads(line)
            log_dir = Path(asked["log_dir"])
            settings = read_settings(SettingOptions(log_dirs=[log_dir]))
            clock = SystemClock()
            request = CleanRequest(
                log_dirs=(log_dir,),
                resolve=settings.resolve,
                now_ms=clock.now_ms(),
                topics=(asked["topic"],),
                producer_expiration_ms=settings.broker.producer_id_expiration_ms,
            )

            @contextmanager
            def running(engine: Stepping = engines[asked["split"]]) -> Iterator[Stepping]:
                yield engine

            steps.reset()
            report = clean(request, running, clock=clock)
            answer = to_document(cleaning_of(report)) | {
                "steps": steps.seconds,
                "step_counts": steps.counts,
            }
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
