"""Answers about log directories that are dead or cordoned, of a real Kafka and of Cordwood."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from support.applied import wait_until_applied
from support.failing_disks import break_directory, mend_directory
from support.kafka import RealKafka, poll_until
from support.served import ServedBroker
from support.wire_client import WireClient, batch_of

PARTITIONS = 6
PROPERTIES = {
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "auto.create.topics.enable": "false",
}
Answers = dict[str, Any]


def _make(wire: WireClient, topic: str) -> None:
    """A topic with a record in each partition: Kafka makes the logs behind its answer."""
    wire.create(topic, PARTITIONS)
    for index in range(PARTITIONS):
        poll_until(partial(_is_written, wire, topic, index), timeout_s=180, what="the log is there")


def _is_written(wire: WireClient, topic: str, index: int) -> bool:
    return bool(wire.produce(topic, batch_of(b"x"), index)["error_code"] == "none")


def _is_told(wire: WireClient) -> bool:
    """Whether the broker says that two partitions have no leader."""
    codes = [each["error_code"] for each in wire.partitions("t").values()]
    return codes.count("leader_not_available") == 2


def _is_offline(wire: WireClient, directory: Path) -> bool:
    return bool(wire.directories()[str(directory)]["error_code"] != "none")


def _of_partitions(wire: WireClient, directories: Sequence[Path]) -> list[Answers]:
    """Answers about each partition, by directory."""
    told = wire.partitions("t")
    found = []
    for index in range(PARTITIONS):
        metadata = told[index]
        fields = ("error_code", "leader_id", "leader_epoch", "isr_nodes", "offline_replicas")
        found.append(
            {
                "metadata": {name: metadata[name] for name in fields},
                "produce": wire.produce("t", batch_of(b"x"), index),
                "fetch": {
                    name: value
                    for name, value in wire.fetch("t", index).items()
                    if name not in {"partition_index", "records"}
                },
                "delete": wire.delete_records("t", index, 0)["error_code"],
                "dead": wire.move("t", [index], directories[1]),
                "nowhere": wire.move("t", [index], "/nowhere"),
            }
        )
        found[-1]["produce"]["index"] = 0
        found[-1]["fetch"]["partition_index"] = 0
        for name in ("dead", "nowhere"):
            found[-1][name] = list(found[-1][name].values())
    return sorted(found, key=repr)


def _told(port: int, directories: Sequence[Path]) -> Answers:
    """Answers while the second of three directories fails."""
    answers: Answers = {}
    with WireClient(port) as wire:
        _make(wire, "t")
        break_directory(directories[1])
        for wait in (partial(_is_told, wire), partial(_is_offline, wire, directories[1])):
            poll_until(wait, timeout_s=180, what="the loss is told")
        answers["partitions"] = _of_partitions(wire, directories)
        answers["directories"] = {
            Path(path).name: (each["error_code"], each["total_bytes"] < 0, len(each["partitions"]))
            for path, each in wire.directories().items()
        }
        _make(wire, "later")
        answers["later"] = sorted(
            Path(wire.place_of(f"later-{index}")).name for index in range(PARTITIONS)
        )
        answers["deleted"] = wire.delete("t")
        wait_until_applied(port)
        answers["gone"] = wire.produce("t", batch_of(b"x"))["error_code"]
        _make(wire, "t")
        answers["again"] = [wire.fetch("t", index)["error_code"] for index in range(PARTITIONS)]
    return answers


def _after_restart(port: int, directories: Sequence[Path]) -> Answers:
    """Partitions and directories when the directory is back."""
    with WireClient(port) as wire:
        return {
            "directories": {
                Path(path).name: (each["error_code"], sorted(each["partitions"]) != [])
                for path, each in wire.directories().items()
            },
            "topics": [wire.fetch("t", index)["error_code"] for index in range(PARTITIONS)],
            "stray": sorted(
                path.name.partition("-")[0] for path in directories[1].glob("t-*-stray")
            ),
        }


@pytest.mark.kafka
def test_clients_are_told_of_a_dead_directory_what_a_real_kafka_tells(tmp_path: Path) -> None:
    heard: dict[str, list[Answers]] = {}
    for name in ("kafka", "cordwood"):
        directories = [tmp_path / name / each for each in "abc"]
        (tmp_path / name).mkdir()
        with _broker(name, tmp_path / name, directories) as broker:
            first = _told(broker.port, directories)
            broker.stop()
            mend_directory(directories[1])
            broker.start()
            heard[name] = [first, _after_restart(broker.port, directories)]
            broker.stop()
    assert heard["cordwood"] == heard["kafka"]
    assert heard["kafka"][0]["directories"]["b"] == ("kafka_storage_error", True, 0)


@contextmanager
def _broker(
    name: str,
    root: Path,
    directories: Sequence[Path],
    more: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[RealKafka | ServedBroker]:
    properties = {**PROPERTIES, **more}
    if name == "cordwood":
        properties["log.dirs"] = ",".join(map(str, directories))
        with ServedBroker(directories[0], properties, flags=()) as served:
            yield served
        return
    with RealKafka(root / "kafka", log_dirs=directories, properties=properties) as kafka:
        kafka.start()
        yield kafka


def _cordon(wire: WireClient, directories: str) -> str:
    """Sets cordoned.log.dirs of the broker; the error's name."""
    setting = {"name": "cordoned.log.dirs", "config_operation": 0, "value": directories}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [setting]}
    answer = wire.ask(
        "incremental_alter_configs", 1, {"resources": [resource], "validate_only": False}
    )
    return str(answer["responses"][0]["error_code"])


def _cordoned(wire: WireClient) -> dict[str, bool]:
    return {Path(path).name: each["is_cordoned"] for path, each in wire.directories().items()}


def _is_refused(wire: WireClient, name: str) -> bool:
    """Whether no topic is made; one that is made nevertheless is deleted."""
    error = wire.create(name, name_of_error=True)
    if error == "none":
        wire.delete(name)
    return error == "invalid_replication_factor"


def _told_of_cordoned(port: int, directories: Sequence[Path]) -> Answers:
    """Answers while the second of three directories is cordoned, then all, then none."""
    answers: Answers = {}
    with WireClient(port) as wire:
        answers["directories"] = _cordoned(wire)
        _make(wire, "t")
        answers["t"] = sorted(Path(wire.place_of(f"t-{n}")).name for n in range(PARTITIONS))
        answers["move"] = wire.move("t", [0], directories[1])
        answers["elsewhere"] = _cordon(wire, "/elsewhere")
        answers["all"] = _cordon(wire, "*")
        for number in range(100):  # the controller is told of it in a heartbeat
            if _is_refused(wire, f"refused-{number}"):
                break
        else:
            raise AssertionError("topics are made although all directories are cordoned")
        answers["all directories"] = _cordoned(wire)
        answers["none"] = _cordon(wire, "")
        poll_until(
            lambda: wire.create("later", name_of_error=True) in {"none", "topic_already_exists"},
            timeout_s=60,
            what="topics are made again",
        )
        answers["no directories"] = _cordoned(wire)
    return answers


@pytest.mark.kafka
def test_cordoned_directories_get_no_partitions_as_in_a_real_kafka(tmp_path: Path) -> None:
    heard: dict[str, Answers] = {}
    for name in ("kafka", "cordwood"):
        directories = [tmp_path / name / each for each in "abc"]
        (tmp_path / name).mkdir()
        with _broker(
            name, tmp_path / name, directories, {"cordoned.log.dirs": str(directories[1])}
        ) as broker:
            heard[name] = _told_of_cordoned(broker.port, directories)
            broker.stop()
    assert heard["cordwood"] == heard["kafka"]
    assert heard["kafka"]["directories"] == {"a": False, "b": True, "c": False}
    assert heard["kafka"]["t"] == ["a", "a", "a", "c", "c", "c"]
