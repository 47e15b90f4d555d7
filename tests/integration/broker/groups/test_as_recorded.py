"""The group APIs in every version, answered as a real Kafka answered them."""

from __future__ import annotations

from pathlib import Path

from cordwood.testing.broker import RunningBroker
from support.group_transcript import PROPERTIES, read_transcript, transcribe
from support.no_engine import NoEngine

GOLDEN = Path(__file__).parents[3] / "golden" / "groups.json.xz"


def test_every_version_is_answered_as_kafka_answered_it(tmp_path: Path) -> None:
    expected = read_transcript(GOLDEN)
    with RunningBroker(PROPERTIES, log_dir=tmp_path, engine=NoEngine) as broker:
        answered = transcribe(broker.port)
    assert [label for label, _ in answered] == [label for label, _ in expected]
    for (label, answer), (_, kafkas) in zip(answered, expected, strict=True):
        assert answer == kafkas, label
