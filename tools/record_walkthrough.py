"""Walks through retention and compaction with a real Kafka and its tools, in real time.

Writes tests/golden/walkthrough/kafka-4.3.0.txt, with which tests compare Cordwood. It takes about
five minutes: Kafka's clock cannot be advanced.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from support.kafka import KAFKA_VERSION, RealKafka, poll_until
from support.kafka_tools import KafkaTools
from support.side_by_side import Station, kafkas_tools, same_properties
from support.walkthrough import PROPERTIES, Stage, walk

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "walkthrough"


class RealStage(Stage):
    """A real Kafka, on which time passes by itself."""

    def pass_seconds(self, seconds: float, until: Callable[[], bool]) -> None:
        begun = time.monotonic()
        poll_until(until, timeout_s=seconds + 120, what="Kafka does what is due")
        if until() and seconds < 10:
            time.sleep(max(0, begun + seconds - time.monotonic()))


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as root,
        KafkaTools() as tools,
        RealKafka(Path(root) / "kafka", properties=PROPERTIES) as kafka,
    ):
        kafka.start()
        station = Station("Kafka", kafka.bootstrap_servers, kafka.log_dirs[0])
        stage = RealStage(station, kafkas_tools(tools))
        walk(stage)
        properties = same_properties(kafka)
        kafka.stop()
    GOLDEN.mkdir(exist_ok=True)
    settings = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
    (GOLDEN / "server.properties").write_text(settings, encoding="utf-8")
    (GOLDEN / f"kafka-{KAFKA_VERSION}.txt").write_text(stage.text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
