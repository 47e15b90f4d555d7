"""Transactions over a broker's life: restarts, timeouts, expiry, deleted topics, versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.broker.coordinators.transaction_markers import MarkerWriter
from cordwood.model.kafka_errors import StorageError
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.transaction_client import TransactionClient

NONE = "none"


@pytest.mark.parametrize("commit", [True, False])
def test_markers_of_a_decided_transaction_are_written_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, commit: bool
) -> None:
    def fail(*_: object) -> int:
        raise StorageError

    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
        monkeypatch.context() as patch,
    ):
        wire.create("t", retention_ms=-1)
        producer = wire.producer("x")
        wire.add(producer, {"t": [0]})
        assert wire.write_one(producer, "t") == NONE
        patch.setattr(MarkerWriter, "write", fail)
        assert wire.end(producer, commit=commit)["error_code"] == NONE
        assert wire.state("x") == ("PrepareCommit" if commit else "PrepareAbort")
        waiting = wire.ask("end_txn", 4, {**producer.named(), "committed": commit})
        assert waiting["error_code"] == "concurrent_transactions"
        assert running.call(lambda broker: broker.markers.waiting_count) == 1
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
    ):
        wire.find("x")
        assert wire.settle("x") == ("CompleteCommit" if commit else "CompleteAbort")
        assert wire.outcomes("t") == ["v", "commit" if commit else "abort"]
        assert running.call(lambda broker: broker.markers.waiting_count) == 0


def test_an_open_transaction_continues_after_a_restart(tmp_path: Path) -> None:
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
    ):
        wire.create("t", retention_ms=-1)
        producer = wire.producer("x")
        wire.add(producer, {"t": [0]})
        assert wire.write_one(producer, "t") == NONE
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
    ):
        wire.find("x")
        assert wire.write_one(producer, "t", sequence=1) == NONE
        assert wire.end(producer, commit=True)["error_code"] == NONE
        assert wire.settle("x") == "CompleteCommit"
        assert wire.outcomes("t") == ["v", "v", "commit"]


def test_a_transaction_is_aborted_when_its_time_is_up() -> None:
    with RunningBroker(engine=NoEngine) as running, TransactionClient(running.port) as wire:
        wire.create("t", retention_ms=-1)
        producer = wire.producer("x", transaction_timeout_ms=30_000)
        wire.add(producer, {"t": [0]})
        assert wire.write_one(producer, "t") == NONE
        running.advance(seconds=15, compact=False)
        assert wire.state("x") == "Ongoing"
        running.advance(seconds=20, compact=False)
        poll_until(
            lambda: wire.state("x") == "CompleteAbort", timeout_s=60, what="the end of its time"
        )
        assert wire.outcomes("t") == ["v", "abort"]
        assert wire.end(producer, commit=True)["error_code"] == "producer_fenced"
        assert wire.write_one(producer, "t", sequence=1) == "invalid_producer_epoch"


def test_a_transactional_id_that_is_not_used_is_forgotten() -> None:
    settings = {"transactional.id.expiration.ms": 86_400_000}
    with (
        RunningBroker(settings, engine=NoEngine) as running,
        TransactionClient(running.port) as wire,
    ):
        producer = wire.producer("x")
        running.advance(hours=12, compact=False)
        assert wire.state("x") == "Empty"
        running.advance(hours=13, compact=False)
        poll_until(lambda: not wire.state("x"), timeout_s=60, what="expiry")
        missing = wire.described("x")["error_code"]
        assert missing == "transactional_id_not_found"
        assert wire.add(producer, {"t": [0]}) == {("t", 0): "unknown_topic_or_partition"}
        again = wire.producer("x")
        assert (again.id != producer.id, again.epoch) == (True, 0)


def test_a_transaction_ends_without_the_partitions_of_a_deleted_topic() -> None:
    with RunningBroker(engine=NoEngine) as running, TransactionClient(running.port) as wire:
        for name in ("stays", "goes"):
            wire.create(name, retention_ms=-1)
        producer = wire.producer("x")
        wire.add(producer, {"stays": [0], "goes": [0]})
        assert wire.write_one(producer, "stays") == wire.write_one(producer, "goes") == NONE
        assert wire.delete("goes") == NONE
        assert wire.end(producer, commit=True)["error_code"] == NONE
        assert wire.settle("x") == "CompleteCommit"
        assert wire.outcomes("stays") == ["v", "commit"]


def test_a_new_client_aborts_the_transaction_of_the_one_before_it() -> None:
    with RunningBroker(engine=NoEngine) as running, TransactionClient(running.port) as wire:
        wire.create("t", retention_ms=-1)
        producer = wire.producer("x")
        wire.add(producer, {"t": [0]})
        assert wire.write_one(producer, "t") == NONE
        after = wire.producer("x")
        assert after.id == producer.id
        assert after.epoch > producer.epoch
        assert wire.outcomes("t") == ["v", "abort"]
        assert wire.end(producer, commit=True)["error_code"] == "producer_fenced"


@pytest.mark.parametrize("level", [0, 1])
def test_transactions_of_older_versions(level: int) -> None:
    """Without transaction.version 2 the epochs of a producer stay, whatever its client could do."""
    with RunningBroker(engine=NoEngine) as running, TransactionClient(running.port) as wire:
        update = {
            "feature": "transaction.version",
            "max_version_level": level,
            "allow_downgrade": True,
            "upgrade_type": 2,
        }
        answer = wire.ask("update_features", 1, {"feature_updates": [update], "timeout_ms": 5000})
        assert answer["error_code"] == NONE
        wire.create("t", retention_ms=-1)
        producer = wire.producer("x")
        wire.add(producer, {"t": [0]})
        assert wire.write_one(producer, "t") == NONE
        ended = wire.end(producer, commit=True)
        assert (ended["error_code"], wire.settle("x")) == (NONE, "CompleteCommit")
        wire.add(producer, {"t": [0]})
        assert wire.write_one(producer, "t", sequence=1) == NONE
        assert wire.end(producer, commit=False)["error_code"] == NONE
        assert wire.settle("x") == "CompleteAbort"
        assert wire.outcomes("t") == ["v", "commit", "v", "abort"]
