"""Unusual directories and arguments of `cordwood clean`, with the exit code and last line of each.

Each case builds its directories below a new directory. All of them run without Java: retention
only, or refused before a session starts. `tools/clean_matrix.py` runs each in a process of its own
and prints the table; the tests run them inside the test process.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from cordwood.format.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    segment_file_name,
)
from support.clean_case import EXPIRE, NOBODY, Case, Prepared, log_dir, log_of

CASES: list[Case] = []


def _case(
    name: str, exit_code: int, says: str = ""
) -> Callable[[Callable[[Path], Prepared]], Callable[[Path], Prepared]]:
    def add(prepare: Callable[[Path], Prepared]) -> Callable[[Path], Prepared]:
        CASES.append(Case(name=name, prepare=prepare, exit_code=exit_code, says=says))
        return prepare

    return add


# ---- directories in use


@_case("a link to a partition of a directory in use", 3, "Failed to acquire lock on file .lock")
def _(top: Path) -> Prepared:
    live, outer = log_dir(top / "live", "x-0"), log_dir(top / "outer", "orders-0")
    (outer / "x-0").symlink_to(live / "x-0")
    return Prepared(
        arguments=[outer, *EXPIRE], in_use=[live], untouched=[live / "x-0", outer / "orders-0"]
    )


@_case("a partition of a directory in use", 3, "Failed to acquire lock on file .lock")
def _(top: Path) -> Prepared:
    live = log_dir(top / "live", "x-0")
    return Prepared(arguments=[live / "x-0", *EXPIRE], in_use=[live], untouched=[live / "x-0"])


@_case("LOG_DIR is a link to a partition of a directory in use", 3, "Failed to acquire lock")
def _(top: Path) -> Prepared:
    live = log_dir(top / "live", "x-0")
    (top / "x-0").symlink_to(live / "x-0")
    return Prepared(arguments=[top / "x-0", *EXPIRE], in_use=[live], untouched=[live / "x-0"])


@_case("LOG_DIR is a link in a directory in use to a partition elsewhere", 3, "Failed to acquire")
def _(top: Path) -> Prepared:
    live = log_dir(top / "live", "y-0")
    log_of("x-0").write(top / "disk" / "x-0")
    (live / "x-0").symlink_to(top / "disk" / "x-0")
    return Prepared(
        arguments=[live / "x-0", *EXPIRE], in_use=[live], untouched=[top / "disk" / "x-0"]
    )


@_case("a link to a partition of a stopped log directory", 1, "is a link into the log directory")
def _(top: Path) -> Prepared:
    other, outer = log_dir(top / "other", "x-0"), log_dir(top / "outer", "orders-0")
    (outer / "x-0").symlink_to(other / "x-0")
    return Prepared(
        arguments=[outer, *EXPIRE], untouched=[other / "x-0"], cleaned=[outer / "orders-0"]
    )


@_case("a link to a partition outside any log directory", 0, "2 cleaned")
def _(top: Path) -> Prepared:
    outer = log_dir(top / "outer", "orders-0")
    log_of("x-0").write(top / "disk" / "volume")
    (outer / "x-0").symlink_to(top / "disk" / "volume")
    return Prepared(arguments=[outer, *EXPIRE], cleaned=[outer / "orders-0", outer / "x-0"])


@_case("a partition whose files another process writes to, without a lock", 3, "open for writing")
def _(top: Path) -> Prepared:
    disk = top / "disk" / "x-0"
    log_of("x-0").write(disk)
    return Prepared(
        arguments=[disk, *EXPIRE],
        open_files=[disk / segment_file_name(4, ".log")],
        untouched=[disk],
    )


@_case("hard links to the segments of a running broker", 3, "open for writing")
def _(top: Path) -> Prepared:
    live = log_dir(top / "live", "x-0")
    shutil.copytree(live, top / "copy", copy_function=os.link)
    return Prepared(
        arguments=[top / "copy", *EXPIRE],
        in_use=[live],
        open_files=[live / "x-0" / segment_file_name(4, ".log")],
        untouched=[live / "x-0", top / "copy" / "x-0"],
    )


@_case("segment files that are links", 0, "1 cleaned")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    disk = top / "disk"
    disk.mkdir()
    for path in sorted((root / "x-0").glob("*.log")):
        path.rename(disk / path.name)
        path.symlink_to(disk / path.name)
    return Prepared(arguments=[root, *EXPIRE], untouched=[disk], cleaned=[root / "x-0"])


# ---- a directory more than once


@_case("the same directory twice", 0, "1 cleaned")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    return Prepared(arguments=[root, root, *EXPIRE], cleaned=[root / "x-0"])


@_case("the same directory by a link, and by a path with ..", 0, "1 cleaned")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    (top / "link").symlink_to(root)
    other = root / "x-0" / ".." / ".." / "logs"
    return Prepared(arguments=[root, top / "link", other, *EXPIRE], cleaned=[root / "x-0"])


@_case("a directory and its own partition", 0, "2 cleaned")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0", "y-0")
    return Prepared(
        arguments=[root / "x-0", root, root / "x-0", *EXPIRE],
        cleaned=[root / "x-0", root / "y-0"],
    )


@_case("two partitions of one directory", 0, "2 cleaned")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0", "y-0", "z-0")
    return Prepared(
        arguments=[root / "x-0", root / "y-0", root / "x-0", *EXPIRE],
        untouched=[root / "z-0"],
        cleaned=[root / "x-0", root / "y-0"],
    )


@_case("a log directory inside another", 2, "is not in the form of topic-partition")
def _(top: Path) -> Prepared:
    outer = log_dir(top / "logs", "x-0")
    inner = log_dir(outer / "inner", "y-0")
    return Prepared(arguments=[outer, inner, *EXPIRE], untouched=[outer / "x-0", inner / "y-0"])


@_case("a directory.id that is no UUID", 0, "1 cleaned")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    text = "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=garbage\n"
    (root / META_PROPERTIES).write_text(text)
    return Prepared(arguments=[root, *EXPIRE], cleaned=[root / "x-0"])


@_case("a directory marked as no Kafka marks it", 2, "topic-partition.uniqueId-delete (if marked")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0", "y-0")
    (root / "y-0").rename(root / "y-0-delete")  # without the unique id
    return Prepared(arguments=[root, *EXPIRE], untouched=[root / "x-0", root / "y-0-delete"])


@_case("one directory under two partitions' names", 1, "are the same directory")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0", "y-0")
    (root / "a-0").symlink_to(root / "x-0")
    return Prepared(arguments=[root, *EXPIRE], untouched=[root / "x-0"], cleaned=[root / "y-0"])


@_case("a partition in two directories", 1, "Duplicate log directories found")
def _(top: Path) -> Prepared:
    one, two = log_dir(top / "one", "x-0"), log_dir(top / "two", "x-0", "y-0")
    return Prepared(arguments=[one, two, *EXPIRE], untouched=[two / "x-0"], cleaned=[two / "y-0"])


# ---- --trash


def _trash_case(name: str, exit_code: int, says: str, where: Callable[[Path], Path]) -> None:
    @_case(f"--trash {name}", exit_code, says)
    def _(top: Path) -> Prepared:
        root = log_dir(top / "logs-0", "x-0")
        trash = where(root)
        return Prepared(
            arguments=[root, "--trash", trash, *EXPIRE],
            untouched=[root] if exit_code else [],
            cleaned=[] if exit_code else [root / "x-0"],
        )


def _linked(root: Path) -> Path:
    link = root.parent / "link"
    link.symlink_to(root)
    return link / "trash"


def _other_log_dir(root: Path) -> Path:
    return log_dir(root.parent / "other", "y-0") / "trash"


def _file(root: Path) -> Path:
    path = root.parent / "file"
    path.touch()
    return path


_INSIDE = "lies in the log directory"
_trash_case("elsewhere, made for it", 0, "1 cleaned", lambda root: root.parent / "new" / "trash")
_trash_case("is the log directory", 2, _INSIDE, lambda root: root)
_trash_case("in the log directory", 2, _INSIDE, lambda root: root / "trash")
_trash_case("in a partition", 2, _INSIDE, lambda root: root / "x-0" / "trash")
_trash_case("in the log directory, by a link", 2, _INSIDE, _linked)
_trash_case("in another log directory", 2, _INSIDE, _other_log_dir)
_trash_case("above a log directory with a partition's name", 2, "--trash", lambda r: r.parent)
_trash_case("that is a file", 2, "--trash", _file)
_trash_case("below a file", 2, "--trash", lambda root: _file(root) / "trash")
_trash_case("where nothing can be made", 2, "--trash", lambda root: Path("/proc/trash"))


@_case("--trash that cannot be written to", 2, "--trash")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    (top / "trash").mkdir()
    _hand_over(root)
    return Prepared(
        arguments=[root, "--trash", top / "trash", *EXPIRE], untouched=[root], as_nobody=True
    )


def _hand_over(root: Path) -> None:
    if os.geteuid() == 0:
        for path in [root, *root.rglob("*")]:
            os.lchown(path, NOBODY, NOBODY)


# ---- partitions that cannot be read, each beside one that can


def _bad_case(
    name: str,
    says: str,
    damage: Callable[[Path], object],
    *,
    as_nobody: bool = False,
) -> None:
    @_case(name, 1, says)
    def _(top: Path) -> Prepared:
        root = log_dir(top / "logs", "bad-0", "good-0")
        if as_nobody:
            _hand_over(root)
        damage(root / "bad-0")
        return Prepared(
            arguments=[root, *EXPIRE],
            untouched=[root / "bad-0"] if os.path.lexists(root / "bad-0") else [],
            cleaned=[root / "good-0"],
            as_nobody=as_nobody,
        )


def _segment(bad: Path, base: int, suffix: str = ".log") -> Path:
    return bad / segment_file_name(base, suffix)


def _replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


def _socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    try:  # a socket's path may have 107 bytes at most
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def _flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def _flip_first_offset(bad: Path, base: int) -> None:
    _flip(_segment(bad, base), 0, 6)
    _segment(bad, base, ".index").unlink()


_NOT_REGULAR = "not a regular file"
_bad_case("an offset out of range, no index", "offset", lambda bad: _flip_first_offset(bad, 2))
_bad_case(
    "an offset out of range in the active segment", "offset", lambda b: _flip_first_offset(b, 4)
)
_bad_case(
    "an offset out of range in the active segment, with an index",
    "offset",
    lambda bad: _flip(_segment(bad, 4), 0, 6),
)
_bad_case("a FIFO as a segment", _NOT_REGULAR, lambda b: _replaced(_segment(b, 0), os.mkfifo))
_bad_case(
    "a FIFO as the active segment", _NOT_REGULAR, lambda b: _replaced(_segment(b, 4), os.mkfifo)
)
_bad_case(
    "a FIFO as an index", _NOT_REGULAR, lambda b: _replaced(_segment(b, 2, ".index"), os.mkfifo)
)
_bad_case(
    "a FIFO as a time index",
    _NOT_REGULAR,
    lambda b: _replaced(_segment(b, 2, ".timeindex"), os.mkfifo),
)
_bad_case(
    "a FIFO as a transaction index",
    _NOT_REGULAR,
    lambda b: _replaced(_segment(b, 2, ".txnindex"), os.mkfifo),
)
_bad_case(
    "a FIFO as a producer snapshot",
    _NOT_REGULAR,
    lambda b: _replaced(_segment(b, 6, ".snapshot"), os.mkfifo),
)
_bad_case(
    "a FIFO as leader-epoch-checkpoint",
    _NOT_REGULAR,
    lambda b: _replaced(b / LEADER_EPOCH_CHECKPOINT, os.mkfifo),
)
_bad_case(
    "a FIFO as the journal of a compaction",
    _NOT_REGULAR,
    lambda b: _replaced(b / "cordwood.round", os.mkfifo),
)
_bad_case(
    "a directory as a segment", "Is a directory", lambda b: _replaced(_segment(b, 2), Path.mkdir)
)
_bad_case(
    "a directory as an index",
    "Is a directory",
    lambda b: _replaced(_segment(b, 2, ".index"), Path.mkdir),
)
_bad_case(
    "a directory as leader-epoch-checkpoint",
    "Is a directory",
    lambda b: _replaced(b / LEADER_EPOCH_CHECKPOINT, Path.mkdir),
)
_bad_case("a socket as a segment", _NOT_REGULAR, lambda b: _replaced(_segment(b, 2), _socket))
_bad_case(
    "a link to a device as a segment",
    _NOT_REGULAR,
    lambda b: _replaced(_segment(b, 2), lambda path: path.symlink_to("/dev/zero")),
)
_bad_case(
    "a segment that is a loop of links",
    "Too many levels of symbolic links",
    lambda b: _replaced(_segment(b, 2), lambda path: path.symlink_to(path.name)),
)
_bad_case(
    "a leader-epoch-checkpoint that cannot be parsed",
    "leader-epoch-checkpoint",
    lambda b: (b / LEADER_EPOCH_CHECKPOINT).write_text("junk"),
)
_bad_case(
    "a file whose name has no offset",
    "does not begin with an offset",
    lambda b: (b / "junk.log").touch(),
)
_bad_case(
    "a journal of a compaction that names no group",
    "cordwood.round",
    lambda b: (b / "cordwood.round").write_text('{}\n{"group": 9, "token": "t"}\n'),
)
_bad_case(
    "a directory that cannot be entered", "Permission denied", lambda b: b.chmod(0), as_nobody=True
)
_bad_case(
    "a segment that cannot be read",
    "Permission denied",
    lambda b: _segment(b, 4).chmod(0),
    as_nobody=True,
)
_bad_case(
    "a directory that cannot be written to",
    "Permission denied",
    lambda b: b.chmod(0o500),
    as_nobody=True,
)


def _loop(bad: Path) -> None:
    shutil.rmtree(bad)
    bad.symlink_to(bad.name)


def _dangling(bad: Path) -> None:
    shutil.rmtree(bad)
    bad.symlink_to(bad.parent / "nowhere")


_bad_case("a partition that is a loop of links", "bad-0", _loop)
_bad_case("a partition that is a link to nowhere", "bad-0", _dangling)


@_case("a FIFO as a checkpoint of one of two log directories", 1, _NOT_REGULAR)
def _(top: Path) -> Prepared:
    bad, good = log_dir(top / "bad", "x-0"), log_dir(top / "good", "y-0")
    _replaced(bad / CLEANER_OFFSET_CHECKPOINT, os.mkfifo)
    return Prepared(arguments=[bad, good, *EXPIRE], untouched=[bad / "x-0"], cleaned=[good / "y-0"])


@_case("a FIFO as meta.properties", 2, _NOT_REGULAR)
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    _replaced(root / META_PROPERTIES, os.mkfifo)
    return Prepared(arguments=[root, *EXPIRE], untouched=[root / "x-0"])


@_case("a directory whose name is no UTF-8", 2, "is not in the form of topic-partition")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    os.mkdir(os.fsencode(root) + b"/\xff\xfe-0")
    return Prepared(arguments=[root, *EXPIRE], untouched=[root / "x-0"])


@_case("a partition with a file whose name is no UTF-8", 0, "1 cleaned")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    os.close(os.open(os.fsencode(root) + b"/x-0/\xff\xfe", os.O_CREAT | os.O_WRONLY))
    return Prepared(arguments=[root, *EXPIRE], cleaned=[root / "x-0"])


@_case("a file name that is too long", 2, "File name too long")
def _(top: Path) -> Prepared:
    return Prepared(arguments=[top / ("n" * 300), *EXPIRE])


@_case("an empty segment, and a sparse one of 1 TiB", 0, "1 cleaned")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    _segment(root / "x-0", 2).write_bytes(b"")
    with _segment(root / "x-0", 0).open("r+b") as file:
        file.truncate(1 << 40)
    return Prepared(arguments=[root, *EXPIRE], cleaned=[root / "x-0"])


# ---- errors of reading batches name the file and the position in it


def _position_case(name: str, says: str, position: int, data: bytes, suffix_gone: str) -> None:
    @_case(name, 1, says)
    def _(top: Path) -> Prepared:
        root = log_dir(top / "logs", "bad-0", "good-0")
        path = _segment(root / "bad-0", 2)
        good = path.read_bytes()
        bad = bytearray(good)
        bad[position : position + len(data)] = data
        path.write_bytes(good + struct.pack(">q", 4) + bytes(bad[8:]))
        _segment(root / "bad-0", 2, suffix_gone).unlink()
        return Prepared(
            arguments=[root, *EXPIRE], untouched=[root / "bad-0"], cleaned=[root / "good-0"]
        )


_position_case(
    "a second batch less than its header",
    "00002.log: record batch at offset 4 takes 32 bytes, less than its header at byte 128",
    8,
    b"\0\0\0\x14",
    ".index",
)
_position_case(
    "a second batch of magic 7",
    "00002.log: record batch at offset 4 has magic 7 at byte 128",
    16,
    b"\x07",
    ".index",
)
_position_case("a second batch of length 3", "at byte 128", 8, b"\0\0\0\x03", ".index")


# ---- arguments


def _argument_case(says: str, *arguments: str, exit_code: int = 2, cleaned: bool = False) -> None:
    @_case(
        " ".join(arg if len(arg) < 40 else f"{arg[:12]}...({len(arg)})" for arg in arguments)
        or '""',
        exit_code,
        says,
    )
    def _(top: Path) -> Prepared:
        root = log_dir(top / "logs", "x-0")
        return Prepared(
            arguments=[root, *EXPIRE, *arguments],
            untouched=[] if cleaned else [root / "x-0"],
            cleaned=[root / "x-0"] if cleaned else [],
        )


_argument_case("--throttle 0", "--throttle", "0")
_argument_case("--throttle 0.4", "--throttle", "0.4")
_argument_case("--throttle -1", "--throttle", "-1")
_argument_case("--throttle 5X", "--throttle", "5X")
_argument_case("--throttle", "--throttle", "")
_argument_case("--throttle 9999999T", "--throttle", "9999999T")
_argument_case("--now 9223372036854775808", "--now", "9223372036854775808")
_argument_case("--now 253402300800000", "--now", "253402300800000")
_argument_case("--now -5", "--now", "-5")
_argument_case("--now 1969", "--now", "1969-12-31")
_argument_case("--now", "--now", "9" * 5000)
_argument_case("--now", "--now", "")
_argument_case("--memory 0", "--memory", "0")
_argument_case("--memory 10M", "--memory", "10M")
_argument_case("--memory", "--memory", "")
_argument_case("--memory", "--memory", "9" * 400)
_argument_case("--max-extra-bytes 0", "--max-extra-bytes", "0")
_argument_case("--max-extra-bytes", "--max-extra-bytes", "")
_argument_case("--trash", "--trash", "")
_argument_case("--topic", "--topic", "")
_argument_case("--metadata-dir", "--metadata-dir", "")
_argument_case("--config-file", "--config-file", "")
_argument_case("--server-properties", "--server-properties", "")
_argument_case("--master", "--master", "")
_argument_case("the path is empty", "")
_argument_case("matches --topic nope; there is ", "--topic", "nope")
_argument_case("no partition of topic nope", "--set", "nope:retention.ms=1")
_argument_case(
    "matches --topic nope; there is ",
    "--topic",
    "nope",
    "--topic",
    "x",
    exit_code=0,
    cleaned=True,
)
_argument_case(
    "no partition of topic nope",
    "--set",
    "nope:retention.ms=1",
    "--set",
    "x:retention.ms=172800000",
    exit_code=0,
    cleaned=True,
)


@_case("--config-file with a topic that is not there", 2, "no partition of topic nope")
def _(top: Path) -> Prepared:
    root = log_dir(top / "logs", "x-0")
    file = top / "settings.json"
    file.write_text('{"topics": {"nope": {"retention.ms": 1}}}')
    return Prepared(arguments=[root, *EXPIRE, "--config-file", file], untouched=[root / "x-0"])
