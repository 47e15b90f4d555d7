"""Cordwood's command line tools print what Kafka's print, for the same broker and flags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from support.kafka import RealKafka
from support.kafka_tools import KafkaTools
from support.tool_cases import FILES, GROUPS, Case
from support.tool_compare import Sides

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
        sides = Sides(tools=tools, bootstrap=kafka.bootstrap_servers, files=files)
        sides.set_up()
        yield sides


@pytest.mark.parametrize("group", GROUPS)
def test_tools_answer_as_kafkas_do(sides: Sides, group: str) -> None:
    _compare(sides, [case for case in GROUPS[group] if not case.slow])


@pytest.mark.nightly
@pytest.mark.parametrize("group", GROUPS)
def test_tools_answer_as_kafkas_do_in_all_rows(sides: Sides, group: str) -> None:
    _compare(replace(sides, tag="all"), GROUPS[group])


def _compare(sides: Sides, cases: Sequence[Case]) -> None:
    compared = [sides.compare(case) for case in cases]
    different = [str(one) for one in compared if not one.is_equal]
    assert not different, "\n\n".join(different)
