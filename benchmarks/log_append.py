"""Append and sequential read, beside the same bytes through the system's calls alone."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.storage.append import record_walk
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.reading.batch_heads import FileRange
from log_data import Batches, open_log
from log_rows import Row

_SYNC_BYTES = 64 << 20
_FETCH_BYTES = 1 << 20
_CONFIG = LogConfig(max_message_bytes=4 << 20)
_RATIO_MIN = 0.6

_MB = 1e6


def append_rows(work: Path, *, size_bytes: int, turns: int) -> Iterator[Row]:
    """Batches of two sizes, plain and lz4, without and with an fsync every 64 MiB.

    Args:
        work: an empty directory.
        size_bytes: how much each side writes in a turn.
        turns: how often.
    """
    record_walk.prepare()
    for codec in (Codec.NONE, Codec.LZ4):
        for name, size in (("16 KiB", 16 << 10), ("1 MiB", 1 << 20)):
            batches = Batches(size, codec)
            data = batches.cycle(max(8, size_bytes // size))
            for sync_bytes in (0, _SYNC_BYTES):
                synced = ", fsync / 64 MiB" if sync_bytes else ""
                row = Row(
                    what=f"append {name} {codec.config_name}{synced}",
                    unit="MB/s",
                    other_name="write",
                    ratio_min=_RATIO_MIN if name == "1 MiB" else None,
                    detail={"batches": len(data), "bytes": sum(map(len, data))},
                )
                for _ in range(turns):
                    row.turn(
                        lambda: _append(work / "log-0", data, sync_bytes),  # noqa: B023
                        lambda: _write(work / "plain", data, sync_bytes),  # noqa: B023
                    )
                yield row


def _append(directory: Path, data: list[bytes], sync_bytes: int) -> float:
    log = open_log(directory, _CONFIG)
    begun = time.perf_counter()
    total = unsynced = 0
    for batch in data:
        log.append_as_leader(batch)
        total += len(batch)
        unsynced += len(batch)
        if sync_bytes and unsynced >= sync_bytes:
            log.flush()
            unsynced = 0
    seconds = time.perf_counter() - begun
    assert log.size_bytes == total, "all was taken as it is"
    log.close_handlers()
    log.context.resources.close()
    shutil.rmtree(directory)
    return total / seconds / _MB


def _write(path: Path, data: list[bytes], sync_bytes: int) -> float:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    begun = time.perf_counter()
    total = unsynced = 0
    for batch in data:
        os.write(handle, batch)
        total += len(batch)
        unsynced += len(batch)
        if sync_bytes and unsynced >= sync_bytes:
            os.fsync(handle)
            unsynced = 0
    seconds = time.perf_counter() - begun
    os.close(handle)
    path.unlink()
    return total / seconds / _MB


def read_rows(work: Path, *, size_bytes: int, turns: int) -> Iterator[Row]:
    """One log from its start to its end in fetches of 1 MiB: read, and sent to a socket.

    Args:
        work: an empty directory.
        size_bytes: of the log.
        turns: how often.
    """
    log = open_log(work / "log-0", _CONFIG)
    batches = Batches(16 << 10)
    for batch in batches.cycle(max(8, size_bytes // (16 << 10))):
        log.append_as_leader(batch)
    log.update_high_watermark(log.log_end_offset)
    path = log.active.path
    size, batch_bytes = log.size_bytes, len(batches.raw[0])
    row = Row(what="read, 1 MiB fetches, pread", unit="MB/s", other_name="pread")
    row.detail = {"bytes": size}
    for _ in range(turns):
        row.turn(
            lambda: _fetch(log, batches.records, batch_bytes, lambda found: len(found.read())),
            lambda: _read(path, size, lambda handle, at: len(os.pread(handle, _FETCH_BYTES, at))),
        )
    yield row
    row = Row(what="read, 1 MiB fetches, sendfile to a socket", unit="MB/s", other_name="sendfile")
    row.detail = {"bytes": size}
    with _drained() as sink:
        for _ in range(turns):
            row.turn(
                lambda: _fetch(
                    log,
                    batches.records,
                    batch_bytes,
                    lambda found: _send(
                        sink, found.file.fileno(), found.position, found.size_bytes
                    ),
                ),
                lambda: _read(
                    path,
                    size,
                    lambda handle, at: _send(sink, handle, at, min(_FETCH_BYTES, size - at)),
                ),
            )
    yield row
    log.close_handlers()


def _fetch(
    log: PartitionLog, records: int, batch_bytes: int, take: Callable[[FileRange], int]
) -> float:
    """Reads as a consumer that asks each time for the first record that it has not got whole."""
    begun = time.perf_counter()
    offset = total = 0
    while offset < log.log_end_offset:
        found = log.reader.read(offset, _FETCH_BYTES, isolation=Isolation.HIGH_WATERMARK)
        assert found.range is not None, "below the log's end"
        got = take(found.range)
        offset += got // batch_bytes * records
        total += got
    return total / (time.perf_counter() - begun) / _MB


def _read(path: Path, size: int, take: Callable[[int, int], int]) -> float:
    handle = os.open(path, os.O_RDONLY)
    begun = time.perf_counter()
    position = 0
    while position < size:
        position += take(handle, position)
    seconds = time.perf_counter() - begun
    os.close(handle)
    return position / seconds / _MB


def _send(sink: int, handle: int, position: int, size: int) -> int:
    sent = 0
    while sent < size:
        sent += os.sendfile(sink, handle, position + sent, size - sent)
    return sent


@contextmanager
def _drained() -> Iterator[int]:
    """A socket whose other end a process of its own reads, and forgets what it reads."""
    near, far = socket.socketpair()
    reader = os.fork()
    if reader == 0:
        near.close()
        view = bytearray(_FETCH_BYTES)
        while far.recv_into(view):
            pass
        os._exit(0)
    far.close()
    try:
        yield near.fileno()
    finally:
        near.close()
        os.waitpid(reader, 0)
