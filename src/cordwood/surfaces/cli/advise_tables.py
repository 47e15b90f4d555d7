"""Tables of `cordwood advise`: a row for each topic, the remarks, and details of topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import typer

from cordwood.queries.advise.directories import Taken, TopicAdvice
from cordwood.queries.advise.promise import Promise
from cordwood.surfaces.cli.answer_notes import NAMES_MAX, some_of
from cordwood.surfaces.cli.biggest import Choice, Listing, Measure
from cordwood.surfaces.cli.setting_values import shown_text
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes, format_duration, whole_duration

#: What --sort takes.
SORTS: Final = ("size", "age", "remarks", "name")
_WITH_CHANGES: Final = "kept with changes"
_NOT_POSSIBLE: Final = "not possible"
_HINTS: Final = {_WITH_CHANGES: " (--details shows them)"}


def show_topics(topics: Sequence[TopicAdvice], choice: Choice, *, details: bool) -> None:
    """Prints one topic alone as a whole; of several a row each, and every remark once."""
    if not topics:
        print_text("No topic is advised on.")
        return
    if len(topics) == 1:
        _show(topics[0])
        return
    print_text(_summary(topics))
    _LISTING.show("Topics", topics, choice)
    _show_refused(topics)
    _show_remarks(topics)
    for each in _LISTING.split(topics, choice)[0] if details else ():
        typer.echo()
        _show(each)


def _summary(topics: Sequence[TopicAdvice]) -> str:
    """A sentence with the numbers of topics by answer."""
    unlimited = sum(each.age.bound is None for each in topics)
    parts = [
        f"{counted(len(topics), 'topic')}, of which {unlimited:,} have no largest age of a record"
    ]
    goals = [goal for each in topics if (goal := _goal(each))]
    for goal in dict.fromkeys(goals):
        parts.append(f"{goals.count(goal):,} {goal}{_HINTS.get(goal, '')}")
    return "; ".join([*parts, _retention(topics)])


def _retention(topics: Sequence[TopicAdvice]) -> str:
    """Bytes that retention removes now and in the next day, also with the advised settings."""
    now = _taken([each.retention.now for each in topics])
    if all(each.retention.then is None for each in topics):
        return f"retention takes {now}"
    then = _taken([each.retention.then or each.retention.now for each in topics])
    return f"retention takes {now}; with the changes {then}"


def _taken(parts: Sequence[Taken]) -> str:
    size = sum(each.bytes for each in parts)
    soon = sum(each.bytes_next_24h for each in parts)
    return f"{format_bytes(size)} now, and {format_bytes(soon)} more in the next 24 h"


def _goal(topic: TopicAdvice) -> str:
    """A sentence on whether the wanted promise is kept; empty if none is wanted."""
    if topic.refused:
        return _NOT_POSSIBLE
    if topic.promises.changes:
        return _WITH_CHANGES
    return "kept already" if topic.promises.made else ""


def _show_remarks(topics: Sequence[TopicAdvice]) -> None:
    """Prints a row for each remark, with the topics that it is about.

    Of many that differ in their values the first have a row each, and the others one together.
    """
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for topic in topics:
        for each in topic.remarks:
            of_code = found.setdefault((each.code, each.setting), {})
            of_code.setdefault(shown_text(each.text), []).append(topic.topic)
    rows = []
    for (code, setting), texts in found.items():
        parts = list(texts.items())
        rows += [[code, f"{setting}: {text}; of {some_of(of)}"] for text, of in parts[:NAMES_MAX]]
        others = [name for _, of in parts[NAMES_MAX:] for name in of]
        if others:
            hint = "--all --details shows them"
            rows.append([code, f"{setting}: with other values, of {some_of(others)} ({hint})"])
    if rows:
        typer.echo()
        print_table("Remarks", (Column("remark"), Column("what it says", is_prose=True)), rows)


def _show_refused(topics: Sequence[TopicAdvice]) -> None:
    """Prints why promises cannot be kept, each reason once with its topics."""
    found: dict[str, list[str]] = {}
    for topic in topics:
        if topic.refused:
            found.setdefault(topic.refused, []).append(topic.topic)
    if found:
        typer.echo()
    for text, named in found.items():
        print_text(f"{_NOT_POSSIBLE} of {some_of(named)}: {shown_text(text)}")


def _largest_age(topics: Sequence[TopicAdvice]) -> str:
    bound = topics[0].age.bound
    return "no limit" if bound is None else format_duration(bound)


_LISTING: Final[Listing[TopicAdvice]] = Listing(
    heading="topic",
    name=lambda topic: topic.topic,
    keys={
        "size": lambda topic: topic.bytes,
        "age": lambda topic: float("inf") if topic.age.bound is None else topic.age.bound,
        "remarks": lambda topic: len(topic.remarks),
    },
    measures=(
        Measure(
            column=Column("policy", is_optional=True),
            text=lambda topics: topics[0].policy,
            is_summed=False,
        ),
        Measure(
            column=Column("partitions", is_number=True),
            text=lambda topics: f"{sum(each.partitions for each in topics):,}",
        ),
        Measure(
            column=Column("size", is_number=True),
            text=lambda topics: format_bytes(sum(each.bytes for each in topics)),
        ),
        Measure(column=Column("largest age", is_number=True), text=_largest_age, is_summed=False),
        Measure(
            column=Column("remarks", is_number=True),
            text=lambda topics: f"{sum(len(each.remarks) for each in topics):,}",
        ),
        Measure(column=Column("goal"), text=lambda topics: _goal(topics[0]), is_summed=False),
    ),
)


# ---- one topic


def _show(topic: TopicAdvice) -> None:
    print_text(
        f"{topic.topic}: {counted(topic.partitions, 'partition')}, cleanup.policy={topic.policy}"
    )
    age = topic.age
    if age.bound is None:
        print_text(f"  largest age of a record: no limit: {age.why}")
    else:
        print_text(f"  largest age of a record: {whole_duration(age.bound)} = {_ages(age)}")
    if topic.disk_overhead is not None:
        print_text(
            f"  disk space: up to {topic.disk_overhead:.3g} times that of the newest values, "
            f"and the active segment; Kafka's cleaner takes {topic.keys_a_pass:,} keys a pass"
        )
    if topic.refused:
        print_text(f"  {_NOT_POSSIBLE}: {shown_text(topic.refused)}")
    for promise, is_age in ((topic.promises.max_age_ms, True), (topic.promises.max_bytes, False)):
        if promise is not None and promise.bound is not None:
            _show_promise(promise, promise.bound, is_age=is_age)
    print_text(f"  {_retention([topic])}")
    if topic.remarks:
        rows = [[each.code, each.setting, shown_text(each.text)] for each in topic.remarks]
        columns = (Column("remark"), Column("setting"), Column("what it does", is_prose=True))
        print_table("  Remarks", columns, rows)


def _show_promise(promise: Promise, limit: int, *, is_age: bool) -> None:
    bound = whole_duration(limit) if is_age else format_bytes(limit)
    parts = _ages(promise) if is_age else _sizes(promise)
    if not promise.changes:
        print_text(f"  kept already: at most {bound} = {parts}")
        return
    print_text(f"  kept with: {','.join(f'{key}={value}' for key, value in promise.changes)}")
    print_text(f"    at most {bound} = {parts}")


def _ages(promise: Promise) -> str:
    return " + ".join(f"{whole_duration(p.value)} {p.setting}" for p in promise.parts)


def _sizes(promise: Promise) -> str:
    return " + ".join(f"{format_bytes(p.value)} {p.setting}" for p in promise.parts)
