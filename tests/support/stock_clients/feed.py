"""Lines of words for applications that count them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from support.stock_clients.base import READ_SECONDS_MAX

WORDS: Final = [f"word-{number}" for number in range(40)]
WORDS_A_LINE: Final = 3
#: Between two lines.
PAUSE_S: Final = 0.02


class Feed:
    """Lines of random words, each written once, whatever happens to the broker."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        #: The numbers of the lines with each word, of the lines that were acknowledged.
        self.lines: dict[str, set[int]] = {word: set() for word in WORDS}
        self.fed = 0
        self._topic = topic
        self._rng = random.Random(11)  # noqa: S311  # the same lines each time
        settings = {"enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
        self._failed: list[KafkaError] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Feeds in a thread; all lines are acknowledged in the end."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(PAUSE_S):
                self._feed()

        thread = threading.Thread(target=run, name="feed", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert self._producer.flush(READ_SECONDS_MAX) == 0
        assert not self._failed

    def _feed(self) -> None:
        number, words = self.fed, self._rng.sample(WORDS, WORDS_A_LINE)
        for word in words:
            self.lines[word].add(number)
        line = " ".join(words)
        self._producer.produce(self._topic, line, str(number), on_delivery=self._delivered)
        self._producer.poll(0)
        self.fed += 1

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)
