"""Answers of a real Kafka to the scenario of config requests, kept to compare with.

Ports and directories differ from run to run, and are written as fixed ones.
"""

from __future__ import annotations

import json
import lzma
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka.admin import NewTopic

from cordwood.format.properties import parse_properties
from support.applied import wait_until_applied
from support.config_client import ConfigClient
from support.config_scenario import STATIC_PROPERTIES, TOPICS, Asked, play
from support.kafka import RealKafka

_PORTS = (19092, 19093)
_DIRECTORY = "/kafka/data"

#: Settings of Kafka 4.4, which the recorded 4.3 lacks.
_NEWER: Final = frozenset(
    {
        "consumer.assignor.offload.enable",
        "errors.deadletterqueue.auto.create.topics.enable",
        "errors.deadletterqueue.copy.record.enable",
        "errors.deadletterqueue.group.enable",
        "errors.deadletterqueue.topic.name",
        "errors.deadletterqueue.topic.name.prefix",
        "group.consumer.assignor.offload.enable",
        "group.share.assignor.offload.enable",
        "group.share.dlq.manager.class.name",
        "group.streams.acceptable.recovery.lag",
        "group.streams.assignor.offload.enable",
        "group.streams.assignors",
        "group.streams.max.warmup.replicas",
        "group.streams.min.task.offset.interval.ms",
        "group.streams.num.warmup.replicas",
        "group.streams.rack.aware.assignment.tags",
        "group.streams.task.offset.interval.ms",
        "group.streams.topology.description.plugin.class",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "share.assignor.offload.enable",
        "streams.acceptable.recovery.lag",
        "streams.assignor.name",
        "streams.assignor.offload.enable",
        "streams.num.warmup.replicas",
        "streams.rack.aware.assignment.tags",
        "streams.task.offset.interval.ms",
    }
)
#: What is said of a group's setting out of the bounds: by 4.3 with the name of one bound, by
#: 4.4 with the values of both.
_OUT_OF_BOUNDS: Final = re.compile(
    r"(\S+) must be (?:(?:greater|less) than or equal to \S+"
    r"|in the range \d+ to \d+ inclusive\.)"
)

Answers = list[tuple[str, Any]]
"""What was asked, in words, and the answer."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The broker's server.properties, and what it answered."""

    properties: dict[str, str]
    answers: Answers

    @classmethod
    def of(cls, kafka: RealKafka) -> Self:
        """Starts `kafka` with the scenario's properties, and plays the scenario to it."""
        kafka.properties.update(STATIC_PROPERTIES)
        admin = kafka.start()
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
            made.result()
        wait_until_applied(kafka.port)
        with ConfigClient("127.0.0.1", kafka.port) as client:
            answers = list(play(client, settle=lambda: wait_until_applied(kafka.port)))
        properties = parse_properties(kafka.config_file.read_text())
        text = json.dumps([properties, answers])
        listeners = properties["listeners"].split(",")
        for listener, port in zip(listeners, _PORTS, strict=True):
            address = listener.rpartition("/")[2]
            text = text.replace(address, f"{address.rpartition(':')[0]}:{port}")
        text = text.replace(str(kafka.log_dirs[0]), _DIRECTORY)
        settled = json.loads(text)
        return cls(settled[0], [(what, answer) for what, answer in settled[1]])

    @classmethod
    def read(cls, path: Path) -> Self:
        """The recording in the file `path`."""
        kept = json.loads(lzma.decompress(path.read_bytes()))
        return cls(kept["properties"], [(what, answer) for what, answer in kept["answers"]])

    def write(self, path: Path) -> None:
        """Keeps the recording in the file `path`."""
        kept = {"properties": self.properties, "answers": self.answers}
        path.write_bytes(lzma.compress(json.dumps(kept, indent=0).encode(), preset=9))


def differences(expected: Answers, broker: Asked, *, of_4_3: bool = True) -> list[str]:
    """Differences between `broker`'s answers to the scenario and Kafka's, one a line.

    Args:
        expected: the answers of a Kafka.
        broker: is asked the same.
        of_4_3: whether that Kafka is 4.3: what 4.4 has added and says otherwise is no difference.
    """
    found: list[str] = []
    for (what, theirs), (asked, ours) in zip(expected, play(broker), strict=True):
        assert what == asked, "the recording is of another scenario"
        known, said = theirs, json.loads(json.dumps(ours))
        if of_4_3:
            known, said = _without_news(known), _without_news(said)
        if said != known:
            found += [f"{what}: {line}" for line in _differing(known, said)]
    return found


def _without_news(answer: Any) -> Any:
    """An answer without the settings that Kafka 4.4 has added, and with one text of bounds."""
    if isinstance(answer, dict):
        return {key: _without_news(each) for key, each in answer.items()}
    if isinstance(answer, list):
        return [_without_news(each) for each in answer if not _is_new(each)]
    return _OUT_OF_BOUNDS.sub(r"\1 is out of bounds", answer) if isinstance(answer, str) else answer


def _is_new(entry: Any) -> bool:
    """Whether `entry` is the description of a setting that Kafka 4.4 has added."""
    if isinstance(entry, dict):
        return entry.get("name") in _NEWER
    return isinstance(entry, list) and bool(entry) and str(entry[0]) in _NEWER


def _differing(theirs: Any, ours: Any) -> list[str]:
    if isinstance(theirs, dict):
        if "entries" in theirs:
            return _differing([theirs], [ours])
        return [f"Kafka {theirs}, Cordwood {ours}"]
    lines: list[str] = []
    for expected, actual in zip(theirs, ours, strict=True):
        lines += _differing_resource(expected, actual)
    return lines


def _differing_resource(expected: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    wanted, got = ({**each, "entries": None} for each in (expected, actual))
    lines = [] if wanted == got else [f"Kafka {wanted}, Cordwood {got}"]
    by_name = [
        {_name(entry): entry for entry in each.get("entries") or ()} for each in (expected, actual)
    ]
    for name in by_name[0] | by_name[1]:
        theirs, ours = (entries.get(name) for entries in by_name)
        if theirs != ours:
            lines.append(f"Kafka {theirs}, Cordwood {ours}")
    if not lines and list(by_name[0]) != list(by_name[1]):
        lines.append(f"Kafka's order {list(by_name[0])}, Cordwood's {list(by_name[1])}")
    return lines


def _name(entry: Any) -> str:
    return str(entry["name"] if isinstance(entry, dict) else entry[0])
