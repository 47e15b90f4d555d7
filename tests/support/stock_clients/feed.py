"""Lines of words for applications that count them."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from support.stock_clients.base import READ_SECONDS_MAX

WORDS: Final = [f"word-{number}" for number in range(40)]
WORDS_A_LINE: Final = 3
#: Between two lines.
PAUSE_S: Final = 0.02


class Feeder(ABC):
    """Writes records one after another, each once, whatever happens to the broker."""

    def __init__(
        self, bootstrap_servers: str, topic: str, pause_s: float, settings: Mapping[str, Any]
    ) -> None:
        self._topic = topic
        self._pause_s = pause_s
        always = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True}
        self._producer = Producer({**always, "log_level": 0, **settings})
        self._failed: list[KafkaError] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Feeds in a thread; all records are acknowledged in the end."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(self._pause_s):
                self.feed()

        thread = threading.Thread(target=run, name=type(self).__name__, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert self._producer.flush(READ_SECONDS_MAX) == 0
        assert not self._failed

    @abstractmethod
    def feed(self) -> None:
        """Writes the next record."""

    def _write(self, key: str, value: str) -> None:
        self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)


class Feed(Feeder):
    """Lines of random words."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(bootstrap_servers, topic, PAUSE_S, {"linger.ms": 5})
        #: The numbers of the lines with each word, of the lines that were acknowledged.
        self.lines: dict[str, set[int]] = {word: set() for word in WORDS}
        self.fed = 0
        self._rng = random.Random(11)  # noqa: S311  # the same lines each time

    def feed(self) -> None:
        """Writes the next line."""
        number, words = self.fed, self._rng.sample(WORDS, WORDS_A_LINE)
        for word in words:
            self.lines[word].add(number)
        self._write(str(number), " ".join(words))
        self.fed += 1
