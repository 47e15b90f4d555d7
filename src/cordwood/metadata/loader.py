"""Reads committed batches of the metadata log, and publishes the resulting images.

The other parts of a node get metadata only from their loader, and only committed metadata. The
publishers get each update in the order in which they were installed, and the next update when all
have applied this one. As in Kafka, an update may cover several batches, records of an open
transaction are published when it ends, and an error in one publisher is logged and does not keep
the update from the others.

Source: org.apache.kafka.image.loader.MetadataLoader, MetadataBatchLoader, Kafka 4.3; KIP-868.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from cordwood.metadata.image import MetadataImage
from cordwood.metadata.metadata_log import MetadataLog
from cordwood.metadata.publisher import MetadataPublisher, MetadataUpdate
from cordwood.model.change_lock import ChangeLock
from cordwood.model.kafka_errors import KafkaError, UnknownServerError

_log = logging.getLogger(__name__)

Schedule = Callable[[Callable[[], None]], "asyncio.Future[None]"]


class MetadataLoader:
    """The loader of one node; nothing is published before the first `catch_up`.

    Invariant: `_published_offset` is one past the last record of the last image that all publishers
    have.
    """

    def __init__(self, log: MetadataLog, *, schedule: Schedule | None = None) -> None:
        """Starts from the records that were read when `log` was opened.

        Args:
            log: to read from; its `replay`, and one that replaces it, belongs to this loader.
            schedule: runs `catch_up` after a commit, beside other work; without it, the caller
                calls `catch_up`.
        """
        self._log = log
        self._replay = log.replay
        self._schedule = schedule
        self._publishers: list[MetadataPublisher] = []
        self._image: MetadataImage | None = None
        self._published_offset = 0
        self._is_scheduled = False
        self._is_stopping = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._updates = ChangeLock()
        log.subscribe(self._on_commit)

    def check_invariants(self) -> None:
        """Checks that no more is published than the image has; less, during an update."""
        ends = self._published_offset, 0 if self._image is None else self._image.next_offset
        assert ends[0] <= ends[1], ends
        assert self._updates.is_held or ends[0] == ends[1], ends

    @property
    def between_updates(self) -> ChangeLock:
        """The lock that each update holds."""
        return self._updates

    @property
    def published_offset(self) -> int:
        """One past the last record of the last image that all publishers have."""
        return self._published_offset

    def install(self, publisher: MetadataPublisher) -> None:
        """Gives a publisher the last image, if there is one, and from now on each update."""
        with self._updates:
            if self._image is not None:
                publisher.on_metadata_update(MetadataUpdate(before=None, after=self._image))
            self._publishers.append(publisher)

    def catch_up(self) -> None:
        """Publishes all that is committed.

        Raises:
            CorruptError: a batch or a record on disk cannot be read.
            StorageError: the disk refused.
        """
        with self._updates:
            self._is_scheduled = False
            if self._image is None:
                first_bytes = 0
                while (size_bytes := self._load()) is not None:
                    first_bytes += size_bytes
                if not self._replay.data_records:
                    return  # at most the control records of an epoch that has begun
                self._publish(self._next_image(), first_bytes)
            while (size_bytes := self._load()) is not None:
                if not self._replay.in_transaction:
                    self._publish(self._next_image(), size_bytes)

    async def published(self, offset: int) -> None:
        """Returns when all publishers have the records below `offset`.

        To be called on the event loop's thread.

        Raises:
            KafkaError: the log cannot be read.
        """
        if self._published_offset < offset:
            reached = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, reached))
            await reached

    def stopping(self) -> None:
        """Ignores from now on that a scheduled `catch_up` is refused: the broker stops."""
        self._is_stopping = True

    def close(self) -> None:
        """Schedules nothing from now on; `catch_up` still works."""
        self._schedule = None

    def _on_commit(self) -> None:
        if self._schedule is not None and not self._is_scheduled:
            self._is_scheduled = True
            self._schedule(self.catch_up).add_done_callback(self._caught_up)

    def _load(self) -> int | None:
        """Applies the next committed batches; how many bytes they have, None without any.

        A snapshot that has taken the place of the log comes before them.
        """
        is_of_snapshot = self._replay is not self._log.replay
        self._replay = self._log.replay
        batches = self._log.read_committed(self._replay.next_offset)
        for batch in batches:
            self._replay.take_log_batch(batch)
        if not batches and not is_of_snapshot:
            return None
        return sum(batch.size_bytes for batch in batches)

    def _next_image(self) -> MetadataImage:
        image = replace(self._replay.image(), may_have_uncommitted_suffix=False)
        if not self._replay.in_transaction:
            self._replay.begin_next_image(image)
        return image

    def _publish(self, image: MetadataImage, size_bytes: int) -> None:
        update = MetadataUpdate(before=self._image, after=image, size_bytes=size_bytes)
        self._image = image
        for publisher in self._publishers:
            try:
                publisher.on_metadata_update(update)
            except Exception:
                _log.exception("Unhandled error publishing metadata up to offset %d", image.offset)
        self._published_offset = image.next_offset

    def _caught_up(self, done: asyncio.Future[None]) -> None:
        """Completes the waiters whose offset is published, on the event loop's thread."""
        error = done.exception()
        if error is not None:
            level = logging.DEBUG if self._is_stopping else logging.ERROR
            _log.log(level, "The metadata log cannot be loaded: %s", error)
        waiting, self._waiting = self._waiting, []
        for offset, reached in waiting:
            if reached.done():  # given up
                continue
            if offset <= self._published_offset:
                reached.set_result(None)
            elif error is None:
                self._waiting.append((offset, reached))
            else:
                known = isinstance(error, KafkaError)
                reached.set_exception(error if known else UnknownServerError(str(error)))
