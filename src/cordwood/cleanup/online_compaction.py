"""One round over a running log, from its segments to the new ones in their place.

This is where compiled code comes in: a process that has nothing to compact need not import it.

Source: org.apache.kafka.storage.internals.log.Cleaner.doClean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cordwood.cleanup.capture import capture
from cordwood.cleanup.cleanable import Cleanable
from cordwood.cleanup.commit import CompactionCommitter, CompactionResult
from cordwood.cleanup.compaction import plan_compaction
from cordwood.cleanup.log_compaction import LogCompaction, limited, prepare_compaction
from cordwood.cleanup.online_placement import OnlinePlacement
from cordwood.cleanup.request import Engine
from cordwood.model.errors import EngineError, NoSpaceError
from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def clean_log(
    log: PartitionLog,
    cleanable: Cleanable,
    engine: Engine,
    *,
    now_ms: int,
    require_wanted: Callable[[], None],
    throttle_bytes: int | None = None,
    prefix: str = "",
) -> CompactionResult:
    """Compacts a log up to its first uncleanable offset.

    Args:
        log: that nobody else cleans, nor takes segments from.
        cleanable: its dirty section.
        engine: runs the round.
        now_ms: decides about delete horizons.
        require_wanted: raises if the round must not continue.
        throttle_bytes: how many bytes a second may be worked through.
        prefix: of what is logged.

    Raises:
        OSError, CordwoodError: what went wrong, or what `require_wanted` raised. Groups that are in
            place stay.
    """
    context = log.context
    _log.info("%sBeginning cleaning of log %s", prefix, log.topic_partition)
    captured = capture(log, end=cleanable.first_uncleanable)
    plan = plan_compaction(captured.view, cleanable)
    # Nobody who writes keys may guess the seed.
    seed = int(context.rng.unique_id(), 16) >> 1
    planned = prepare_compaction(captured, plan, now_ms=now_ms, seed=seed)
    compaction = limited(
        planned,
        attempt=context.rng.unique_id()[:8],
        free_bytes=context.fs.free_bytes(Path(planned.directory)),
        throttle_bytes=throttle_bytes,
    )
    _announce(compaction, prefix)
    told = _Told(compaction, prefix)
    placement = OnlinePlacement(
        log,
        captured.segments,
        truncation_count=captured.truncation_count,
        require_wanted=require_wanted,
        prefix=prefix,
    )
    committer = CompactionCommitter(
        compaction, placement, fs=context.fs, on_first=told.survivors_known
    )
    try:
        engine.run([committer])
    finally:
        # A partition that is gone has nothing to clear; what a disk keeps, the next round clears.
        with suppress(OSError, NoSpaceError):
            committer.close()
    if not committer.done:
        raise committer.result.error or EngineError(
            "the engine stopped before the end of the round"
        )
    return committer.result


def _announce(compaction: LogCompaction, prefix: str) -> None:
    name = compaction.name
    _log.info("%sBuilding offset map for %s...", prefix, name)
    _log.info(
        "%sBuilding offset map for log %s for %s segments in offset range [%s, %s).",
        prefix,
        name,
        len(compaction.dirty),
        compaction.first_dirty,
        compaction.first_uncleanable,
    )


class _Told:
    """Logs, when the first group is ready, that the offset map is complete."""

    def __init__(self, compaction: LogCompaction, prefix: str) -> None:
        self._round = compaction
        self._prefix = prefix

    def survivors_known(self) -> None:
        _log.info("%sOffset map for log %s complete.", self._prefix, self._round.name)
        _log.info(
            "%sCleaning log %s (cleaning prior to %s, discarding tombstones prior to upper bound "
            "deletion horizon %s)...",
            self._prefix,
            self._round.name,
            _date(self._round.segments[-1].modified_ns // 1_000_000),
            _date(self._round.legacy_horizon_ms),
        )


def _date(ms: int) -> str:
    """As java.util.Date prints itself, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
