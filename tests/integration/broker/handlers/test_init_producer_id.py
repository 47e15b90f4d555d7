"""InitProducerId over the wire: errors by version, and version 6, which is unstable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.transaction_client import TransactionClient
from support.wire import API_KEYS, ConnectionClosedError

INIT = API_KEYS["init_producer_id"]
UNSTABLE = {"unstable.api.versions.enable": True}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker(engine=NoEngine) as broker:
        yield broker


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[TransactionClient]:
    with TransactionClient(running.port) as connection:
        yield connection


@pytest.mark.parametrize("version", range(6))
def test_a_new_producer_has_an_id_and_each_after_it_the_next_epoch(
    wire: TransactionClient, version: int
) -> None:
    name = f"new-{version}"
    wire.find(name)
    first, second = wire.init(name, version), wire.init(name, version)
    assert first["error_code"] == second["error_code"] == "none"
    assert second["producer_id"] == first["producer_id"] >= 0
    assert (first["producer_epoch"], second["producer_epoch"]) == (0, 1)


def test_producers_without_transactions_have_ids_of_their_own(wire: TransactionClient) -> None:
    answers = [wire.init(None) for _ in range(2)]  # type: ignore[arg-type]
    assert answers[0]["producer_id"] != answers[1]["producer_id"]
    assert {each["producer_epoch"] for each in answers} == {0}


@pytest.mark.parametrize(
    ("version", "error"), [(3, "invalid_producer_epoch"), (4, "producer_fenced")]
)
def test_a_fenced_producer_is_told_so_as_its_version_can(
    wire: TransactionClient, version: int, error: str
) -> None:
    old = wire.producer(f"fenced-{version}")
    wire.producer(old.transactional_id)
    wire.producer(old.transactional_id)
    fields = {"producer_id": old.id, "producer_epoch": old.epoch}
    answer = wire.init(old.transactional_id, version, **fields)
    assert (answer["error_code"], answer["producer_id"]) == (error, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transaction_timeout_ms": 0}, "invalid_transaction_timeout"),
        ({"transaction_timeout_ms": 900_001}, "invalid_transaction_timeout"),
        ({"producer_id": 5}, "invalid_request"),
    ],
)
def test_fields_that_cannot_be(wire: TransactionClient, fields: dict[str, Any], error: str) -> None:
    answer = wire.init("x", **fields)
    assert (answer["error_code"], answer["producer_id"], answer["producer_epoch"]) == (
        error,
        -1,
        -1,
    )


def test_an_empty_transactional_id_is_no_transactional_id(wire: TransactionClient) -> None:
    assert wire.init("")["error_code"] == "invalid_request"


def test_version_6_is_not_served_without_the_setting(wire: TransactionClient) -> None:
    assert wire.versions()[INIT] == range(6)
    with pytest.raises(ConnectionClosedError):
        wire.ask("init_producer_id", 6, {"transactional_id": "x", "transaction_timeout_ms": 1})


def test_version_6_has_two_phase_commit_where_it_is_enabled() -> None:
    enabled = {**UNSTABLE, "transaction.two.phase.commit.enable": True}
    with (
        RunningBroker(enabled, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
    ):
        assert wire.versions()[INIT] == range(7)
        wire.find("x")
        answer = wire.init("x", 6, enable2_pc=True, transaction_timeout_ms=0)
        assert answer["error_code"] == "none"
        assert (answer["ongoing_txn_producer_id"], answer["ongoing_txn_producer_epoch"]) == (-1, -1)
        found = running.call(lambda broker: broker.transactions.describe("x"))
        assert found.timeout_ms == (1 << 31) - 1
        answer = wire.init("x", 6, keep_prepared_txn=True)
        assert answer["error_code"] == "unsupported_version"


def test_version_6_is_refused_two_phase_commit_where_it_is_not_enabled() -> None:
    with (
        RunningBroker(UNSTABLE, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
    ):
        wire.find("x")
        assert wire.init("x", 6)["error_code"] == "none"
        answer = wire.init("x", 6, enable2_pc=True)
        assert answer["error_code"] == "transactional_id_authorization_failed"
