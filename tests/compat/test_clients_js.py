"""KafkaJS through the same checks as every stock client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.stock_clients.availability import nothing_missing
from support.stock_clients.contract import checks_for, run_check
from support.stock_clients.neutral import Neutral
from support.stock_clients.program import JS_LACKS, ProgramClient, js_client


@pytest.fixture(scope="module")
def kafkajs(stock_broker: str) -> Iterator[ProgramClient]:
    with nothing_missing():
        client = js_client(stock_broker)
    yield client
    client.close()


@pytest.mark.parametrize("check", checks_for(JS_LACKS))
def test_kafkajs_does(check: str, kafkajs: ProgramClient, neutral: Neutral) -> None:
    run_check(check, kafkajs, neutral)
