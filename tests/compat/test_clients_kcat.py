"""kcat through the same checks as every stock client, and its lists of topics and offsets."""

from __future__ import annotations

import json

import pytest

from support.stock_clients.availability import nothing_missing
from support.stock_clients.contract import checks_for, numbered, run_check
from support.stock_clients.kcat import KcatClient
from support.stock_clients.neutral import Neutral


@pytest.fixture(scope="module")
def kcat(stock_broker: str) -> KcatClient:
    with nothing_missing():
        return KcatClient(stock_broker)


@pytest.mark.parametrize("check", checks_for(KcatClient.lacks))
def test_kcat_does(check: str, kcat: KcatClient, neutral: Neutral) -> None:
    run_check(check, kcat, neutral)


def test_kcat_lists_the_broker_and_its_topics(
    kcat: KcatClient, neutral: Neutral, stock_broker: str
) -> None:
    topic = neutral.topic(partitions=3)
    listed = json.loads(kcat.run("-L", "-J").stdout)
    assert [broker["name"] for broker in listed["brokers"]] == [stock_broker]
    [found] = [entry for entry in listed["topics"] if entry["topic"] == topic]
    assert [entry["partition"] for entry in found["partitions"]] == [0, 1, 2]
    node = listed["brokers"][0]["id"]
    assert {entry["leader"] for entry in found["partitions"]} == {node}
    assert listed["controllerid"] == node


def test_kcat_asks_for_the_offset_of_a_timestamp(kcat: KcatClient, neutral: Neutral) -> None:
    topic = neutral.topic()
    neutral.write(topic, numbered(4, timestamp=1_600_000_000_000))
    asked = [f"{topic}:0:{timestamp}" for timestamp in (1_600_000_000_000, 1_600_000_001_500)]
    answers = [kcat.run("-Q", "-t", place).stdout.decode().strip() for place in asked]
    assert answers == [f"{topic} [0] offset 0", f"{topic} [0] offset 2"]
