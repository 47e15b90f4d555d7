"""Rewrites the groups of an attempt, makes them durable and announces them."""

from __future__ import annotations

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cordwood.cleanup.access.announcements import (
    announce,
    require_wanted,
    staging_errors,
)
from cordwood.cleanup.engine.output import Output
from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.engine.segment_facts import count_set
from cordwood.cleanup.engine.survivors import Progress, no_progress
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec
from cordwood.cleanup.verification.group import verify_group
from cordwood.model.clock import SystemClock, pause
from cordwood.model.errors import EngineError, NoSpaceError
from cordwood.storage.filesystem import OS, FileSystem

_WAIT_S = 0.005


_WAIT_MAX_S = 900.0


def size_estimate(spec: RewriteSpec) -> int:
    """About how many bytes a group takes when rewritten; seldom less than it does take."""
    total = 0
    for segment in spec.segments:
        records = 8 * len(segment.keep)
        share = count_set(segment.keep) / records if records else 1.0
        total += int(segment.source.size_bytes * min(1.0, share * 1.1 + 0.02))
    return total


def require_room(spec: RewriteSpec, fs: FileSystem) -> None:
    """Checks that there is space for a rewritten group.

    Raises:
        NoSpaceError: there is not; nothing was started.
    """
    wanted = size_estimate(spec)
    free = fs.free_bytes(Path(spec.staged.directory))
    space_max = spec.compaction.attempt.limits.space_max
    allowed = free if space_max is None else min(free, space_max)
    if wanted > allowed:
        why = "are free" if allowed == free else "may be used (--max-extra-bytes)"
        raise NoSpaceError(
            f"the group of segments at {spec.staged.base_offset} takes about {wanted} bytes when "
            f"rewritten, and {allowed} {why}; it was not started"
        )


class Publisher:
    """Rewrites the groups of one attempt at a compaction, and announces each.

    At most two groups are not in place yet at any time.

    While one group is being written, the one before it is made durable and announced in a thread of
    its own, and the one before that has been put in place. With `one_at_a_time` every group is put
    in place before the next is begun.
    """

    def __init__(
        self,
        directory: Path,
        attempt: str,
        *,
        progress: Progress = no_progress,
        wrote: Progress = no_progress,
        fs: FileSystem = OS,
    ) -> None:
        self._directory = directory
        self._attempt = attempt
        self._fs = fs
        self._rewriter = GroupRewriter(progress, wrote, fs=fs)
        self._finisher = ThreadPoolExecutor(max_workers=1)
        self._under_way: list[Future[Path]] = []

    def publish(self, spec: RewriteSpec) -> None:
        """Rewrites one group.

        Raises:
            EngineError: the owner of the log gave up the compaction, or is gone.
            CorruptError: a source is damaged.
            NoSpaceError, StagingError: a staged file cannot be written.
            OSError: a source cannot be read.
        """
        spec = replace(
            spec, staged=replace(spec.staged, token=spec.staged.token + uuid.uuid4().hex[:8])
        )
        self._wait_until_left(0 if spec.compaction.one_at_a_time else 1)
        if not spec.compaction.attempt.is_measured:
            require_room(spec, self._fs)
        output = self._rewriter.write(spec)
        self._under_way.append(self._finisher.submit(self._finish, spec, output))

    def close(self) -> None:
        """Waits until every group is in place.

        Raises:
            As `publish` does.
        """
        try:
            self._wait_until_left(0)
        finally:
            self.end()

    def end(self) -> None:
        """Returns when nothing more will be staged or announced; also after an error."""
        self._finisher.shutdown(wait=True)

    def _wait_until_left(self, count: int) -> None:
        """Waits until no more than `count` groups are not in place yet."""
        clock = SystemClock()
        deadline = clock.monotonic_s() + _WAIT_MAX_S
        while len(self._under_way) > count:
            require_wanted(self._directory, self._attempt, fs=self._fs)
            oldest = self._under_way[0]
            if oldest.done() and not self._fs.exists(oldest.result()):
                del self._under_way[0]
                continue
            if clock.monotonic_s() > deadline:
                raise EngineError("the owner of the compaction has ended")
            pause(max(_WAIT_S, self._fs.look_again_s(self._directory)))

    def _finish(self, spec: RewriteSpec, output: Output) -> Path:
        manifest = output.finish()
        if spec.evidence:
            with staging_errors(self._directory):
                verify_group(spec, manifest, fs=self._fs)
        return announce(self._directory, manifest, fs=self._fs)
