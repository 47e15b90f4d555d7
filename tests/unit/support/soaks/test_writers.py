"""A producer of the chaos test whose instance is fenced or lost goes on with another."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from support.soaks import writers
from support.soaks.ledger import Ledger


class LostProducer:
    """The first of them fails each record with a fatal error, the others take them."""

    def __init__(self, made: list[LostProducer]) -> None:
        made.append(self)
        self.is_first = len(made) == 1
        self.topics: list[str] = []

    def produce(self, topic: str, **_: Any) -> None:
        if self.is_first:
            raise KafkaException(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
        self.topics.append(topic)

    def poll(self, _timeout_s: float) -> int:
        return 0

    def flush(self, _timeout_s: float) -> int:
        return 0

    def purge(self) -> None:
        pass

    def __len__(self) -> int:
        return 0


def test_a_fatal_error_of_produce_is_noted_and_another_producer_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[LostProducer] = []
    monkeypatch.setattr(writers, "Producer", lambda _settings: LostProducer(made))
    ledger = Ledger()
    writer = writers.Writer(3, "unused", ledger, topics={"t": False}, records_per_second=1000)
    while len(made) < 2 or not made[1].topics:
        assert writer._thread.is_alive()
    writer.stop()
    assert ledger.fatal_errors == ["writer 3: fenced"]
    assert writer.sent == 1 + len(made[1].topics), "the record that was refused is not sent again"
