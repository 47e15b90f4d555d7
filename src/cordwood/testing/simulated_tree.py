"""The tree of a simulated file system: files by path, and changes to names.

Its values are in `cordwood.testing.simulated_disk`. Errors are those of Linux.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from cordwood.testing.simulated_disk import (
    ROOT,
    DataChange,
    DirectoryNode,
    FileNode,
    NameChange,
    Node,
    Nodes,
    Ownership,
    change_names,
    directory_at,
    reachable,
)

_NAME_BYTES_MAX = 255
_CLEARED_AT_LEAST = 256


def system_error(number: int, path: Path, target: Path | None = None) -> OSError:
    """The operating system's error for a path."""
    if target is None:
        return OSError(number, os.strerror(number), str(path))
    return OSError(number, os.strerror(number), str(path), None, str(target))


class Tree:
    """Nodes by path and by number; a node keeps its number for good."""

    def __init__(self, nodes: Nodes, next_id: int = ROOT + 1) -> None:
        self.nodes = nodes
        self.next_id = next_id
        self._cleared_at = _CLEARED_AT_LEAST

    # ---- looking

    def find(self, path: Path) -> int:
        """The node of a path.

        Raises:
            OSError: there is none.
        """
        assert path.is_absolute(), f"{path} is not an absolute path"
        assert ".." not in path.parts, f"{path} leads upwards"
        node_id = ROOT
        for name in path.parts[1:]:
            node = self.nodes[node_id]
            if isinstance(node, FileNode):
                raise system_error(errno.ENOTDIR, path)
            _require_short(name, path)
            found = node.live.get(name)
            if found is None:
                raise system_error(errno.ENOENT, path)
            node_id = found
        return node_id

    def look(self, path: Path) -> Node | None:
        """The node at a path; None if there is none."""
        try:
            return self.nodes[self.find(path)]
        except OSError:
            return None

    def find_directory(self, path: Path) -> tuple[int, DirectoryNode]:
        """The directory of that path.

        Raises:
            OSError: there is none, or it is a file.
        """
        node_id = self.find(path)
        node = self.nodes[node_id]
        if isinstance(node, FileNode):
            raise system_error(errno.ENOTDIR, path)
        return node_id, node

    def place_of(self, path: Path) -> tuple[int, str]:
        """(directory, name) of a path that need not exist.

        Raises:
            OSError: the directory does not exist.
        """
        assert path.name, "the root has no name"
        try:
            parent, _ = self.find_directory(path.parent)
        except OSError as error:
            raise system_error(error.errno or errno.EIO, path) from None
        _require_short(path.name, path)
        return parent, path.name

    def named(self, place: tuple[int, str]) -> int | None:
        """The node that has that name now."""
        directory_id, name = place
        return directory_at(self.nodes, directory_id).live.get(name)

    def used_bytes(self, open_ids: Iterable[int]) -> int:
        """The length of all files that have a name or are open."""
        used = 0
        seen = set()
        to_do = [ROOT, *open_ids]
        while to_do:
            node_id = to_do.pop()
            if node_id in seen:
                continue
            seen.add(node_id)
            node = self.nodes[node_id]
            if isinstance(node, FileNode):
                used += node.live.size
            else:
                to_do += node.live.values()
        return used

    # ---- changing

    def add(self, node: Node) -> int:
        """A new node, without a name."""
        node_id = self.next_id
        self.next_id += 1
        self.nodes[node_id] = node
        return node_id

    def own(self, node_id: int, owner: Ownership) -> None:
        """Gives a node other times, owners or modes."""
        self.nodes[node_id] = self.nodes[node_id]._replace(ownership=owner)

    def change(self, node_id: int, change: DataChange, now_ns: int) -> None:
        """Changes a file's bytes."""
        node = self.nodes[node_id]
        assert isinstance(node, FileNode), "bytes are in files"
        self.nodes[node_id] = node.changed(change, now_ns)

    def change_names(self, *steps: tuple[int, str, int | None], now_ns: int) -> None:
        """Changes names atomically; see `NameChange`."""
        change_names(self.nodes, NameChange(self.next_id, steps), now_ns)
        self.next_id += 1

    def clear_away(self, open_ids: Iterable[int]) -> None:
        """Forgets, from time to time, nodes without a name that nobody has open."""
        if len(self.nodes) >= self._cleared_at:
            self.nodes = reachable(self.nodes, [ROOT, *open_ids])
            self._cleared_at = 2 * len(self.nodes) + _CLEARED_AT_LEAST


def _require_short(name: str, path: Path) -> None:
    if len(name) > _NAME_BYTES_MAX // 4 and len(os.fsencode(name)) > _NAME_BYTES_MAX:
        raise system_error(errno.ENAMETOOLONG, path)
