"""The content of a simulated file system: as programs see it, as it is on disk, and in between.

Everything here is an immutable value, so a copy of a file system shares all of it. The content of
a file consists of pages, so that a write copies only the pages that it changes.

`cordwood.testing.simulated_filesystem` describes the possible states after a power loss.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

PAGE_BYTES = 4096
SECTOR_BYTES = 512
ROOT = 0

_ZERO_PAGE = bytes(PAGE_BYTES)


class Content(NamedTuple):
    """The bytes of a file; every page but the last is whole."""

    pages: tuple[bytes, ...] = ()
    size: int = 0

    @classmethod
    def of(cls, data: bytes) -> Content:
        """The content with these bytes."""
        return cls().written(0, data)

    def read(self, position: int, size: int) -> bytes:
        """Reads up to `size` bytes from `position`; fewer at the end."""
        end = min(position + size, self.size)
        if position >= end:
            return b""
        first, last = position // PAGE_BYTES, (end - 1) // PAGE_BYTES
        whole = self.pages[first] if first == last else b"".join(self.pages[first : last + 1])
        return whole[position - first * PAGE_BYTES : end - first * PAGE_BYTES]

    def written(self, position: int, data: bytes) -> Content:
        """A copy with `data` at `position`; zeros fill the gap when that lies beyond the end."""
        if not data:
            return self
        if position > self.size:
            return self.resized(position).written(position, data)
        end = position + len(data)
        first, last = position // PAGE_BYTES, (end - 1) // PAGE_BYTES
        head = tail = b""
        if first < len(self.pages):
            head = self.pages[first][: position - first * PAGE_BYTES]
        if last < len(self.pages):
            tail = self.pages[last][end - last * PAGE_BYTES :]
        new = head + data + tail
        pages = tuple(new[at : at + PAGE_BYTES] for at in range(0, len(new), PAGE_BYTES))
        return Content(self.pages[:first] + pages + self.pages[last + 1 :], max(self.size, end))

    def resized(self, size: int) -> Content:
        """A copy of that size: cut off, or filled up with zeros."""
        if size == self.size:
            return self
        count, over = divmod(size, PAGE_BYTES)
        if size < self.size:
            pages = self.pages[:count]
            return Content((*pages, self.pages[count][:over]) if over else pages, size)
        pages = self.pages
        if self.size % PAGE_BYTES:
            room = (PAGE_BYTES if len(pages) <= count else over) - len(pages[-1])
            pages = (*pages[:-1], pages[-1] + bytes(room))
        if len(pages) <= count:
            pages = pages + (_ZERO_PAGE,) * (count - len(pages)) + ((bytes(over),) if over else ())
        return Content(pages, size)


class DataChange(NamedTuple):
    """A write of `data` at `position`, or with None for data a truncation to `position`."""

    position: int
    data: bytes | None

    def on(self, content: Content) -> Content:
        """The content of a file after this change."""
        if self.data is None:
            return content.resized(self.position)
        return content.written(self.position, self.data)


class Ownership(NamedTuple):
    """Owner, mode and times of a file or directory."""

    mode: int
    uid: int
    gid: int
    modified_ns: int


class FileNode(NamedTuple):
    """A file: as programs see it, as it is on disk, and the changes between.

    `damaged` is set where a sync has failed: then some of what programs see is in no change.
    """

    ownership: Ownership
    live: Content = Content()
    durable: Content = Content()
    pending: tuple[DataChange, ...] = ()
    damaged: bool = False

    def changed(self, change: DataChange, modified_ns: int) -> FileNode:
        """A copy with one change that is not on disk yet."""
        return self._replace(
            ownership=self.ownership._replace(modified_ns=modified_ns),
            live=change.on(self.live),
            pending=(*self.pending, change),
        )

    def synced(self) -> FileNode:
        """A copy with all pending changes on disk."""
        if not self.damaged:
            return self._replace(durable=self.live, pending=())
        content = self.durable
        for change in self.pending:
            content = change.on(content)
        return self._replace(durable=content, pending=(), damaged=content != self.live)

    def failed_to_sync(self) -> FileNode:
        """A copy with all pending changes lost: programs see them as long as the system runs."""
        return self._replace(pending=(), damaged=self.damaged or bool(self.pending))


class NameChange(NamedTuple):
    """One atomic change to names: a rename removes one name and adds another.

    `steps` are (directory, name, node), with None for a name that is removed; at most two
    directories.
    """

    number: int
    steps: tuple[tuple[int, str, int | None], ...]


class DirectoryNode(NamedTuple):
    """A directory: the names in it, those on disk, and the changes between."""

    ownership: Ownership
    live: Mapping[str, int]
    durable: Mapping[str, int]
    pending: tuple[NameChange, ...] = ()


Node = FileNode | DirectoryNode
Nodes = dict[int, Node]


def directory_at(nodes: Mapping[int, Node], node_id: int) -> DirectoryNode:
    """A node that is known to be a directory."""
    node = nodes[node_id]
    assert isinstance(node, DirectoryNode), f"node {node_id} is a file"
    return node


def change_names(nodes: Nodes, change: NameChange, modified_ns: int) -> None:
    """Makes a change that is not on disk yet, in all directories that it touches."""
    for directory_id in dict.fromkeys(step[0] for step in change.steps):
        node = directory_at(nodes, directory_id)
        nodes[directory_id] = node._replace(
            ownership=node.ownership._replace(modified_ns=modified_ns),
            live=_names_after(node.live, directory_id, (change,)),
            pending=(*node.pending, change),
        )


def sync_names(nodes: Nodes, directory_id: int) -> None:
    """Syncs a directory's names; a rename between two directories is synced in both."""
    whole = len(directory_at(nodes, directory_id).pending)
    for touched, count in _closed(nodes, {directory_id: whole}).items():
        node = directory_at(nodes, touched)
        nodes[touched] = node._replace(
            durable=_names_after(node.durable, touched, node.pending[:count]),
            pending=node.pending[count:],
        )


def reachable(nodes: Mapping[int, Node], roots: Iterable[int]) -> Nodes:
    """The nodes that have, had or may have a name, from `roots` downwards."""
    found: Nodes = {}
    to_do = list(roots)
    while to_do:
        node_id = to_do.pop()
        if node_id in found:
            continue
        node = found[node_id] = nodes[node_id]
        if isinstance(node, DirectoryNode):
            to_do += node.live.values()
            if node.pending:
                to_do += node.durable.values()
                to_do += [
                    step[2]
                    for change in node.pending
                    for step in change.steps
                    if step[2] is not None
                ]
    return found


class Outcome(ABC):
    """The state after a power loss: how many pending changes of each directory, which bytes."""

    @abstractmethod
    def names_kept(self, nodes: Mapping[int, Node]) -> dict[int, int]:
        """The number of each directory's pending changes that last; none if not named."""

    @abstractmethod
    def content_of(self, file: FileNode) -> Content:
        """The content of a file after the power loss."""


class NothingLasted(Outcome):
    """Outcome in which only synced changes persist."""

    def names_kept(self, nodes: Mapping[int, Node]) -> dict[int, int]:
        """None of the names: each directory is as it was last synced."""
        return {}

    def content_of(self, file: FileNode) -> Content:
        """The content that was last synced."""
        return file.durable


class EverythingLasted(Outcome):
    """All changes persist, except those that a failed sync has lost."""

    def names_kept(self, nodes: Mapping[int, Node]) -> dict[int, int]:
        """All of the names."""
        return {node_id: len(node.pending) for node_id, node in _with_pending_names(nodes)}

    def content_of(self, file: FileNode) -> Content:
        """The whole content."""
        return file.synced().durable


class ByChance(Outcome):
    """Outcome in which some of the pending changes persist, at random.

    Each outcome has a leaning of its own, from losing nearly all to keeping nearly all: what breaks
    a program is often one change lost, or one kept.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._leaning = rng.choice((0.1, 0.5, 0.9))

    def _kept(self) -> bool:
        return self._rng.random() < self._leaning

    def names_kept(self, nodes: Mapping[int, Node]) -> dict[int, int]:
        """Of each directory no, some or all of the names."""
        kept = {}
        for node_id, node in _with_pending_names(nodes):
            count = len(node.pending)
            if self._rng.random() < 0.5:
                kept[node_id] = count if self._kept() else 0
            else:
                kept[node_id] = self._rng.randint(0, count)
        return kept

    def content_of(self, file: FileNode) -> Content:
        """The synced content, all of it, or a mixture; writes may be torn."""
        if not file.pending and not file.damaged:
            return file.durable
        if self._rng.random() < 0.4:
            content = file.synced().durable if self._kept() else file.durable
        else:
            content = file.durable
            for change in file.pending:
                if change.data is None:
                    content = change.on(content) if self._kept() else content
                else:
                    content = self._written(content, file, change.position, change.data)
        if content.size < file.live.size and self._rng.random() < 0.3:
            between = self._rng.randint(content.size, file.live.size)
            content = content.resized(self._rng.choice((between, file.live.size)))
        return content

    def _written(self, content: Content, file: FileNode, position: int, data: bytes) -> Content:
        """The state of one write after the power loss."""
        if self._rng.random() < 0.6:
            return content.written(position, data) if self._kept() else content
        fate = self._rng.randrange(4)
        if fate == 0:  # torn at any byte
            return content.written(position, data[: self._rng.randint(0, len(data))])
        if fate == 1:  # torn in sectors, in any order
            at = 0
            while at < len(data):
                end = min(len(data), at + SECTOR_BYTES - (position + at) % SECTOR_BYTES)
                if self._kept():
                    content = content.written(position + at, data[at:end])
                at = end
            return content
        if fate == 2:  # the length alone
            return content.resized(max(content.size, position + len(data)))
        # The old content of the blocks: an older content of the file, or anything.
        old = file.durable.read(position, len(data))
        return content.written(position, old + self._rng.randbytes(len(data) - len(old)))


def after_power_loss(nodes: Mapping[int, Node], outcome: Outcome) -> Nodes:
    """The file system that is found: all that is there is on disk, and nothing else."""
    kept = _closed(nodes, outcome.names_kept(nodes))
    found: Nodes = {}
    to_do = [ROOT]
    while to_do:
        node_id = to_do.pop()
        node = found[node_id] = nodes[node_id]
        if isinstance(node, FileNode):
            if node.pending or node.damaged:
                content = outcome.content_of(node)
                found[node_id] = FileNode(node.ownership, live=content, durable=content)
        else:
            names = node.durable
            if node.pending:
                names = _names_after(names, node_id, node.pending[: kept.get(node_id, 0)])
                found[node_id] = DirectoryNode(node.ownership, live=names, durable=names)
            to_do += names.values()
    return found


def unsettled(nodes: Mapping[int, Node]) -> list[int]:
    """The nodes whose state a power loss may change."""
    return [
        node_id
        for node_id, node in nodes.items()
        if node.pending or (isinstance(node, FileNode) and node.damaged)
    ]


def fingerprint(nodes: Mapping[int, Node], of: Iterable[int]) -> int:
    """A hash of some nodes that differs where names, lengths or bytes do."""
    parts: list[object] = []
    for node_id in of:
        node = nodes.get(node_id)
        if isinstance(node, FileNode):
            parts += (node_id, node.live)
        elif node is not None:
            parts += (node_id, *node.live.items())
    return hash(tuple(parts))


def _with_pending_names(nodes: Mapping[int, Node]) -> Iterator[tuple[int, DirectoryNode]]:
    for node_id, node in nodes.items():
        if isinstance(node, DirectoryNode) and node.pending:
            yield node_id, node


def _names_after(
    names: Mapping[str, int], directory_id: int, changes: tuple[NameChange, ...]
) -> Mapping[str, int]:
    if not changes:
        return names
    after = dict(names)
    for change in changes:
        for directory, name, node_id in change.steps:
            if directory != directory_id:
                continue
            if node_id is None:
                after.pop(name, None)
            else:
                after[name] = node_id
    return after


def _closed(nodes: Mapping[int, Node], kept: dict[int, int]) -> dict[int, int]:
    """The choice with its consequences: a rename between directories persists in both."""
    kept = dict(kept)
    to_do = list(kept)
    while to_do:
        directory_id = to_do.pop()
        for change in directory_at(nodes, directory_id).pending[: kept[directory_id]]:
            for other, _, _ in change.steps:
                if other == directory_id or other not in nodes:
                    continue
                numbers = [c.number for c in directory_at(nodes, other).pending]
                needed = numbers.index(change.number) + 1
                if kept.get(other, 0) < needed:
                    kept[other] = needed
                    to_do.append(other)
    return kept
