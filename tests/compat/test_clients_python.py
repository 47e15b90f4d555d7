"""Stock clients in Python, each through the same checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.stock_clients.aiokafka import AiokafkaClient
from support.stock_clients.base import StockClient
from support.stock_clients.confluent import ConfluentClient, ConfluentConsumerProtocolClient
from support.stock_clients.contract import checks_for, run_check
from support.stock_clients.kafka_python import KafkaPythonClient
from support.stock_clients.neutral import Neutral

CLIENTS = (
    ConfluentClient,
    ConfluentConsumerProtocolClient,
    KafkaPythonClient,
    AiokafkaClient,
)

# What the clients' own libraries warn of is theirs.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        pytest.param(kind, check, id=f"{kind.name}-{check}")
        for kind in CLIENTS
        for check in checks_for(kind.lacks)
        if kind is not ConfluentConsumerProtocolClient or "group" in check
    ],
)
def test_a_client_in_python_does(
    kind: Callable[[str], StockClient], check: str, stock_broker: str, neutral: Neutral
) -> None:
    client = kind(stock_broker)
    try:
        run_check(check, client, neutral)
    finally:
        client.close()
