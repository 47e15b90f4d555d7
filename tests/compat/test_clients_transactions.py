"""Stock clients that want a transaction: each gets an error at once, and does not try again."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaException, Producer
from cordwood.broker.refused_transactions import REFUSAL

from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.stock_clients.availability import nothing_missing
from support.stock_clients.base import StockClientError, StockRecord
from support.stock_clients.program import ProgramClient, go_client, java_client
from support.wire_client import WireClient

with warnings.catch_warnings():
    # It still uses what the standard library tells others not to use.
    warnings.simplefilter("ignore")
    from kafka import KafkaProducer
    from kafka.errors import TransactionalIdAuthorizationFailedError

#: A client that took the error for retriable would try until this has passed, and say so.
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with RunningBroker(engine=NoEngine) as running, WireClient(running.port) as wire:
        wire.create("t")
        yield running.bootstrap_servers


def confluent(servers: str) -> None:
    settings = {"bootstrap.servers": servers, "transactional.id": "confluent", "log_level": 0}
    with pytest.raises(KafkaException, match=REFUSAL) as caught:
        Producer(settings).init_transactions(PATIENCE_S)
    error = caught.value.args[0]
    assert error.fatal()
    assert not error.retriable()


def kafka_python(servers: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=servers, transactional_id="kafka-python", max_block_ms=PATIENCE_S * 1000
    )
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close(timeout=0)


def aiokafka(servers: str) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aiokafka")
        try:
            with pytest.raises(TransactionalIdAuthorizationFailed):
                await asyncio.wait_for(producer.start(), PATIENCE_S)
        finally:
            await producer.client.close()

    asyncio.run(start())


def java(servers: str) -> None:
    with nothing_missing():
        client = java_client(servers)
    refused_by(client, "TransactionalIdAuthorizationException")


def franz_go(servers: str) -> None:
    with nothing_missing():
        client = go_client(servers)
    refused_by(client, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")


def refused_by(client: ProgramClient, error: str) -> None:
    try:
        client.produce("t", [StockRecord(b"k", b"v")])  # it is started, and knows the broker
        with pytest.raises(StockClientError, match=error):
            client.produce("t", [StockRecord(b"k", b"v")], transactional_id=client.name)
    finally:
        client.close()


@pytest.mark.parametrize("ask", [confluent, kafka_python, aiokafka, java, franz_go])
def test_a_transactional_producer_gets_a_final_error(
    servers: str, ask: Callable[[str], None]
) -> None:
    ask(servers)
