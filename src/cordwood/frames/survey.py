"""The slices of log directories: which logs there are, and what of them is wanted."""

from __future__ import annotations

from cordwood.cleanup.plan.report import Status
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.cleanup.schedule.survey import survey
from cordwood.frames.options import FrameOptions
from cordwood.frames.slices import Slice, slices_of
from cordwood.frames.wanted import Wanted
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import CordwoodError
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.reread import reread


def slices_of_directories(
    options: FrameOptions, wanted: Wanted, *, clock: Clock | None = None
) -> list[Slice]:
    """The slices of all logs of the directories, partition by partition.

    Args:
        options: directories, topics, isolation, sizes.
        wanted: the part that is asked for, at most that of the options.
        clock: for what is due; the system's if there is none.

    Raises:
        ConfigError: a topic is not there.
        CordwoodError: a log that is wanted cannot be read.
        OSError: a directory cannot be read.
    """
    clock = clock or SystemClock()
    settings = reread(
        lambda: read_settings(SettingOptions(log_dirs=options.log_dirs, defaults=True))
    )
    request = CleanRequest(
        log_dirs=options.log_dirs,
        resolve=settings.resolve,
        now_ms=clock.now_ms(),
        topics=options.topics,
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        metadata_version=settings.metadata_version,
    )
    found = survey(request, clock=clock)
    failed = [each for each in found.report.partitions if each.status is Status.FAILED]
    if failed:
        raise CordwoodError(f"{failed[0].topic}-{failed[0].partition}: {failed[0].reason}")
    return [
        each
        for _, captured in found.logs
        if wanted.has(captured.view.topic_partition)
        for each in slices_of(captured, wanted, options.isolation, slice_bytes=options.slice_bytes)
    ]
