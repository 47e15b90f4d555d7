"""Stock clients that read, process and write in transactions: each record is processed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from support.stock_clients.availability import nothing_missing
from support.stock_clients.exactly_once import check_exactly_once
from support.stock_clients.neutral import Neutral
from support.stock_clients.program import (
    ProgramClient,
    go_client,
    java_client,
    js_client,
    python_client,
    sarama_client,
)

CLIENTS: Final[dict[str, Callable[[str], ProgramClient]]] = {
    "confluent-kafka": partial(python_client, "confluent-kafka"),
    "kafka-python": partial(python_client, "kafka-python"),
    "aiokafka": partial(python_client, "aiokafka"),
    "franz-go": go_client,
    "sarama": sarama_client,
    "kafkajs": js_client,
    "java": java_client,
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_processes_each_record_once(
    name: str, stock_broker: str, neutral: Neutral
) -> None:
    with nothing_missing():
        client = CLIENTS[name](stock_broker)
    try:
        check_exactly_once(client, neutral)
    finally:
        client.close()
