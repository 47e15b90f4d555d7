"""An S3 server for tests: versitygw over a directory, in a process of its own.

A put with If-None-Match or If-Match is atomic there: the check is repeated under a lock, in which
the object is put in place; `tests/integration/object_storage/test_server.py` tries two writers.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final, Self

from cordwood.model.errors import CordwoodError
from support.built_programs import ProgramBuildError, ProgramUnavailableError
from support.kafka import poll_until
from support.object_storage.program import versitygw
from support.ports import free_port, listens
from support.requirements import require

ACCESS_KEY: Final = "cordwood"
SECRET_KEY: Final = "cordwood-secret"  # noqa: S105  # of servers that only tests reach
REGION: Final = "us-east-1"

_START_S: Final = 120.0
_STOP_S: Final = 60.0


class ObjectStorageError(CordwoodError):
    """The server did not do what was asked of it; its last words are in the text."""


class ObjectStorageServer:
    """The process, its port and its directory; it starts again with what it had.

    A bucket is a directory below `root`, an object a file in it, with its metadata in extended
    attributes; on a file system that has none, in files below `sidecar`.
    """

    def __init__(self, directory: Path) -> None:
        """Nothing runs yet.

        Args:
            directory: empty, for all that the server writes.

        Raises:
            ProgramUnavailableError: the server cannot be built here.
        """
        self.port = free_port()
        self.root = directory / "buckets"
        self._log_file = directory / "versitygw.log"
        self._program = versitygw()
        self._process: subprocess.Popen[bytes] | None = None
        self.root.mkdir()
        self._sidecar = None if _has_attributes(self.root) else directory / "sidecar"
        if self._sidecar is not None:
            self._sidecar.mkdir()

    @property
    def url(self) -> str:
        """The endpoint, for clients; buckets are in its path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """True between `start` and the end of the process."""
        return self._process is not None and self._process.poll() is None

    def make_bucket(self, name: str) -> Path:
        """Makes a bucket; its directory."""
        bucket = self.root / name
        bucket.mkdir()
        return bucket

    def start(self) -> Self:
        """Returns when it listens.

        Raises:
            ObjectStorageError: it ended instead.
        """
        assert not self.is_running
        sidecar = [] if self._sidecar is None else ["--sidecar", str(self._sidecar)]
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(self._program), "--quiet", "--keep-alive"),
                    *("--port", f"127.0.0.1:{self.port}", "--region", REGION),
                    *("posix", *sidecar, str(self.root)),
                ],
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "ROOT_ACCESS_KEY_ID": ACCESS_KEY,
                    "ROOT_SECRET_ACCESS_KEY": SECRET_KEY,
                },
            )
        poll_until(self._listens, timeout_s=_START_S, what="the start of versitygw")
        return self

    def stop(self) -> None:
        """Ends the process in order, if it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_S)
            self._process = None

    def kill(self) -> None:
        """Ends the process as `kill -9` does; what it was asked last is done or not."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill()

    def _listens(self) -> bool:
        if not self.is_running:
            said = self._log_file.read_text(encoding="utf-8", errors="replace")
            raise ObjectStorageError(f"versitygw ended: {said[-2000:]}")
        return listens(self.port)


def server_or_skip(directory: Path) -> ObjectStorageServer:
    """A server that is not started; where it cannot be built a skip, or under CI=true a failure."""
    try:
        return ObjectStorageServer(directory)
    except (ProgramUnavailableError, ProgramBuildError) as error:
        require(f"NO S3 SERVER, NOTHING TRIED ON OBJECT STORAGE: {error}", holds=False)
        raise


def _has_attributes(directory: Path) -> bool:
    """Whether files there can have extended attributes of users."""
    try:
        os.setxattr(directory, "user.cordwood", b"")
        os.removexattr(directory, "user.cordwood")
    except OSError:
        return False
    return True
