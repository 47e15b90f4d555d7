"""Outlook on removals and their times, on directories that a real Kafka wrote."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from cordwood.model.documents import from_document
from cordwood.queries.explain.answer import Explanation, When
from cordwood.queries.explain.outlook import outlook
from cordwood.surfaces.cli.main import app
from support.golden import Golden

DAY_MS = 86_400_000


def answer_of(golden: Golden, *options: str) -> dict[str, Any]:
    now = str(golden.cleaned_at_ms)
    arguments = ["explain", str(golden.root / "before"), "--now", now, "--json", *options]
    found: dict[str, Any] = json.loads(CliRunner().invoke(app, arguments).stdout)
    return found


def test_every_segment_is_counted_once(golden_a: Golden) -> None:
    answer = answer_of(golden_a)
    summary, partitions = answer["summary"], answer["partitions"]
    assert summary["partitions"] == len(partitions) > 1
    assert summary["bytes"] == sum(each["size_bytes"] for each in partitions)
    assert summary["segments"] == sum(len(each["segments"]) for each in partitions)
    for name in ("bytes", "segments"):
        assert summary[name] == sum(summary[when][name] for when in When)
        for when in When:
            reasons = summary[when]["reasons"].values()
            assert summary[when][name] == sum(reason[name] for reason in reasons)


def test_what_goes_now_is_what_the_check_removes(golden_a: Golden) -> None:
    answer = answer_of(golden_a)
    freed = sum(each["deletable_bytes"] for each in answer["partitions"])
    assert answer["summary"]["now"]["bytes"] == freed > 0
    assert set(answer["summary"]["now"]["reasons"]) <= {"time", "size", "log start offset"}


def test_what_goes_within_a_day_does_not_go_now(golden_a: Golden) -> None:
    answer = answer_of(golden_a)
    logs = from_document(Explanation, answer).partitions
    found = outlook(logs, now_ms=answer["now_ms"])
    soon = [
        segment["size_bytes"]
        for each in answer["partitions"]
        for segment in each["segments"]
        if segment["goes_ms"] is not None
        and not segment["deletable"]
        and segment["goes_ms"] <= answer["now_ms"] + DAY_MS
    ]
    assert found.part(When.DAY).bytes == sum(soon) > 0
    earlier = outlook(logs, now_ms=answer["now_ms"] - 30 * DAY_MS)
    assert earlier.part(When.DAY).bytes == 0
    assert earlier.part(When.LATER).bytes >= sum(soon)
