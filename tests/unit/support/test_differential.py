"""The comparison of two brokers' answers: what it lets pass, and what it does not."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cordwood.broker.handlers import served_apis
from cordwood.testing.broker import RunningBroker
from support.differential import (
    Broker,
    Difference,
    Likener,
    Step,
    agree,
    differing_lines,
    report,
    resolved,
)
from support.differential_batches import Batches
from support.differential_requests import RandomScript, draws_of, opening
from support.differential_script import World
from support.no_engine import NoEngine
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


def test_every_served_api_is_drawn() -> None:
    served = served_apis()
    versions = {key: range(0) for key in API_KEYS.values()}
    versions |= {key: range(api.min_version, api.max_version + 1) for key, api in served.items()}
    world = World(random.Random(1), NOW_MS, versions)
    asked = {step.api for step in opening(world)}
    for draw in draws_of(world)[0]:
        asked |= {draw(world).api for _ in range(100)}
    missing = served.keys() - {API_KEYS[api] for api in asked}
    assert not {key: served[key].name for key in missing}, (
        "never compared with Kafka: add a draw to tests/support/differential_admin.py"
    )


def test_a_cluster_id_in_a_text_is_that_of_each_cluster(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "other"):
        with RunningBroker(log_dir=tmp_path / name, engine=NoEngine) as running:
            broker = Broker(running.port, tmp_path / name)
            try:
                likener = Likener(broker, frozenset())
                text = f"Expected {broker.find_cluster_id()}, but got other."
                texts.append(likener.alike(Step("metadata", 12, {}), {"error_message": text}))
            finally:
                broker.wire.close()
    assert texts == [{"error_message": "Expected <cluster id>, but got other."}] * 2
