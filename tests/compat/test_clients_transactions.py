"""Stock clients that read, process and write in transactions: each record is processed once.

Some of the processing is aborted, fenced or killed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest
from confluent_kafka import Producer

from support.kafka_programs import KAFKA_4_4
from support.stock_clients.availability import nothing_missing
from support.stock_clients.base import READ_SECONDS_MAX, StockRecord
from support.stock_clients.neutral import Neutral
from support.stock_clients.program import (
    ProgramClient,
    go_client,
    java_client,
    js_client,
    python_client,
    sarama_client,
)
from support.stock_clients.sessions.base import LAST, Ending, FencedError, Isolation
from support.stock_clients.sessions.confluent import ConfluentTransactions

#: Of the source: both in the order of their partitions.
KEPT: Final = 24
_ABORTED: Final = 6
_PARTITIONS: Final = 2
#: What librdkafka says if there is none.
_NO_OFFSET: Final = -1001
_MARKERS_SECONDS_MAX: Final = 30


class Processing:
    """A source, a target, and what a client has processed from one to the other."""

    def __init__(self, client: ProgramClient, neutral: Neutral) -> None:
        self.client = client
        self.neutral = neutral
        self.source, self.target = neutral.topic(partitions=_PARTITIONS), neutral.topic()
        self.group = f"group-{uuid.uuid4().hex[:12]}"
        self.transactional_id = f"id-{uuid.uuid4().hex[:12]}"
        #: Values of the target: all, and those of committed transactions.
        self.written: list[bytes] = []
        self.done: list[StockRecord] = []
        self._fill_source()

    def _fill_source(self) -> None:
        """Committed and aborted records in turn, the last of which are committed."""
        settings = {
            "bootstrap.servers": self.neutral.bootstrap_servers,
            "log_level": 0,
            "transactional.id": f"source-{uuid.uuid4().hex[:12]}",
        }
        producer = Producer(settings)
        producer.init_transactions(READ_SECONDS_MAX)
        for name, numbers in (
            ("kept", range(KEPT // 2)),
            ("aborted", range(_ABORTED)),
            ("kept", range(KEPT // 2, KEPT)),
        ):
            producer.begin_transaction()
            for number in numbers:
                value = f"{name} {number}"
                producer.produce(self.source, value, "k", partition=number % _PARTITIONS)
            if name == "kept":
                producer.commit_transaction(READ_SECONDS_MAX)
            else:
                # What is not sent yet would not be written.
                assert producer.flush(READ_SECONDS_MAX) == 0
                producer.abort_transaction(READ_SECONDS_MAX)

    def open(self, session: str) -> None:
        """A new producer with the transactional id."""
        self.client.open_session(session, self.transactional_id, self.source, self.group)

    def process(self, session: str, count: int, *, end: Ending) -> None:
        """The next records in a transaction; the committed offsets are those of what is done."""
        records = self.client.process(session, self.target, count, end=end)
        assert len(records) == count
        self.written += [b"done " + (record.value or b"") for record in records]
        if end == "commit":
            self.done += records
        self.assert_committed()

    def assert_committed(self) -> None:
        """The group's offsets are those after what is done."""
        wanted = [_NO_OFFSET] * _PARTITIONS
        for record in self.done:
            wanted[record.partition] = record.offset + 1

        # The client is answered before the markers of a transaction are written.
        deadline = time.monotonic() + _MARKERS_SECONDS_MAX
        while (found := self._committed()) != wanted:
            assert time.monotonic() < deadline, f"{found} are committed, not {wanted}"

    def _committed(self) -> list[int]:
        where = range(_PARTITIONS)
        return [self.neutral.committed(self.group, self.source, place) for place in where]

    def assert_done_once(self) -> None:
        """The target has each record of the source once, as both readers see it."""
        kept = {b"kept %d" % number for number in range(KEPT)}
        assert {record.value for record in self.done} == kept
        assert len(self.done) == KEPT
        self.neutral.write(self.target, [StockRecord(b"k", LAST)])
        done = [b"done " + (record.value or b"") for record in self.done]
        self._assert_read("read_committed", [*done, LAST])
        self._assert_read("read_uncommitted", [*self.written, LAST])

    def _assert_read(self, isolation: Isolation, wanted: list[bytes]) -> None:
        servers = self.neutral.bootstrap_servers
        for reader in (self.client, ConfluentTransactions(servers)):
            found = [record.value for record in reader.read_all(self.target, isolation)]
            assert found == wanted, f"{reader}, {isolation}"


def check_exactly_once(client: ProgramClient, neutral: Neutral) -> None:
    """Consumes, produces and commits offsets in transactions until all is done once."""
    run = Processing(client, neutral)
    run.open("first")
    run.process("first", 5, end="commit")
    run.process("first", 5, end="abort")
    run.process("first", 4, end="commit")
    run.process("first", 3, end="open")
    run.open("second")
    with pytest.raises(FencedError):
        client.finish("first", "commit")
    run.assert_committed()
    client.close_session("first")
    run.process("second", 4, end="commit")
    run.process("second", 4, end="open")
    client.close()
    run.open("third")
    run.process("third", 6, end="abort")
    run.process("third", KEPT - len(run.done), end="commit")
    run.assert_done_once()


CLIENTS: Final[dict[str, Callable[[str], ProgramClient]]] = {
    "confluent-kafka": partial(python_client, "confluent-kafka"),
    "kafka-python": partial(python_client, "kafka-python"),
    "aiokafka": partial(python_client, "aiokafka"),
    "franz-go": go_client,
    "sarama": sarama_client,
    "kafkajs": js_client,
    "java": java_client,
    "java-4.4": partial(java_client, version=KAFKA_4_4),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_processes_each_record_once(
    name: str, stock_broker: str, neutral: Neutral
) -> None:
    with nothing_missing():
        client = CLIENTS[name](stock_broker)
    try:
        check_exactly_once(client, neutral)
    finally:
        client.close()
