"""The compiled code of a compaction, run in this process: for tests of that code without a JVM."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordwood.cleanup.access.commit import Engine
from cordwood.cleanup.plan.attempt import Limits
from cordwood.cleanup.plan.estimates import Estimator
from cordwood.cleanup.plan.report import Report
from cordwood.cleanup.plan.request import CleanRequest, Listener, Resolved
from cordwood.cleanup.schedule.clean import clean
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import SystemClock
from cordwood.testing.in_process_engine import InProcessEngine


class CompiledEngine(InProcessEngine):
    """Cleans every log as a task of Spark does, however small or large it is."""

    plain_bytes_max = -1
    compiled_bytes_max = sys.maxsize

    def __init__(self, *, batch_bytes_max: int | None = None) -> None:
        """Takes the bound on a batch's memory, if there is one."""
        if batch_bytes_max is not None:
            self.batch_bytes_max = batch_bytes_max


@contextmanager
def in_process() -> Iterator[Engine]:
    """An engine factory for `cordwood.cleanup.schedule.clean.clean`."""
    yield CompiledEngine()


def clean_in_process(
    log_dir: Path,
    configs: Mapping[str, LogConfig],
    *,
    now_ms: int,
    verify: bool = False,
    space_max: int | None = None,
    **options: Any,
) -> Report:
    """Cleans a log directory without Spark.

    `options` are fields of `CleanRequest`, or `listener`, `engine` or `estimator`, which `clean`
    takes.

    Topics without an entry in `configs` are those that no source describes.
    """

    def resolve(topic: str) -> Resolved | None:
        config = configs.get(topic)
        return None if config is None else Resolved(config=config, origin={})

    listener: Listener | None = options.pop("listener", None)
    engine = options.pop("engine", in_process)
    estimator: Estimator | None = options.pop("estimator", None)
    given: dict[str, Any] = {"log_dirs": (log_dir,), "resolve": resolve, "now_ms": now_ms}
    given["limits"] = Limits(verify=verify, space_max=space_max)
    return clean(
        CleanRequest(**given | options),
        engine,
        clock=SystemClock(),
        listener=listener,
        estimator=estimator,
    )
