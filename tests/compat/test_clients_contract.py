"""The checks of stock clients fail for clients that do not do what they should."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from support.stock_clients.base import Codec, NoOffsetError, Start, StockRecord
from support.stock_clients.confluent import ConfluentClient
from support.stock_clients.contract import CHECKS, run_check
from support.stock_clients.neutral import Neutral


class Writes(ConfluentClient):
    """Writes something else than it was told to."""

    def produce(
        self,
        topic: str,
        records: Sequence[StockRecord],
        *,
        codec: Codec = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> None:
        if self.wrong == "codec":
            codec = "none"
        written = [self.altered(record) for record in records]
        if self.wrong == "twice":
            written.append(written[-1])
        super().produce(topic, written, codec=codec, idempotent=idempotent, max_bytes=max_bytes)

    wrong = ""

    def altered(self, record: StockRecord) -> StockRecord:
        if self.wrong == "headers":
            return record._replace(headers=tuple(dict(record.headers).items()))
        if self.wrong == "null headers":
            headers = tuple((name, value or b"") for name, value in record.headers)
            return record._replace(headers=headers)
        if self.wrong == "nulls":
            return record._replace(key=record.key or None, value=record.value or None)
        if self.wrong == "time":
            return record._replace(timestamp=None)
        return record


class Reads(ConfluentClient):
    """Reads from elsewhere than it was told to."""

    wrong = ""

    def consume(
        self,
        topic: str,
        start: Start,
        count: int,
        *,
        reset: str = "none",
        fetch_bytes: int | None = None,
    ) -> list[StockRecord]:
        if self.wrong == "start":
            start = Start("earliest")
        if self.wrong == "reset":
            reset = "earliest"
        read = super().consume(topic, start, count, reset=reset, fetch_bytes=fetch_bytes)
        if self.wrong == "big":
            return [record._replace(value=(record.value or b"")[:1024]) for record in read]
        return read

    def consume_group(
        self, topic: str, group: str, count: int, *, reset: str = "earliest"
    ) -> list[StockRecord]:
        if self.wrong == "commit":
            return super().consume(topic, Start("earliest"), count)
        with contextlib.suppress(NoOffsetError):
            return super().consume_group(topic, group, count, reset=reset)
        return []


class Joins(ConfluentClient):
    """Joins groups by another protocol than it says."""

    group_protocol = "consumer"
    wrong = ""

    def _consumer_settings(self, group: str, reset: str) -> dict[str, Any]:
        return {**super()._consumer_settings(group, reset), "group.protocol": "classic"}


class Administers(ConfluentClient):
    """Makes other topics than it was told to."""

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        super().create_topic(topic, partitions, {})


WRONG: Mapping[str, tuple[type[ConfluentClient], str]] = {
    "codec_zstd": (Writes, "codec"),
    "headers": (Writes, "headers"),
    "null_headers": (Writes, "null headers"),
    "nulls": (Writes, "nulls"),
    "timestamps": (Writes, "time"),
    "idempotent": (Writes, "twice"),
    "big_record_small_fetch": (Reads, "big"),
    "reset_latest": (Reads, "reset"),
    "reset_none": (Reads, "reset"),
    "start_from_now": (Reads, "start"),
    "start_from_timestamp": (Reads, "start"),
    "group": (Reads, "commit"),
    "group_reset_earliest": (Joins, ""),
    "group_reset_none": (Reads, ""),
    "admin": (Administers, ""),
}


@pytest.mark.parametrize("check", WRONG)
def test_a_check_fails_for_a_client_that_does_something_else(
    check: str, stock_broker: str, neutral: Neutral
) -> None:
    assert check in CHECKS
    kind, wrong = WRONG[check]
    client = type(kind.__name__, (kind,), {"wrong": wrong})(stock_broker)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_check(check, client, neutral)
