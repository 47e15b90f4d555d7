"""Topics that are made and deleted: what clients of others notice of it."""

from __future__ import annotations

import threading
from pathlib import Path

from cordwood.testing.broker import RunningBroker
from cordwood.testing.no_engine import NoEngine
from cordwood.testing.wire import Plain, Wire


def create(wire: Wire, name: str, partitions: int) -> None:
    asked = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    wire.ask("create_topics", 5, {"timeout": 5000, "topics": [asked]})


def metadata(wire: Wire, *names: str) -> dict[str, str]:
    """The error of each topic."""
    topics = [{"name": name} for name in names]
    answer = wire.ask("metadata", 9, {"topics": topics, "allow_auto_topic_creation": True})
    return {each["name"]: each["error_code"] for each in answer["topics"]}


def test_nobody_waits_while_a_topic_of_many_partitions_is_deleted() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        create(wire, "wide", 20)
        held = running.broker.logs.logs()[0]
        answers: list[Plain] = []

        def delete() -> None:
            with Wire(running.port) as other:
                asked = {"topic_names": ["wide"], "timeout": 1000}
                answers.append(other.ask("delete_topics", 4, asked))
                answers.append(other.ask("api_versions", 0, {}))

        thread = threading.Thread(target=delete)
        with held.lock:  # as by a slow disk
            thread.start()
            thread.join(10)
            served_meanwhile = len(answers)
        thread.join()
        assert served_meanwhile == 2


def test_a_stop_waits_for_deletions(tmp_path: Path) -> None:
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        Wire(running.port) as wire,
    ):
        create(wire, "wide", 20)
        wire.ask("delete_topics", 4, {"topic_names": ["wide"], "timeout": 1000})
    names = [path.name for path in tmp_path.glob("wide-*")]
    assert len(names) == 20
    assert all(name.endswith("-delete") for name in names)


def test_topics_asked_for_together_are_made_in_one_change() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        names = [f"t{number}" for number in range(30)]
        known = [running.call(lambda broker: broker.image)]
        running.call(
            lambda broker: broker.controller.subscribe(lambda _old, new: known.append(new))
        )
        told = metadata(wire, *names, "not/one")
        assert told == dict.fromkeys(names, "unknown_topic_or_partition") | {
            "not/one": "invalid_topic_exception"
        }
        assert len(known) == 2
        assert metadata(wire, *names) == dict.fromkeys(names, "none")
