"""Predictions of `cordwood whatif` on a running Kafka's directory, compared with its actions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from cordwood.model.clock import SystemClock
from cordwood.surfaces.cli.main import app
from support.aged_topic import HOUR_MS, PARTITIONS, RECORDS, AgedTopic
from support.kafka import RealKafka, poll_until

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

PROPERTIES = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "offsets.topic.num.partitions": "1",
}
CHANGES = {"retention.ms": str(3 * HOUR_MS), "retention.bytes": "1"}


def whatif(kafka: RealKafka, **changes: str) -> Any:
    given = [f"--set=orders:{name}={value}" for name, value in changes.items()]
    result = CliRunner().invoke(app, ["whatif", str(kafka.log_dirs[0]), *given, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _if_all_is_flushed(answer: Any) -> Any:
    """The answer once Kafka has written its recovery points: data above them counts as not flushed.

    The commit of the group is a record, too.
    """
    gone = answer["total"]["then"]["segments_gone"]
    return answer if gone == 2 * PARTITIONS and answer["groups"] else None


@pytest.mark.parametrize("setting", CHANGES)
def test_a_running_kafka_does_what_was_said_of_its_directory(tmp_path: Path, setting: str) -> None:
    with RealKafka(tmp_path, properties=PROPERTIES) as kafka:
        kafka.start()
        topic = AgedTopic(kafka.bootstrap_servers, "orders")
        topic.create({"retention.ms": "-1"})
        topic.fill([9 * HOUR_MS, 5 * HOUR_MS, HOUR_MS], now_ms=SystemClock().now_ms())
        topic.commit("reader", {0: 1, 1: 3 * RECORDS})
        change = {setting: CHANGES[setting]}
        answer = poll_until(
            lambda: _if_all_is_flushed(whatif(kafka, **change)),
            timeout_s=60,
            what="Kafka writes its recovery points",
        )
        (used,) = answer["in_use"]
        assert used["log_dir"] == str(kafka.log_dirs[0])
        then = [each["then"] for each in answer["partitions"]]
        assert [each["segments_gone"] for each in then] == [2, 2]
        assert [each["lost"] for each in answer["groups"]] == [2 * RECORDS - 1]
        topic.set(change)
        starts = [each["log_start_offset"] for each in then]
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "looks"})

        def lows() -> list[int]:
            partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
            return [consumer.get_watermark_offsets(each, timeout=30)[0] for each in partitions]

        poll_until(lambda: lows() == starts, timeout_s=60, what=f"log start offsets are {starts}")
        consumer.close()

        def logs() -> list[list[Path]]:
            directories = [kafka.log_dirs[0] / f"orders-{n}" for n in range(PARTITIONS)]
            return [sorted(each.glob("*.log")) for each in directories]

        # The log start offset moves before the segments have other names.
        poll_until(
            lambda: [len(each) for each in logs()] == [each["segments"] for each in then],
            timeout_s=60,
            what="the segments are gone",
        )
        assert [sum(path.stat().st_size for path in each) for each in logs()] == [
            each["bytes"] for each in then
        ]
