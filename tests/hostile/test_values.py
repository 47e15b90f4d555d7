"""Numbers of requests at a controller that are of no enum and no range, and a start after them.

What brokers and tools send is changed in one number at a time. The controller, another one on its
directory, and a Kafka must read what was written.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from cordwood.broker.handlers import served_apis
from cordwood.metadata.feature_levels import DEFAULT_FEATURES
from cordwood.protocol.messages import MalformedMessageError, encode, request_codec
from cordwood.testing.broker import RunningBroker
from support.cluster_controller import ClusterController
from support.controller_script import ControllerScript, Station
from support.kafka import RealKafka, poll_until
from support.kafka_cluster import KafkaController
from support.length_fuzz import send, usual_fields
from support.no_engine import NoEngine
from support.wire import API_KEYS, read_response, request_body, request_frame
from support.wire_client import WireClient, batch_of

_VALUES: Final = (
    *(-(2**63), -(2**31), -(2**15), -128, -2, -1),
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 32, 64, 77, 127),
    *(2**15 - 1, 2**16 - 1, 2**31 - 1, 2**63 - 1),
)
#: A wait in the request is none of what is recorded.
_WAITS: Final = frozenset({"timeout_ms"})

_DOES_NOT_FIT: Final = (
    *(MalformedMessageError, ValueError, OverflowError, TypeError, struct.error),
)

FieldPath = tuple[str | int, ...]


def number_paths(value: Any, path: FieldPath = ()) -> Iterator[FieldPath]:
    """The ways to all numbers in the fields of a request."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in _WAITS:
                yield from number_paths(each, (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from number_paths(each, (*path, index))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def with_value(fields: Any, path: FieldPath, value: float) -> Any:
    """A copy of the fields with another number at the end of a path."""
    if not path:
        return value
    if isinstance(fields, Mapping):
        return {
            name: with_value(each, path[1:], value) if name == path[0] else each
            for name, each in fields.items()
        }
    return [
        with_value(each, path[1:], value) if index == path[0] else each
        for index, each in enumerate(fields)
    ]


def changed_frames(
    api_key: int, version: int, rng: random.Random, *, count: int
) -> Iterator[tuple[str, bytes]]:
    """The name of each field that is a number, and the request with `count` other values in it."""
    message, fields = request_codec(api_key, version), usual_fields(api_key, version)
    for path in number_paths(fields):
        for value in rng.sample(_VALUES, count):
            try:
                body = encode(message, with_value(fields, path, value))
            except _DOES_NOT_FIT:
                continue  # too large for the field
            names = ".".join(str(each) for each in path if isinstance(each, str))
            frame = request_frame(api_key, version, 1, "values", body)
            yield f"{message.schema.name} {names}={value}", frame


def changed(
    api: str, version: int, fields: Mapping[str, Any], rng: random.Random
) -> tuple[str, bytes] | None:
    """The name of the field and the body of a request with one number changed; None without one."""
    paths = list(number_paths(fields))
    values = [*_VALUES]
    rng.shuffle(paths)
    rng.shuffle(values)
    for path in paths:
        for value in values:
            try:
                body = request_body(API_KEYS[api], version, with_value(fields, path, value))
            except _DOES_NOT_FIT:
                continue  # too large for the field
            names = ".".join(str(each) for each in path if isinstance(each, str))
            return f"{api} {names}={value}", body
    return None


_QUIET = {
    "broker.session.timeout.ms": "600000",
    "metadata.max.idle.interval.ms": "0",
    "auto.leader.rebalance.enable": "false",
}
_BROKER = {"offsets.topic.num.partitions": "2"}
_START_S = 120.0


def controller_of(root: Path) -> ClusterController:
    features = {**DEFAULT_FEATURES, "share.version": 1, "streams.version": 1}
    return ClusterController(root, properties=_QUIET, features=features)


def send_changed(station: Station, seed: int, steps: int) -> Counter[str]:
    """Sends each request of a script as it is, and before that with a number changed.

    Returns:
        How many of the changed ones were accepted and refused.
    """
    script, rng = ControllerScript(seed), random.Random(seed)
    outcomes: Counter[str] = Counter()
    begin = script.begin()
    for step in range(steps):
        api, version, make = begin[step] if step < len(begin) else script.next()
        fields = make(station)
        found = changed(api, version, fields, rng)
        if found is not None:
            _, body = found
            key = API_KEYS[api]
            answer = read_response(key, version, station.wire.exchange(key, version, body))
            has_error = any(name != "none" for name in _errors(answer))
            outcomes["refused" if has_error else "accepted"] += 1
            station.new_records()  # all can be read
        station.ask(api, version, make(station))
        station.new_records()
    return outcomes


def _errors(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [str(value["error_code"])] if "error_code" in value else []
        return own + [each for one in value.values() for each in _errors(one)]
    if isinstance(value, list):
        return [each for one in value for each in _errors(one)]
    return []


def run(root: Path, seed: int, steps: int) -> tuple[ClusterController, Counter[str]]:
    """A seed at a new controller, and once more after a start; the controller, and the outcomes.

    No request ends it, or has it log a traceback.
    """
    outcomes: Counter[str] = Counter()
    own = controller_of(root)
    for _ in range(2):
        with own:
            own.start()
            station = Station(own.port, own.log_dir)
            outcomes += send_changed(station, seed, steps)
            station.close()
    assert "Traceback" not in own.log, own.log[-3000:]
    return own, outcomes


def test_a_controller_starts_again_after_numbers_of_no_enum_and_no_range(tmp_path: Path) -> None:
    _, outcomes = run(tmp_path, 0, 100)
    assert outcomes["refused"] > 50
    assert outcomes["accepted"] > 10


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
@pytest.mark.parametrize(
    "seeds",
    [range(1, 2), pytest.param(range(2, 12), marks=pytest.mark.nightly)],
    ids=["few", "many"],
)
def test_a_kafka_controller_reads_what_was_written_after_numbers_of_no_enum_and_no_range(
    tmp_path: Path, seeds: range
) -> None:
    for seed in seeds:
        own, _ = run(tmp_path / f"own-{seed}", seed, 200)
        with KafkaController(
            tmp_path / f"kafka-{seed}", properties=_QUIET, log_dirs=[own.log_dir]
        ) as kafka:
            kafka.port = own.port
            kafka.launch()
            poll_until(kafka.serving, timeout_s=_START_S, what="the start of a controller")
            assert not kafka.errors_since_start


#: It would take the broker itself out of the cluster.
_UNREGISTER_BROKER = API_KEYS["unregister_broker"]


def send_to_broker(log_dir: Path, *, count: int) -> Counter[str]:
    """Sends every request with each of its numbers changed, and starts the broker again."""
    outcomes: Counter[str] = Counter()
    rng = random.Random(count)
    with RunningBroker(_BROKER, log_dir=log_dir, engine=NoEngine) as broker:
        with WireClient(broker.port) as wire:
            wire.create("t")
            wire.create("__consumer_offsets", 2)
        for key, api in sorted(served_apis().items()):
            if key == _UNREGISTER_BROKER:
                continue
            for _, frame in changed_frames(key, api.max_version, rng, count=count):
                outcomes[send(broker.port, frame, timeout_s=1)] += 1
    with (
        RunningBroker(_BROKER, log_dir=log_dir, engine=NoEngine) as broker,
        WireClient(broker.port) as wire,
    ):
        wire.create("u", name_of_error=True)
        assert wire.produce("u", batch_of(b"v"))["error_code"] == "none"
    return outcomes


def test_a_broker_starts_again_after_numbers_of_no_enum_and_no_range(tmp_path: Path) -> None:
    outcomes = send_to_broker(tmp_path / "data", count=1)
    assert outcomes["answered"] > 100


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
@pytest.mark.parametrize(
    "count", [3, pytest.param(12, marks=pytest.mark.nightly)], ids=["few", "many"]
)
def test_a_kafka_broker_starts_after_numbers_of_no_enum_and_no_range(
    tmp_path: Path, count: int
) -> None:
    send_to_broker(tmp_path / "data", count=count)
    with RealKafka(tmp_path / "kafka", log_dirs=[tmp_path / "data"], properties=_BROKER) as kafka:
        admin = kafka.start()
        assert "u" in admin.list_topics(timeout=30).topics
        assert not kafka.errors_since_start
        kafka.stop()
