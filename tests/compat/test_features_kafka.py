"""`cordwood features` prints what kafka-features of 4.4 prints, of one broker of either kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cordwood.testing.broker import RunningBroker
from support.feature_tools import shown_by_cordwood, shown_by_kafka
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4
from support.kafka_tools import KafkaTools
from support.no_engine import NoEngine

pytestmark = pytest.mark.kafka

#: In their order: some change the levels, and the next ones see it.
LINES: Final = (
    "describe",
    "describe --node-id 1",
    "describe --node-id -1",
    "describe --bogus",
    "describe --node-id",
    "describe --node-id x",
    "upgrade",
    "upgrade --feature metadata.version",
    "upgrade --feature metadata.version=x",
    "upgrade --feature group.version=0",
    "upgrade --feature group.version=-1",
    "upgrade --feature group.version=9 --dry-run",
    "upgrade --feature group.version=1 --feature group.version=0",
    "upgrade --feature nope=1 --feature group.version=1",
    "upgrade --feature group.version=1 --release-version 4.4",
    "upgrade --release-version 9.9",
    "upgrade --metadata 9.9",
    "upgrade --feature metadata.version=31 --dry-run",
    "upgrade --feature metadata.version=31",
    "describe",
    "downgrade --feature metadata.version=30 --dry-run",
    "downgrade --metadata 4.3-IV0",
    "upgrade --feature metadata.version=33",
    "downgrade --feature metadata.version=32",
    "downgrade --feature metadata.version=30 --unsafe",
    "disable",
    "disable --feature group.version --dry-run",
    "disable --feature group.version --unsafe",
    "describe",
    "version-mapping --release-version 4.4",
    "feature-dependencies --feature eligible.leader.replicas.version=1",
    *(f"feature-dependencies --feature share.version{rest}" for rest in ("", "=", "=3", "=1=2")),
    "feature-dependencies --feature metadata.version=35",
    "version-mapping -f x=1",
    "nonsense",
)


@pytest.fixture(scope="module", params=["kafka", "cordwood"])
def servers(
    request: pytest.FixtureRequest, kafka_4_4_jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """Two brokers of a kind, alike: one for each tool."""
    assert kafka_4_4_jars.is_dir()
    root = tmp_path_factory.mktemp("features")
    if request.param == "cordwood":
        with RunningBroker(engine=NoEngine) as one, RunningBroker(engine=NoEngine) as other:
            yield [one.bootstrap_servers, other.bootstrap_servers]
        return
    with (
        RealKafka(root / "a", version=KAFKA_4_4, release="4.3") as one_kafka,
        RealKafka(root / "b", version=KAFKA_4_4, release="4.3") as other_kafka,
    ):
        one_kafka.start()
        other_kafka.start()
        yield [one_kafka.bootstrap_servers, other_kafka.bootstrap_servers]


def test_features_are_shown_and_changed_as_kafkas_tool_does(
    servers: list[str], tools_4_4: KafkaTools
) -> None:
    different = []
    for line in LINES:
        expected = shown_by_kafka(tools_4_4, servers[0], line.split())
        found = shown_by_cordwood(servers[1], line.split())
        if found != expected:
            different.append(f"{line}\n  Kafka:    {expected}\n  Cordwood: {found}")
    assert not different, "\n\n".join(different)
