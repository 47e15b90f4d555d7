"""Spark for the commands that compact, or measure a compaction: started when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cordwood.cleanup.access.commit import Engine, EngineFactory
from cordwood.cleanup.engine.spark.runner import Runner
from cordwood.model.errors import ConfigError, EngineError
from cordwood.model.extras import SPARK, require_extra
from cordwood.surfaces.cli import clean_progress
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.values import parse_size

_MASTERS = ("local", "spark://", "k8s://", "sc://")
# Less memory fits neither the driver nor a worker, so the limit could not be kept.
_MEMORY_BYTES_MIN = 256 << 20


def require_master(master: str) -> None:
    """Checks --master; raises ConfigError."""
    if master != "yarn" and not master.startswith(_MASTERS):
        raise ConfigError(
            f"--master {master}: expected local[N], spark://..., yarn, k8s://... or sc://..."
        )


def parse_memory(option: str | None) -> int:
    """The bytes of --memory.

    Raises:
        ConfigError: it is no size, or too small.
    """
    if option is not None:
        return parse_size(option, option="--memory", least=_MEMORY_BYTES_MIN)
    from cordwood.cleanup.engine.spark.session import default_memory_bytes  # noqa: PLC0415  # if needed

    return default_memory_bytes()


class CleanEngine:
    """Starts Spark when, and only when, there is something to compact."""

    def __init__(
        self,
        *,
        master: str,
        memory_bytes: int,
        shared_dirs: list[Path],
        display: CleanProgress,
        otherwise: str = "--retention-only needs no Java and no extra.",
    ) -> None:
        """Takes the options.

        Args:
            master: where Spark runs.
            memory_bytes: for all Python processes together.
            shared_dirs: directories that workers elsewhere must see.
            display: the progress.
            otherwise: what can be done without Spark.
        """
        self._otherwise = otherwise
        self._master = master
        self._memory_bytes = memory_bytes
        self._shared_dirs = shared_dirs
        self._display = display
        self._stack = ExitStack()
        self._runner: Callable[[], Runner] | None = None
        self._running: Engine | None = None
        #: What the report says of it; empty until it is started.
        self.facts: dict[str, Any] = {}

    def require(self) -> None:
        """Checks that Spark can do the work, before anything is changed; raises EngineError if not.

        A session on a cluster is started, and it checks that its workers can read the directories.
        A session here starts meanwhile, and is waited for when retention has freed space.
        """
        is_here = self._master.startswith("local")
        require_extra(SPARK, what="compaction", otherwise=self._otherwise)
        try:
            # Spark takes seconds to import; retention alone goes without.
            from cordwood.cleanup.engine.spark.session import (  # noqa: PLC0415
                fitting,
                starting_runner,
            )

            self._master = fitting(self._master, self._memory_bytes)
            self._runner = self._stack.enter_context(starting_runner(self._master))
        except EngineError as error:
            raise EngineError(f"{error}. {self._otherwise}") from error
        if not is_here:
            self._running = self._started()

    def _started(self) -> Engine:
        """The engine, when Spark has started."""
        from cordwood.cleanup.engine.spark.engine import EngineCallbacks, SparkEngine  # noqa: PLC0415
        from cordwood.cleanup.engine.spark.machine import JVM_HEAP  # noqa: PLC0415
        from cordwood.cleanup.engine.spark.task_limits import TaskLimits  # noqa: PLC0415

        assert self._runner is not None, "it is required before it is used"
        self._display.say("starting Spark")
        runner = self._runner()
        slots = runner.slots
        limits = TaskLimits.within(self._memory_bytes, slots)
        self.facts = {
            "master": self._master,
            "slots": slots,
            "jvm_heap": JVM_HEAP,
            "memory_bytes": self._memory_bytes,
            "keys_in_memory_per_task": limits.entries_max,
        }
        engine = SparkEngine(
            runner,
            slots=slots,
            cores=min(slots, runner.cores),
            limits=limits,
            callbacks=EngineCallbacks(self._display.bytes_done, self._display.overall),
        )
        if not self._master.startswith("local"):
            engine.require_visible(self._shared_dirs)
        return engine

    def factory(self) -> EngineFactory:
        """The factory of the engine, for `clean`."""

        @contextmanager
        def start() -> Iterator[Engine]:
            if self._runner is None:
                self.require()
            if self._running is None:
                self._running = self._started()
            yield self._running

        return start

    def close(self) -> None:
        """Stops Spark, if it was started."""
        self._stack.close()
        if self.facts and self._master.startswith("local"):
            from cordwood.cleanup.engine.spark import archive_maker  # noqa: PLC0415  # loaded by now

            archive_maker.start_if_missing()


@contextmanager
def clean_display(screen: Screen, *, shown: bool) -> Iterator[CleanProgress]:
    """Progress bars, or a listener that shows nothing."""
    if not shown:
        yield CleanProgress(None)
        return
    with screen.bars(*clean_progress.columns()) as progress:
        display = CleanProgress(progress)
        yield display
        display.finish()
