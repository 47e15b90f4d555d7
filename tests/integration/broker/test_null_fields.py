"""No handler answers null for a field that must have a value: the whole answer would be an error.

An answer that no message can hold becomes UNKNOWN_SERVER_ERROR, and is logged with the reason.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cordwood.broker.handlers import served_apis
from cordwood.serving import dispatch
from cordwood.testing.broker import RunningBroker
from support.differential import Broker
from support.differential_requests import draws_of, opening
from support.differential_script import Topic, World
from support.no_engine import NoEngine
from support.wire import API_KEYS

DRAWS_EACH = 2


def only(nth: int) -> dict[int, range]:
    """Of every served API, the nth version, counted from the highest; or the lowest."""
    versions = {key: range(0) for key in API_KEYS.values()}
    for key, api in served_apis().items():
        version = max(api.min_version, api.max_version - nth)
        versions[key] = range(version, version + 1)
    return versions


def test_no_answer_has_null_for_a_field_that_must_have_a_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = 1 + max(api.max_version - api.min_version for api in served_apis().values())
    topics: dict[str, Topic] = {}
    asked = set()
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as running:
        broker = Broker(running.port, tmp_path)
        for nth in range(rounds):
            world = World(random.Random(nth), running.now_ms(), only(nth))
            world.topics = topics
            for step in opening(world):
                world.learn(step, broker.settled(step))
            for draw in draws_of(world)[0]:
                for _ in range(DRAWS_EACH):
                    step = draw(world)
                    world.learn(step, broker.ask(step))
                    asked.add((step.api, step.version))
        broker.wire.close()
    assert len(asked) > 150
    answers = [each.getMessage() for each in caplog.records if each.name == dispatch.__name__]
    assert not [each for each in answers if "null" in each]
