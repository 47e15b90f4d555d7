"""One client's connection: requests in, responses out, in order.

As in Kafka, a connection has one request in work at a time: while it waits for its answer, or its
answer for the client to take it, nothing more is read, so that a client that sends faster than it
is served, or does not read, is slowed by its own socket and costs no memory. The end of such a
connection is reported by `peer_closed`: an answer that waits for other clients is then given up.

Responses are sent straight from the handler's turn; what the socket does not take waits for it to
be writable. Ranges of segment files go by sendfile.

Source: org.apache.kafka.common.network.Selector, KafkaChannel, SocketServer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cordwood.protocol.messages import MalformedMessageError, UnknownMessageError
from cordwood.serving.api import Parked, Part, Peer
from cordwood.serving.frames import FrameReader, InvalidReceiveError
from cordwood.serving.request_errors import UnansweredRequestError, UnservedRequestError
from cordwood.storage.reading.batch_heads import FileRange

_log = logging.getLogger(__name__)

Reply = list[Part] | None
Later = Reply | Parked
Answer = Callable[[memoryview, Peer], Later | Awaitable[Later]]

# Below this, a range of a file is read and joined with what is around it: one system call less.
_SENDFILE_BYTES_MIN = 64 * 1024
_SENDFILE_BYTES_MAX = 1024 * 1024
_JOINED_BYTES_MAX = 1024 * 1024
_REQUESTS_PER_TURN = 32
_REFUSALS = (
    InvalidReceiveError,
    MalformedMessageError,
    UnansweredRequestError,
    UnknownMessageError,
    UnservedRequestError,
)


class Connection:
    """A connected socket, and what is under way on it."""

    def __init__(
        self,
        sock: socket.socket,
        peer: Peer,
        *,
        loop: asyncio.AbstractEventLoop,
        answer: Answer,
        scratch: memoryview,
        max_request_bytes: int,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self.last_active_s = loop.time()
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._answer = answer
        self._scratch = scratch
        self._reader = FrameReader(max_request_bytes)
        self._on_close = on_close
        self._out: deque[Part] = deque()
        self._reading = False
        self._writing = False
        self._waiting: asyncio.Future[Any] | None = None
        self._is_parked = False
        self._is_peer_closed = False
        self._closed = False
        self._resume_reading()

    # ---- in

    @property
    def fd(self) -> int:
        """The socket's descriptor; another connection may have it once this one is closed."""
        return self._fd

    @property
    def has_input(self) -> bool:
        """Whether requests have arrived that can be answered now."""
        if self._closed or self.is_busy:
            return False
        return self._reader.holds_request or is_readable(self._fd)

    @property
    def is_working(self) -> bool:
        """Whether this broker is busy with a request; one that waits for other clients is not."""
        return self._waiting is not None and not self._is_parked

    @property
    def is_busy(self) -> bool:
        """Whether a request is in work, or its answer not yet taken."""
        return self._waiting is not None or bool(self._out)

    @property
    def unsent_bytes(self) -> int:
        """How much of answers the client has not taken yet."""
        return sum(map(_size, self._out))

    def _resume_reading(self) -> None:
        if not self._reading and not self._closed:
            self._loop.add_reader(self._fd, self._readable)
            self._reading = True

    def _pause_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._reading = False

    def _readable(self) -> None:
        reader = self._reader
        try:
            count = self._sock.recv_into(reader.room(self._scratch))
        except (BlockingIOError, InterruptedError):
            reader.received(0, self._scratch)
            reader.keep()
            return
        except OSError as error:
            self.close(f"the client has disconnected: {error}")
            return
        if count == 0:
            self.close(None)
            return
        self.last_active_s = self._loop.time()
        reader.received(count, self._scratch)
        if self.is_busy:  # what has come is kept until the answer before it has been taken
            reader.keep()
            self._rest()
        else:
            self._work()

    def _work(self) -> None:
        """Answers what requests there are, until one must wait."""
        if self._closed:
            return
        try:
            self._answer_requests()
            self._reader.keep()
        except _REFUSALS as error:
            self._flush()
            self.close(str(error), warn=True)
            return
        except Exception:
            _log.exception("Closing connection %s after an unexpected error", self.peer.name)
            self._flush()
            self.close(None)
            return
        self._rest()

    def _answer_requests(self) -> None:
        """Small answers of one turn are sent together: a client that pipelines is woken once."""
        reader = self._reader
        for _ in range(_REQUESTS_PER_TURN):
            frame = reader.next()
            if frame is None:
                break
            reply = self._answer(frame, self.peer)
            if isinstance(reply, list):
                self._out.extend(reply)
                if len(reply) > 1:  # records
                    self._flush()
                    if self.is_busy:
                        break
            elif isinstance(reply, Parked):
                self._await(reply.answer, is_parked=True)
                break
            elif reply is not None:
                self._await(reply, is_parked=False)
                break
            if self._closed:
                return
        if self._out:
            self.last_active_s = self._loop.time()
            self._flush()

    def _rest(self) -> None:
        """Reads on, unless there is something to do first."""
        if self._closed:
            return
        if self.is_busy:
            if self._reader.holds_request:
                self._pause_reading()
        elif self._reader.holds_request:
            self._pause_reading()
            self._loop.call_soon(self._work)
        else:
            self._resume_reading()

    def _await(self, reply: Awaitable[Later], *, is_parked: bool) -> None:
        waiting = asyncio.ensure_future(reply, loop=self._loop)
        self._waiting, self._is_parked = waiting, is_parked
        self._pause_reading()
        waiting.add_done_callback(self._answered)
        if self._is_peer_closed:
            self._end_wait_soon()

    def peer_closed(self) -> None:
        """The peer sends no more; what it has sent is still to be read and answered.

        Kafka's clients close both ways at once, so nobody takes an answer that comes later.
        """
        self._is_peer_closed = True
        if self._waiting is not None:
            self._end_wait_soon()

    def _end_wait_soon(self) -> None:
        """Not now: a task that is cancelled before its first step does not give up its wait."""
        self._loop.call_soon(self._end_wait)

    def _end_wait(self) -> None:
        if self._waiting is not None and self._is_parked:
            self.close("the client closed it while a request waited")

    def _answered(self, waiting: asyncio.Future[Later]) -> None:
        self._waiting = None
        if waiting.cancelled():
            return
        error = waiting.exception()
        if self._closed:
            if error is None and isinstance(parked := waiting.result(), Parked):
                self._abandon(parked.answer)
            return
        if isinstance(error, _REFUSALS):
            self.close(str(error), warn=True)
            return
        if error is not None:
            _log.error("Closing connection %s", self.peer.name, exc_info=error)
            self.close(None)
            return
        reply = waiting.result()
        if isinstance(reply, Parked):
            self._await(reply.answer, is_parked=True)
            return
        if reply is not None:
            self._send(reply)
        self._rest()

    def _abandon(self, answer: Awaitable[Any]) -> None:
        """Gives up a wait that began when the connection was closed already."""
        waiting = asyncio.ensure_future(answer, loop=self._loop)
        self._loop.call_soon(waiting.cancel)  # not before its first step, as above

    # ---- out

    def _send(self, parts: Sequence[Part]) -> None:
        self._out.extend(parts)
        self.last_active_s = self._loop.time()
        self._flush()

    def _flush(self) -> None:
        """Sends as much as the socket takes now."""
        out = self._out
        try:
            while out:
                if not (self._send_file() if _is_large(out[0]) else self._send_bytes()):
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(f"the client has disconnected: {error}")
            return
        if out and not self._writing:
            self._loop.add_writer(self._fd, self._writable)
            self._writing = True
        elif not out and self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False

    def _writable(self) -> None:
        self.last_active_s = self._loop.time()
        self._flush()
        if not self._out:
            self._rest()

    def _send_bytes(self) -> bool:
        out = self._out
        pieces: list[bytes | memoryview] = []
        size = 0
        while out and not _is_large(out[0]):
            size += _size(out[0])
            if pieces and size > _JOINED_BYTES_MAX:
                break
            part = out.popleft()
            pieces.append(part.read() if isinstance(part, FileRange) else part)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        flags = socket.MSG_MORE if out else 0
        try:
            sent = self._sock.send(data, flags)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent < len(data):
            out.appendleft(memoryview(data)[sent:])
            return False
        return True

    def _send_file(self) -> bool:
        part = self._out[0]
        assert isinstance(part, FileRange)
        count = min(part.size_bytes, _SENDFILE_BYTES_MAX)
        sent = os.sendfile(self._fd, part.file.fileno(), part.position, count)
        if sent == 0:
            raise OSError(f"the file ended {part.size_bytes} bytes before what was to be sent")
        if sent == part.size_bytes:
            self._out.popleft()
        else:
            self._out[0] = FileRange(part.file, part.position + sent, part.size_bytes - sent)
        return sent == count

    # ---- end

    def close(self, reason: str | None, *, warn: bool = False, abandon: bool = False) -> None:
        """Closes the socket at once; what it waits for is given up, work is finished.

        Args:
            reason: logged, if there is one.
            warn: as a warning.
            abandon: gives up work, too.
        """
        if self._closed:
            return
        self._closed = True
        if reason is not None:
            level = logging.WARNING if warn else logging.DEBUG
            _log.log(level, "Closing connection %s: %s", self.peer.name, reason)
        self._pause_reading()
        if self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False
        if self._waiting is not None and (self._is_parked or abandon):
            self._waiting.cancel()
        self._out.clear()
        self._sock.close()
        self._on_close(self)


def is_readable(fd: int) -> bool:
    """Whether a socket has bytes to be read, or its end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _size(part: Part) -> int:
    return part.size_bytes if isinstance(part, FileRange) else len(part)


def _is_large(part: Part) -> bool:
    return isinstance(part, FileRange) and part.size_bytes >= _SENDFILE_BYTES_MIN
