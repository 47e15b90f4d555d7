"""The logs of directories that are wanted of a table."""

from __future__ import annotations

from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.report import Status
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.cleanup.schedule.survey import survey
from cordwood.frames.options import FrameOptions
from cordwood.frames.wanted import Wanted
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import CordwoodError
from cordwood.queries.settings import SettingOptions, read_settings
from cordwood.storage.reread import reread


def captured_logs(
    options: FrameOptions,
    wanted: Wanted,
    *,
    topic: str | None = None,
    may_lack_topics: bool = False,
    clock: Clock | None = None,
) -> list[Captured]:
    """The logs of the directories that are wanted, each as it is at one moment.

    Args:
        options: directories and topics.
        wanted: the part that is asked for, at most that of the options.
        topic: in place of the topics of the options; it may be missing.
        may_lack_topics: no topic of the options needs to be there.
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
        topics=options.topics if topic is None else (topic,),
        topics_option="option topics",
        may_lack_topics=may_lack_topics or topic is not None,
        dry_run=True,
        for_reading=True,
        producer_expiration_ms=settings.broker.producer_id_expiration_ms,
        metadata_version=settings.metadata_version,
    )
    found = survey(request, clock=clock)
    failed = [each for each in found.report.partitions if each.status is Status.FAILED]
    if failed:
        raise CordwoodError(f"{failed[0].topic}-{failed[0].partition}: {failed[0].reason}")
    return [captured for _, captured in found.logs if wanted.has(captured.view.topic_partition)]
