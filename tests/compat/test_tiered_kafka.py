"""A real Kafka with tiered storage: its logs are read as by a consumer, with remote segments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from cordwood.cleanup.engine.spark.session import spark_runner
from cordwood.surfaces.cli.main import app
from support.tiered_golden import TOPICS, Consumed, TieredGolden

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("kafka_jars")]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from cordwood.frames.data_source import register  # noqa: PLC0415  # PySpark is slow to import

    with spark_runner("local[2]") as runner:
        session = runner.session()
        register(session)
        yield session


@pytest.fixture(scope="module", params=["recorded", "running now"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TieredGolden:
    root = tmp_path_factory.mktemp("tiered")
    if request.param == "recorded":
        return TieredGolden.unpack(root)
    return TieredGolden.make(root / "tiered", root)


def url_of(made: TieredGolden) -> str:
    return f"tiered://{made.log_dir}?remote-dir={made.remote_dir}"


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_data_frame_has_the_records_that_a_consumer_gets(
    spark: Any, made: TieredGolden, isolation: str
) -> None:
    reader = spark.read.format("cordwood").option("isolation", isolation)
    topics = [topic for topic in TOPICS if topic != "gone"]
    reader = reader.option("topics", ",".join(topics))
    reader = reader.option("columns", "topic,offset,timestamp,key,value")
    rows = reader.load(url_of(made)).toArrow().to_pylist()
    for topic in topics:
        found = [
            Consumed.of(
                each["offset"],
                round(each["timestamp"].timestamp() * 1000),
                each["key"],
                each["value"],
            )
            for each in rows
            if each["topic"] == topic
        ]
        found.sort(key=lambda each: each.offset)
        assert found == made.consumed[f"{isolation}/{topic}"], topic


def test_the_logs_are_sound(made: TieredGolden) -> None:
    result = CliRunner().invoke(app, ["verify", url_of(made)])
    assert result.exit_code == 0, result.output


def test_deleted_segments_are_gone(made: TieredGolden) -> None:
    left = sorted(made.remote_dir.glob("expired-0-*/*.log"))
    assert int(left[0].name[:20]) > 0, "the first segments were deleted"
    assert not list(made.remote_dir.glob("gone-0-*/*.log"))
