"""Spark's Kafka source and sink: batches through the stock checks, and streams with checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stock_clients.availability import nothing_missing
from support.stock_clients.base import NoOffsetError, Start
from support.stock_clients.contract import checks_for, numbered, run_check
from support.stock_clients.neutral import Neutral
from support.stock_clients.program import SPARK_LACKS, SparkClient, spark_client

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(stock_broker: str) -> Iterator[SparkClient]:
    with nothing_missing():
        client = spark_client(stock_broker)
    yield client
    client.close()


def values(neutral: Neutral, topic: str) -> list[bytes | None]:
    return [record.value for record in neutral.read(topic, neutral.end_offset(topic))]


@pytest.mark.parametrize("check", checks_for(SPARK_LACKS))
def test_spark_does_in_batches(check: str, spark: SparkClient, neutral: Neutral) -> None:
    run_check(check, spark, neutral)


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkClient, neutral: Neutral, tmp_path: Path
) -> None:
    source, target = neutral.topic(), neutral.topic()
    neutral.write(source, numbered(10))
    start = Start("earliest")
    batches = spark.stream(source, target, tmp_path, start=start, per_trigger=4)
    assert [count for count in batches if count] == [4, 4, 2]
    neutral.write(source, numbered(5, first=10))
    batches = spark.stream(source, target, tmp_path, start=start, per_trigger=4)
    assert [count for count in batches if count] == [4, 1]
    assert values(neutral, target) == [b"v-%d" % number for number in range(15)]


def test_a_stream_from_now_reads_what_comes_after_its_first_start(
    spark: SparkClient, neutral: Neutral, tmp_path: Path
) -> None:
    source, target = neutral.topic(), neutral.topic()
    neutral.write(source, numbered(10))
    spark.stream(source, target, tmp_path, start=Start("latest"))
    neutral.write(source, numbered(3, first=10))
    spark.stream(source, target, tmp_path, start=Start("latest"))
    assert values(neutral, target) == [b"v-10", b"v-11", b"v-12"]


def test_a_stream_goes_on_at_the_log_start_when_that_has_passed_its_checkpoint(
    spark: SparkClient, neutral: Neutral, tmp_path: Path
) -> None:
    source, target = neutral.topic(), neutral.topic()
    neutral.write(source, numbered(4))
    spark.stream(source, target, tmp_path, start=Start("earliest"))
    neutral.write(source, numbered(6, first=4))
    neutral.delete_records(source, 7)
    spark.stream(source, target, tmp_path, start=Start("earliest"), reset="earliest")
    assert values(neutral, target) == [b"v-%d" % number for number in (0, 1, 2, 3, 7, 8, 9)]


def test_a_stream_that_may_lose_nothing_fails_when_the_log_start_has_passed_its_checkpoint(
    spark: SparkClient, neutral: Neutral, tmp_path: Path
) -> None:
    source, target = neutral.topic(), neutral.topic()
    neutral.write(source, numbered(4))
    spark.stream(source, target, tmp_path, start=Start("earliest"))
    neutral.write(source, numbered(6, first=4))
    neutral.delete_records(source, 7)
    with pytest.raises(NoOffsetError):
        spark.stream(source, target, tmp_path, start=Start("earliest"))
    assert values(neutral, target) == [b"v-%d" % number for number in range(4)]
