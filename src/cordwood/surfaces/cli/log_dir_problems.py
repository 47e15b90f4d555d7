"""Problems of log directories, and the commands that follow: from a summary."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cordwood.cleanup.plan.report import Status
from cordwood.cleanup.schedule.cleaner_answer import CleanerStatus
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC
from cordwood.queries.brokers import BrokerQuestion, broker_on
from cordwood.queries.identity import CONTROLLER, read_runtime_file
from cordwood.queries.log_dirs import LogDirsSummary, NextCommand, Problem
from cordwood.queries.overdue_cleaning import OverdueCleaning
from cordwood.queries.partitions import partition_name
from cordwood.storage.log_directory import InUse
from cordwood.surfaces.cli.answer_notes import grouped_lines, in_use_line, some_of
from cordwood.surfaces.cli.values import counted, format_bytes, format_moment

_FULL: Final = 0.95
_ANSWER_S: Final = 2.0
#: Where the packages of Kafka have the broker's file.
_PROPERTIES: Final = "/etc/kafka/server.properties"
_UNDESCRIBED: Final = "no source describes"


def problems_of(answer: LogDirsSummary, failed: Sequence[tuple[Path, str]]) -> list[Problem]:
    """Each problem, the most urgent first.

    Args:
        answer: the summary.
        failed: the directories that cannot be read, and why.
    """
    found = [("unreadable", f"{path}: {text}") for path, text in failed]
    return [Problem(code=code, text=text) for code, text in (*found, *_problems(answer))]


def _problems(answer: LogDirsSummary) -> Iterator[tuple[str, str]]:
    for each in answer.log_dirs:
        path, used = each.log_dir, each.disk_bytes - each.disk_free_bytes
        if each.disk_bytes >= 0 and used >= _FULL * each.disk_bytes:
            share = f"{100 * used / max(1, each.disk_bytes):.0f} %"
            free = format_bytes(each.disk_free_bytes)
            yield "disk-full", f"the disk of {path} is {share} full: {free} is free"
        if each.in_use_by is not None:
            yield "in-use", in_use_line(InUse(log_dir=path, pid=each.in_use_by))
            yield from _cleaner_problems(Path(path))
        elif not each.stopped_cleanly:
            yield (
                "unclean-stop",
                f"{path} was not stopped cleanly: what is above its recovery points and high "
                "watermarks is not touched, and a broker recovers it when it starts",
            )
    yield from _overdue(answer.overdue_cleanings)
    for code, failed in (
        ("damaged", answer.failed),
        ("not-estimated", answer.compaction.failed),
    ):
        for line in grouped_lines([(partition_name(e), e.reason) for e in failed]):
            yield code, line
    unknown = {e.topic for e in answer.left_alone if e.reason.startswith(_UNDESCRIBED)}
    if unknown:
        yield (
            "no-settings",
            f"the settings of {counted(len(unknown), 'topic')} are not known, so that it is not "
            "known what goes: no metadata log is here. --metadata-dir or --config-file has them; "
            "--defaults takes Kafka's",
        )
    others = [
        each
        for each in answer.left_alone
        if each.topic != CLUSTER_METADATA_TOPIC and not each.reason.startswith(_UNDESCRIBED)
    ]
    alone = [(partition_name(e), f"{Status.LEFT_ALONE}: {e.reason}") for e in others]
    for line in grouped_lines(alone):
        yield "left-alone", line
    for text in answer.warnings:
        yield "warning", text


def _overdue(overdue: Sequence[OverdueCleaning]) -> Iterator[tuple[str, str]]:
    """Lines about logs whose cleaning is overdue by a day or more: one for each directory."""
    for log_dir in dict.fromkeys(each.log_dir for each in overdue):
        here = [each for each in overdue if each.log_dir == log_dir]
        here.sort(key=lambda each: -each.dirty_bytes)
        due_ms = max(each.due_ms for each in here)
        written_ms = max(each.written_ms for each in here)
        yield (
            "not-cleaned",
            f"the cleaner has not finished a cleaning of "
            f"{some_of([partition_name(each) for each in here])} since "
            f"{format_moment(here[0].cleaned_ms)}, though it was due by {format_moment(due_ms)} "
            f"at the latest, and a broker wrote until {format_moment(written_ms)}: its cleaner may "
            f"have died. `cordwood verify {shlex.quote(log_dir)}` says whether a batch is damaged",
        )


def _cleaner_problems(log_dir: Path) -> Iterator[tuple[str, str]]:
    """Problems that the cleaner of a running Cordwood broker reports; a Kafka reports none."""
    try:
        expected = read_runtime_file(log_dir)
        if expected is None or expected.http_url is None or expected.role == CONTROLLER:
            return
        broker = broker_on(log_dir, timeout_s=_ANSWER_S)
        if broker.identity.role == CONTROLLER:
            return
        question = BrokerQuestion(path="/cleaner", answer=CleanerStatus)
        found = list(said_by_cleaner(broker.ask(question, timeout_s=_ANSWER_S)))
    except (CordwoodError, OSError) as error:
        yield "no-answer", f"how the cleaner of the broker on {log_dir} is, is not known: {error}"
    else:
        yield from found


def said_by_cleaner(status: CleanerStatus) -> Iterator[tuple[str, str]]:
    """Problems by the response to `GET /cleaner`."""
    if not status.enabled:
        yield "cleaner-off", "the broker's cleaner is off (log.cleaner.enable=false)"
        return
    dead = [thread.name for thread in status.threads if not thread.alive]
    if dead:
        yield "cleaner-dead", f"threads of the broker's cleaner have ended: {', '.join(dead)}"
    marked = [
        (each.name, f"the cleaner failed: {each.uncleanable.reason}")
        for each in status.partitions
        if each.uncleanable is not None
    ]
    for line in grouped_lines(marked):
        yield "uncleanable", line


def next_commands(
    answer: LogDirsSummary, paths: Sequence[Path], *, sources: Sequence[str], changes: Sequence[str]
) -> list[NextCommand]:
    """Commands that may follow, at most three.

    Args:
        answer: the summary.
        paths: the directories of the summary, as they were given.
        sources: options of the summary that say where settings come from, and its moment.
        changes: those of its settings that were given as such.
    """
    if answer.retention_assumed:
        sources = [*sources, "--server-properties", _PROPERTIES]
    where = shlex.join([*map(str, paths), *sources])
    shown = shlex.join([*map(str, paths), *changes, *sources])
    goes, compaction = answer.summary.now.bytes, answer.compaction
    found = [(f"cordwood clean {shown} --dry-run", "what a cleaning would do; changes nothing")]
    if not any(each.in_use_by for each in answer.log_dirs):
        if goes:
            text = f"removes {format_bytes(goes)} now, needs no Java and no space"
            found.append((f"cordwood clean {shown} --retention-only", text))
        elif compaction.partitions > len(compaction.failed):
            found.append((f"cordwood clean {shown}", "compacts what is due"))
    topics = sorted(answer.topics, key=lambda each: -each.bytes)
    described = [each for each in topics if each.policy is not None]
    if described:
        name = shlex.quote(described[0].topic)
        found.append((f"cordwood explain {shown} --topic {name}", "why it is still there"))
    expiring = [each.topic for each in topics if "delete" in (each.policy or "").split(",")]
    if expiring:
        setting = shlex.quote(f"{expiring[0]}:retention.ms=1d")
        found.append(
            (f"cordwood whatif {where} --set {setting}", "what a shorter retention would free")
        )
    return [NextCommand(command=command, what=what) for command, what in found[:3]]
