"""The interface through which every stock client is checked.

Role: a client in this process (`confluent`, `kafka_python`, `aiokafka`), a command line (`kcat`)
and a program in another language (`program`) look alike here. Topics have the one partition 0
unless a check says otherwise.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from cordwood.model.errors import CordwoodError

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: Final[Sequence[Codec]] = ("none", "gzip", "snappy", "lz4", "zstd")
READ_SECONDS_MAX: Final = 180.0


class StockRecord(NamedTuple):
    """A record written (`timestamp` None: the client's clock; no offset) or read (both known)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    offset: int = -1
    partition: int = 0


class Start(NamedTuple):
    """Start of a consumer without a group; `at` is an offset or a timestamp in ms."""

    kind: Literal["offset", "timestamp", "earliest", "latest"]
    at: int = 0


class NoOffsetError(CordwoodError):
    """The client found its position outside the log and may not reset it."""


class TopicExistsError(CordwoodError):
    """The topic to be created is there already."""


class StockClientError(CordwoodError):
    """Anything else that a client complained of."""


class StockClient(Protocol):
    """A client of one broker.

    `lacks` names the checks that the client cannot take part in, each with the reason.
    `cannot_write` names those of which it takes the reading part only.
    """

    name: str
    lacks: Mapping[str, str]
    cannot_write: Mapping[str, str]

    @property
    def group_protocol(self) -> str:
        """The protocol by which its members join groups: classic or consumer (KIP-848)."""

    def produce(
        self,
        topic: str,
        records: Sequence[StockRecord],
        *,
        codec: Codec = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> None:
        """Writes the records in order with acks=all, and returns when all are acknowledged."""

    def consume(
        self,
        topic: str,
        start: Start,
        count: int,
        *,
        reset: str = "none",
        fetch_bytes: int | None = None,
    ) -> list[StockRecord]:
        """The next `count` records from `start`; fewer when they do not come in time.

        `reset` is auto.offset.reset: earliest, latest, none or by_duration:<ISO 8601 duration>.

        Raises:
            NoOffsetError: the position is outside the log and `reset` is none.
        """

    def consume_group(
        self, topic: str, group: str, count: int, *, reset: str = "earliest"
    ) -> list[StockRecord]:
        """The next `count` records of a group, committed before this member of it leaves.

        The member knows the assignor `range`.

        Raises:
            NoOffsetError: the group has no offset, or none inside the log, and `reset` is none.
        """

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Creates a topic.

        Raises:
            TopicExistsError: it is there already.
        """

    def describe_topic(self, topic: str) -> tuple[int, dict[str, str | None]]:
        """The number of partitions, and the configs with defaults."""

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""

    def close(self) -> None:
        """Ends what was started for this client."""


def record_to_json(record: StockRecord) -> dict[str, Any]:
    """A record for a program in another language: bytes in base64."""
    return {
        "key": _encoded(record.key),
        "value": _encoded(record.value),
        "headers": [[name, _encoded(value)] for name, value in record.headers],
        "timestamp": record.timestamp,
    }


def record_from_json(told: Mapping[str, Any]) -> StockRecord:
    """A record that a program in another language has read."""
    return StockRecord(
        key=_decoded(told["key"]),
        value=_decoded(told["value"]),
        headers=tuple((name, _decoded(value)) for name, value in told["headers"]),
        timestamp=int(told["timestamp"]),
        offset=int(told["offset"]),
        partition=int(told.get("partition", 0)),
    )


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
