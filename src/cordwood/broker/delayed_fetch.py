"""Fetches that wait until the partitions they read have grown enough, or their time is up.

Source: kafka.server.DelayedFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from cordwood.broker.delayed_operations import WaitKey
from cordwood.broker.fetch_sessions import FetchContext, FetchSession
from cordwood.broker.reading import PartitionRead, PartitionReading, ReadResult
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import FetchResponse
from cordwood.purgatory.purgatory import Purgatory
from cordwood.serving.node_thread import NodeThread

INLINE_PARTITIONS_MAX = 256
"""More partitions are read in slices."""


def when_grown(fetch: DelayedFetch, wait_ms: int) -> asyncio.Future[FetchResponse]:
    """The response, when the partitions have grown enough or the time is up.

    The wait ends when the future is cancelled: the client has gone.
    """
    operations = fetch.reading.replicas.delayed
    purgatory: Purgatory[WaitKey] = operations.fetch
    if fetch.reading.reader.follower is not None:
        purgatory = operations.replica_fetch
    delayed = purgatory.try_complete_else_watch(fetch, fetch.keys, wait_ms)
    fetch.response.add_done_callback(lambda _: delayed.cancel())
    return fetch.response


class DelayedFetch:
    """A fetch that has read too little; `response` is done when it has enough, or time is up."""

    def __init__(
        self,
        thread: NodeThread,
        reading: PartitionReading,
        context: FetchContext,
        read: ReadResult,
        *,
        missing_bytes: int,
        respond: Callable[[], FetchResponse],
    ) -> None:
        """Waits for nothing yet.

        Args:
            thread: runs what reads again.
            reading: reads the partitions.
            context: has the session.
            read: what was read at first.
            missing_bytes: by how much the partitions have to grow.
            respond: reads again, and makes the response.
        """
        self.reading = reading
        self.response: asyncio.Future[FetchResponse] = thread.loop.create_future()
        self._node_thread = thread
        self._context = context
        self._read = read
        self._missing = missing_bytes
        self._respond = respond

    @property
    def _session(self) -> FetchSession | None:
        return self._context.session_of(self.reading.reader.follower)

    @property
    def keys(self) -> Iterator[WaitKey]:
        """The partitions whose growth may end the wait, or the session that watches them."""
        session = self._session
        if session is not None:
            yield session.id
            return
        for one in in_steps(self._read.partitions, every=64):
            if not self._is_throttled(one):
                yield one.wanted.key.topic, one.wanted.key.partition

    def _is_throttled(self, read: PartitionRead) -> bool:
        if self.reading.reader.follower is None:
            return False
        try:
            return self.reading.is_throttled(self.reading.partition(read.wanted.key))
        except KafkaError:
            return False

    def try_complete(self, grown_bytes: int | None) -> bool:
        """Counts by how much its partitions have grown, for `DelayedOperation`."""
        if grown_bytes is None:
            return self._has_unread or any(
                self._has_changed(one) for one in in_steps(self._read.partitions, every=64)
            )
        self._missing -= grown_bytes
        return self._missing <= 0 or grown_bytes == 0

    @property
    def _has_unread(self) -> bool:
        """Whether a follower's session has to read a partition that has not been read."""
        session = self._session
        return session is not None and len(session.due) > len(self._read.partitions)

    def _has_changed(self, read: PartitionRead) -> bool:
        """Whether a partition is not as it was when it was read."""
        try:
            partition = self.reading.partition(read.wanted.key)
        except KafkaError:
            return True
        if self.reading.reader.follower is None:
            return partition.log.high_watermark != read.high_watermark
        return (
            not self.reading.is_throttled(partition)
            and partition.log.log_end_offset > read.wanted.fetch_offset
        )

    def on_expiration(self) -> None:
        """Does nothing: the purgatory counts it."""

    def on_complete(self) -> None:
        """Reads again, in a later turn: what has appended is answered first."""
        self._node_thread.loop.call_soon(self._finish)

    def _finish(self) -> None:
        if self.response.done():
            return
        if self._context.due_count > INLINE_PARTITIONS_MAX:
            self._node_thread.slices.run(self._respond).add_done_callback(self._finished)
            return
        try:
            self.response.set_result(self._respond())
        except Exception as error:  # the connection waits for a response
            self.response.set_exception(error)

    def _finished(self, work: asyncio.Future[FetchResponse]) -> None:
        if self.response.done():
            return
        error = work.exception()
        if error is None:
            self.response.set_result(work.result())
        else:
            self.response.set_exception(error)
