"""One client's connection: requests in, responses out, in order.

As in Kafka, a connection has one request in work at a time: while it waits for its answer, or its
answer for the client to take it, nothing more is read, so that a client that sends faster than it
is served, or does not read, is slowed by its own socket and costs no memory. The end of such a
connection is reported by `client_closed`: an answer that waits for others is then given up.

Responses are sent straight from the handler's turn; what the transport does not take now waits
until it is writable. Ranges of segment files are the transport's to send.

Source: org.apache.kafka.common.network.Selector, KafkaChannel, SocketServer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from cordwood.protocol.messages import MalformedMessageError, UnknownMessageError
from cordwood.serving.api import Parked, Part
from cordwood.serving.frames import FrameReader, InvalidReceiveError
from cordwood.serving.principal import ANONYMOUS
from cordwood.serving.request_errors import UnansweredRequestError, UnservedRequestError
from cordwood.serving.session import Session, SessionEvent, SessionState
from cordwood.serving.transport import Transport
from cordwood.storage.reading.batch_heads import FileRange

_log = logging.getLogger(__name__)

Reply = list[Part] | None
Later = Reply | Parked
RequestHandler = Callable[[memoryview, Session], Later | Awaitable[Later]]

# Below this, a range of a file is read and joined with what is around it: one system call less.
_SENDFILE_BYTES_MIN = 64 * 1024
_SENDFILE_BYTES_MAX = 1024 * 1024
_JOINED_BYTES_MAX = 1024 * 1024
_REQUESTS_PER_TURN = 32
_AUTHENTICATED: Final = SessionState.AUTHENTICATED
_CLOSING: Final = SessionState.CLOSING
_REFUSALS = (
    InvalidReceiveError,
    MalformedMessageError,
    UnansweredRequestError,
    UnknownMessageError,
    UnservedRequestError,
)


class Connection:
    """A client's transport and session, and what is under way between them."""

    def __init__(
        self,
        transport: Transport,
        session: Session,
        *,
        loop: asyncio.AbstractEventLoop,
        answer: RequestHandler,
        scratch: memoryview,
        max_request_bytes: int,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.session = session
        self.last_active_s = loop.time()
        self._transport = transport
        self._fd = transport.fd
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
        self._is_client_closed = False
        self._resume_reading()

    # ---- in

    @property
    def fd(self) -> int:
        """The transport's descriptor; another connection may have it once this one is closed."""
        return self._fd

    @property
    def has_input(self) -> bool:
        """Whether requests have arrived that can be answered now."""
        if self._closed or self.is_busy:
            return False
        return self._reader.holds_request or self._transport.has_input

    @property
    def _closed(self) -> bool:
        return self.session.state is _CLOSING

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
        """The bytes of answers that the client has not taken yet."""
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
        if self.session.state is not _AUTHENTICATED and not self._is_open():
            return
        reader = self._reader
        try:
            count = self._transport.receive_into(reader.room(self._scratch))
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

    def _is_open(self) -> bool:
        """Whether requests can be received: the handshake has ended. The client is ANONYMOUS."""
        try:
            self._transport.handshake()
        except (BlockingIOError, InterruptedError):
            self.session.on(SessionEvent.HANDSHAKE_BEGUN)
            return False
        except OSError as error:
            self.close(f"the handshake has failed: {error}")
            return False
        self.session.authenticate(ANONYMOUS)
        return True

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
            _log.exception("Closing connection %s after an unexpected error", self.session.name)
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
            reply = self._answer(frame, self.session)
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
        """Continues reading, unless a request or an answer is first."""
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
            if self._transport.holds_input:
                self._loop.call_soon(self._readable)

    def _await(self, reply: Awaitable[Later], *, is_parked: bool) -> None:
        waiting = asyncio.ensure_future(reply, loop=self._loop)
        self._waiting, self._is_parked = waiting, is_parked
        self._pause_reading()
        waiting.add_done_callback(self._answered)
        if self._is_client_closed:
            self._end_wait_soon()

    def client_closed(self) -> None:
        """The client sends no more; what it has sent is still to be read and answered.

        Kafka's clients close both ways at once, so nobody takes an answer that comes later.
        """
        self._is_client_closed = True
        if self._waiting is not None:
            self._end_wait_soon()

    def _end_wait_soon(self) -> None:
        """Ends it in the next iteration: a task cancelled before its first step ignores it."""
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
            _log.error("Closing connection %s", self.session.name, exc_info=error)
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
        """Sends as much as the transport takes now."""
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
        try:
            sent = self._transport.send(data, more=bool(out))
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
        sent = self._transport.send_file(FileRange(part.file, part.position, count))
        if sent == 0:
            raise OSError(f"the file ended {part.size_bytes} bytes before what was to be sent")
        if sent == part.size_bytes:
            self._out.popleft()
        else:
            self._out[0] = FileRange(part.file, part.position + sent, part.size_bytes - sent)
        return sent == count

    # ---- end

    def close(self, reason: str | None, *, warn: bool = False, abandon: bool = False) -> None:
        """Closes the transport at once; what it waits for is given up, work is finished.

        Args:
            reason: logged, if there is one.
            warn: as a warning.
            abandon: gives up work, too.
        """
        if self._closed:
            return
        self.session.on(SessionEvent.CLOSED)
        if reason is not None:
            level = logging.WARNING if warn else logging.DEBUG
            _log.log(level, "Closing connection %s: %s", self.session.name, reason)
        self._pause_reading()
        if self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False
        if self._waiting is not None and (self._is_parked or abandon):
            self._waiting.cancel()
        self._out.clear()
        self._transport.close()
        self._on_close(self)


def _size(part: Part) -> int:
    return part.size_bytes if isinstance(part, FileRange) else len(part)


def _is_large(part: Part) -> bool:
    return isinstance(part, FileRange) and part.size_bytes >= _SENDFILE_BYTES_MIN
