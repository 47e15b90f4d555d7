"""Cordwood's command line tools print what Kafka's print, for the same broker and flags."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.testing.kafka import RealKafka
from cordwood.testing.kafka_tools import KafkaTools
from cordwood.testing.tool_cases import FILES, GROUPS
from cordwood.testing.tool_compare import Sides

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def sides(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    assert kafka_jars.is_dir()
    root = tmp_path_factory.mktemp("tools")
    files = {name: root / name for name in FILES}
    for name, path in files.items():
        path.write_text(FILES[name])
    with RealKafka(root / "kafka") as kafka, KafkaTools() as tools:
        kafka.start()
        yield Sides(tools=tools, bootstrap=kafka.bootstrap_servers, files=files)


@pytest.mark.parametrize("group", GROUPS)
def test_tools_answer_as_kafkas_do(sides: Sides, group: str) -> None:
    compared = [sides.compare(case) for case in GROUPS[group]]
    different = [str(one) for one in compared if not one.is_equal]
    assert not different, "\n\n".join(different)
