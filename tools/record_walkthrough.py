"""Walks through retention and compaction with a real Kafka and its tools, in real time.

Writes what was seen at one broker to tests/golden/walkthrough/, and what was seen at three to
tests/golden/walkthrough-three-brokers/; tests compare Cordwood with it. Each takes about five
minutes: Kafka's clock cannot be advanced.

usage: record_walkthrough.py [one | one-4.4 | three]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from support.kafka import RealKafka, poll_until
from support.kafka_programs import KAFKA_4_3, KAFKA_4_4
from support.kafka_tools import KafkaTools
from support.mixed_cluster import MixedCluster
from support.side_by_side import Station, kafkas_tools, same_properties
from support.walkthrough import OF_THREE_BROKERS, PROPERTIES, Stage, walk

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


class RealStage(Stage):
    """A real Kafka, on which time passes by itself."""

    def pass_seconds(self, seconds: float, until: Callable[[], bool]) -> None:
        begun = time.monotonic()
        poll_until(until, timeout_s=seconds + 120, what="Kafka does what is due")
        if until() and seconds < 10:
            time.sleep(max(0, begun + seconds - time.monotonic()))


def main() -> None:
    """Records what is named, or all."""
    records: dict[str, Callable[[Path], None]] = {
        "one": partial(_record_one, version=KAFKA_4_3),
        "one-4.4": partial(_record_one, version=KAFKA_4_4),
        "three": _record_three,
    }
    for name in sys.argv[1:] or records:
        with tempfile.TemporaryDirectory() as root:
            records[name](Path(root))


def _record_one(root: Path, *, version: str) -> None:
    with RealKafka(root / "kafka", properties=PROPERTIES, version=version) as kafka:
        kafka.start()
        text = _walked([kafka], version)
        properties = same_properties(kafka)
        kafka.stop()
    _write(GOLDEN / "walkthrough", text, properties, version)


def _record_three(root: Path) -> None:
    with MixedCluster(root, kafka=(1, 2, 3), properties=OF_THREE_BROKERS) as cluster:
        brokers = [each for each in cluster.brokers.values() if isinstance(each, RealKafka)]
        text = _walked(brokers, KAFKA_4_3)
        properties = same_properties(brokers[0])
    del properties["node.id"]
    _write(GOLDEN / "walkthrough-three-brokers", text, properties, KAFKA_4_3)


def _walked(brokers: Sequence[RealKafka], version: str) -> str:
    stations = [Station("Kafka", each.bootstrap_servers, each.log_dirs[0]) for each in brokers]
    with KafkaTools(version) as tools:
        stage = RealStage(stations, kafkas_tools(tools))
        walk(stage)
    return stage.text


def _write(directory: Path, text: str, properties: Mapping[str, str], version: str) -> None:
    directory.mkdir(exist_ok=True)
    settings = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
    (directory / "server.properties").write_text(settings, encoding="utf-8")
    (directory / f"kafka-{version}.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
