"""Erasures from running logs, in this process and without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordwood.cleanup.engine.search.search import ExactKeys, SearcherHere
from cordwood.cleanup.engine.thread_engine import ThreadEngine
from cordwood.cleanup.erasure.criteria import Criteria, parse_target
from cordwood.cleanup.erasure.erase_running import erase_online
from cordwood.cleanup.erasure.request import EraseRequest, Erasure
from cordwood.cleanup.plan.request import Silence
from cordwood.configs.log_config import LogConfig
from cordwood.testing.manual_clock import ManualClock
from support.erasing import ID, KEY, GivenBackend
from support.log_builder import NOW_MS
from support.running_logs import RunningLogs


@contextmanager
def running_logs(root: Path, configs: Mapping[str, LogConfig]) -> Iterator[RunningLogs]:
    """The logs below `root / "logs-0"`, running; they are stopped in good order."""
    logs = RunningLogs(root, configs, clock=ManualClock(NOW_MS))
    for log in logs.manager.logs():
        log.update_high_watermark(log.log_end_offset)
    try:
        yield logs
    finally:
        logs.manager.shutdown()


def request_of(*topics: str, **options: Any) -> EraseRequest:
    """The request to erase `KEY`; `options` are fields of it."""
    given: dict[str, Any] = {
        "log_dirs": (),
        "targets": tuple(parse_target(topic) for topic in topics),
        "criteria": Criteria(keys=frozenset([KEY])),
        "resolve": lambda _: None,
        "now_ms": NOW_MS,
        "id": ID,
        "salt": bytes(range(32)),
        "ledger_salt": bytes(range(32, 64)),
    }
    return EraseRequest(**given | options)


def erase_running_here(
    logs: RunningLogs,
    *topics: str,
    before_rewriting: Callable[[], None] = lambda: None,
    **options: Any,
) -> Erasure:
    """Erases `KEY`; `before_rewriting` is called when all is searched."""
    request = request_of(*topics, **options)

    def engine(_: int) -> ThreadEngine:
        before_rewriting()
        return ThreadEngine()

    backend = GivenBackend(
        searcher=lambda _: SearcherHere([ExactKeys(request.criteria.keys)]), engine=engine
    )
    return erase_online(
        request, backend, logs.cleaning, listener=Silence(), require_wanted=lambda: None
    )
