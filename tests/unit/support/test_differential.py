"""The comparison of two brokers' answers: what it lets pass, and what it does not."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from support.differential import (
    Difference,
    Step,
    agree,
    differing_lines,
    report,
    resolved,
)
from support.differential_batches import Batches
from support.differential_requests import RandomScript
from support.wire import API_KEYS, known_versions, request_body

NOW_MS = 1_700_000_000_000


def test_a_difference_says_seed_request_place_and_both_values() -> None:
    step = Step("metadata", 12, {"topics": None})
    found = Difference(7, step, {"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})
    text = report(41, [found])
    assert "seed 41" in text
    assert "request 7: metadata v12" in text
    assert ".a[1].b: Kafka 2" in text
    assert "here  3" in text
    assert differing_lines({"a": 1}, {"a": 1}) == []


def test_an_error_may_stand_for_a_fault_of_kafkas_own_and_for_nothing_else() -> None:
    fault, error, none = ({"error_code": code} for code in ("unknown_server_error", "x", "none"))
    assert agree([fault], [error])
    assert not agree([fault], [none])
    assert not agree([error], [fault])
    assert not agree([none], [none, none])


def test_a_seed_draws_the_same_batches_again() -> None:
    one, other = (Batches(random.Random(5), NOW_MS) for _ in range(2))
    assert [one.bad() for _ in range(50)] == [other.bad() for _ in range(50)]


def test_every_request_of_a_script_can_be_written_in_its_version() -> None:
    nowhere: Any = SimpleNamespace(topic_ids={}, sessions={}, producers={}, root="/data")
    apis = set()
    for step in RandomScript(3, 2000, NOW_MS):
        apis.add(step.api)
        if step.raw is None:
            key = API_KEYS[step.api]
            assert step.version in known_versions(key)
            values = resolved(step.values, nowhere)
            assert isinstance(request_body(key, step.version, values), bytes)
    assert len(apis) > 40
