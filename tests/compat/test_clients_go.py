"""franz-go through the same checks as every stock client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.stock_clients.availability import nothing_missing
from support.stock_clients.contract import checks_for, run_check
from support.stock_clients.neutral import Neutral
from support.stock_clients.program import GO_LACKS, ProgramClient, go_client


@pytest.fixture(scope="module")
def franz_go(stock_broker: str) -> Iterator[ProgramClient]:
    with nothing_missing():
        client = go_client(stock_broker)
    yield client
    client.close()


@pytest.mark.parametrize("check", checks_for(GO_LACKS))
def test_franz_go_does(check: str, franz_go: ProgramClient, neutral: Neutral) -> None:
    franz_go.settings = {"group.protocol": "classic"}
    run_check(check, franz_go, neutral)


@pytest.mark.parametrize("check", [name for name in checks_for(GO_LACKS) if "group" in name])
def test_franz_go_does_with_the_newer_group_protocol(
    check: str, franz_go: ProgramClient, neutral: Neutral
) -> None:
    franz_go.settings = {"group.protocol": "consumer"}
    run_check(check, franz_go, neutral)
