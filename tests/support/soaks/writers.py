"""Idempotent producers, each in a thread, that continue whatever happens to the broker."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from support.soaks.ledger import UNKNOWN_OFFSET, Ledger, Place
from support.soaks.stamps import HEADER, Stamp, payload

_IN_FLIGHT_MAX: Final = 2_000
#: On a busy machine a thread runs no more often: it sends several records at a time.
_PAUSE_S_MIN: Final = 0.02
_DELIVERY_MS: Final = 240_000
_FLUSH_S: Final = 120.0


class Writer:
    """One producer: it sends a record to each topic in turn, at a steady rate."""

    def __init__(
        self,
        number: int,
        bootstrap_servers: str,
        ledger: Ledger,
        *,
        topics: Mapping[str, bool],
        records_per_second: int,
    ) -> None:
        """Starts nothing.

        Args:
            number: of the writer, 0 to 255.
            bootstrap_servers: of the broker.
            ledger: takes what is acknowledged.
            topics: the names, and whether a topic gets tombstones.
            records_per_second: to each topic.
        """
        self.number = number
        self.sent = 0
        self._servers = bootstrap_servers
        self._ledger = ledger
        self._topics = topics
        self._pause_s = max(1 / records_per_second, _PAUSE_S_MIN)
        self._burst = max(1, round(records_per_second * self._pause_s))
        self._stop = threading.Event()
        self._is_fatal = False
        self._thread = threading.Thread(target=self._run, name=f"writer-{number}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Waits until every record has been acknowledged or has failed."""
        self._stop.set()
        self._thread.join(_FLUSH_S + 10)
        assert not self._thread.is_alive(), f"writer {self.number} does not end"

    def _run(self) -> None:
        producer = self._new_producer()
        while not self._stop.wait(self._pause_s):
            if self._is_fatal:
                producer.flush(1)
                producer.purge()
                producer.flush(1)
                producer = self._new_producer()
            self._poll(producer)
            for _ in range(self._burst):
                if not self._is_fatal and len(producer) < _IN_FLIGHT_MAX:
                    self._send(producer)
        producer.flush(_FLUSH_S)
        producer.purge()
        producer.flush(5)

    def _poll(self, producer: Producer) -> None:
        """Serves callbacks; a fatal error is raised here, or given to `_on_error`."""
        try:
            producer.poll(0)
        except KafkaException as raised:
            self._on_error(raised.args[0])
            if not self._is_fatal:
                raise

    def _new_producer(self) -> Producer:
        self._is_fatal = False
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "message.timeout.ms": _DELIVERY_MS,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 20,
                "log_level": 0,
                "error_cb": self._on_error,
            }
        )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() and not self._is_fatal:
            self._is_fatal = True
            self._ledger.fatal_errors.append(f"writer {self.number}: {error.str()}")

    def _send(self, producer: Producer) -> None:
        """A record to each topic; a fatal error that came since the last poll is raised here."""
        try:
            self._produce(producer)
        except KafkaException as raised:
            self._on_error(raised.args[0])
            if not self._is_fatal:
                raise
        finally:
            self.sent += 1

    def _produce(self, producer: Producer) -> None:
        for topic, tombstones in self._topics.items():
            stamp = Stamp(self.number, self.sent)
            record = payload(*stamp, tombstones=tombstones)

            def delivered(error: KafkaError | None, message: Message, stamp: Stamp = stamp) -> None:
                self._delivered(error, message, stamp)

            headers: list[Any] = [(HEADER, record.header)]
            producer.produce(
                topic, key=record.key, value=record.value, headers=headers, on_delivery=delivered
            )

    def _delivered(self, error: KafkaError | None, message: Message, stamp: Stamp) -> None:
        topic, partition = message.topic(), message.partition()
        assert topic is not None
        if error is not None or partition is None:
            self._ledger.fail(topic, stamp)
            return
        offset = message.offset()
        known = offset is not None and offset >= 0
        self._ledger.acknowledge(
            Place(topic, partition), stamp, int(offset or 0) if known else UNKNOWN_OFFSET
        )
