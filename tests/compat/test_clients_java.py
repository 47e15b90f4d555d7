"""Kafka's own Java clients through the same checks as every stock client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.kafka_programs import KAFKA_VERSIONS
from support.stock_clients.availability import nothing_missing
from support.stock_clients.contract import checks_for, run_check
from support.stock_clients.neutral import Neutral
from support.stock_clients.program import JAVA_LACKS, ProgramClient, java_client


@pytest.fixture(scope="module", params=KAFKA_VERSIONS)
def java(stock_broker: str, request: pytest.FixtureRequest) -> Iterator[ProgramClient]:
    with nothing_missing():
        client = java_client(stock_broker, version=request.param)
    yield client
    client.close()


@pytest.mark.parametrize("check", checks_for(JAVA_LACKS))
def test_the_java_client_does(check: str, java: ProgramClient, neutral: Neutral) -> None:
    java.settings = {"group.protocol": "classic"}
    run_check(check, java, neutral)


@pytest.mark.parametrize("check", [name for name in checks_for(JAVA_LACKS) if "group" in name])
def test_the_java_client_does_with_the_newer_group_protocol(
    check: str, java: ProgramClient, neutral: Neutral
) -> None:
    java.settings = {"group.protocol": "consumer"}
    run_check(check, java, neutral)
