"""The identity of a node: the answer to `GET /broker`, and a file in each log directory.

`cordwood serve` writes the file when it serves clients and removes it when it stops. A file left by
a killed node is stale: the directory's `.lock` is free, or held by another process,
which does not answer at the address in the file. Kafka ignores unknown files in its log directories
(LogManager.loadLogs only looks at directories).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cordwood import __version__
from cordwood.format.file_names import RUNTIME_FILE
from cordwood.model.documents import ABSENT, document_text, from_document
from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.storage.filesystem import OS, FileSystem

_log = logging.getLogger(__name__)

BROKER: Final = "broker"
CONTROLLER: Final = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherBroker:
    """A broker of a node's cluster, with its Kafka address; `reason` is why it was not asked."""

    node_id: int
    address: str
    reason: str | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """A running node: its node and cluster ids, its process, its log directories, its address.

    `log_dirs` are absolute; `http_url` is None where the node serves no HTTP; `role` is
    "controller" for a node that is a controller alone. The answer to `GET /broker` has
    `other_brokers`, all of its cluster; a document of a command those `not_asked`.
    """

    node_id: int
    cluster_id: str
    pid: int
    log_dirs: Sequence[str]
    http_url: str | None
    role: str = BROKER
    version: str = __version__
    other_brokers: Sequence[OtherBroker] | None = field(default=None, metadata=ABSENT)
    not_asked: Sequence[OtherBroker] | None = field(default=None, metadata=ABSENT)

    @classmethod
    def here(
        cls,
        *,
        node_id: int,
        cluster_id: str,
        log_dirs: Iterable[Path],
        http_url: str | None,
        role: str,
    ) -> NodeIdentity:
        """The identity of a node in this process."""
        return cls(
            node_id=node_id,
            cluster_id=cluster_id,
            pid=os.getpid(),
            log_dirs=tuple(map(str, log_dirs)),
            http_url=http_url,
            role=role,
        )

    def is_at(self, log_dir: Path) -> bool:
        """Whether a directory is one of the node's log directories."""
        return log_dir.resolve() in {Path(each).resolve() for each in self.log_dirs}

    def __str__(self) -> str:
        where = ", ".join(self.log_dirs)
        return (
            f"{self.role} {self.node_id} of cluster {self.cluster_id} (process {self.pid}, {where})"
        )


@contextmanager
def runtime_files(identity: NodeIdentity, *, fs: FileSystem = OS) -> Iterator[None]:
    """Keeps the file in each of the node's log directories until the context ends.

    If a disk returns an error, a warning is logged; the node runs without the file.
    """
    paths = [Path(each) / RUNTIME_FILE for each in identity.log_dirs]
    data = document_text(identity).encode() + b"\n"
    for path in paths:
        with _warning_of(path):
            fs.replace_durably(path, data)
    try:
        yield
    finally:
        for path in paths:
            with _warning_of(path):
                if fs.exists(path):
                    fs.remove(path)


@contextmanager
def _warning_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, CordwoodError) as error:
        _log.warning(
            "Cannot write %s, with which  `cordwood cleaner` and `cordwood clock` find this broker "
            "for --log-dir: use --bootstrap-server or --url instead. %s",
            path,
            error,
        )


def read_runtime_file(log_dir: Path, *, fs: FileSystem = OS) -> NodeIdentity | None:
    """The identity in a log directory's file; None if there is no file.

    Raises:
        CorruptError: the file is malformed.
        OSError: the file cannot be read.
    """
    path = log_dir / RUNTIME_FILE
    try:
        data = fs.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        return from_document(NodeIdentity, json.loads(data))
    except (CorruptError, ValueError) as error:
        raise CorruptError(str(error), path=str(path)) from error
