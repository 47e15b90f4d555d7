"""Answers of a real Kafka to the scenario of config requests, kept to compare with.

Ports and directories differ from run to run, and are written as fixed ones.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import NewTopic

from cordwood.format.properties import parse_properties
from support.applied import wait_until_applied
from support.config_client import ConfigClient
from support.config_scenario import STATIC_PROPERTIES, TOPICS, Asked, play
from support.kafka import RealKafka

_PORTS = (19092, 19093)
_DIRECTORY = "/kafka/data"

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


def differences(expected: Answers, broker: Asked) -> list[str]:
    """Differences between `broker`'s answers to the scenario and `expected`, one a line."""
    found: list[str] = []
    for (what, theirs), (asked, answered) in zip(expected, play(broker), strict=True):
        assert what == asked, "the recording is of another scenario"
        ours = json.loads(json.dumps(answered))
        if ours != theirs:
            found += [f"{what}: {line}" for line in _differing(theirs, ours)]
    return found


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
