"""Reads the facts that `cordwood doctor` judges; changes nothing, and takes no lock."""

from __future__ import annotations

import ctypes
import errno
import grp
import os
import platform
import pwd
import re
import resource
import socket
import stat
import struct
import subprocess
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from cordwood import __version__
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory, named_partition
from cordwood.cleanup.engine.run_directory import temporary_directory
from cordwood.format.file_names import LOG_SUFFIX, META_PROPERTIES, TIME_INDEX_SUFFIX
from cordwood.format.meta_properties import parse_meta_properties
from cordwood.format.native.form import form_here
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError, EngineError
from cordwood.model.extras import PACKAGES, missing_packages
from cordwood.queries.identity import read_runtime_file
from cordwood.serving.compiled_form import request_path_form
from cordwood.storage.filesystem import OS
from cordwood.surfaces.doctor.facts import (
    Facts,
    Installation,
    Java,
    LogDirectory,
    Machine,
    Port,
    Space,
)

KAFKA_PORT: Final = 9092
HTTP_PORT: Final = 9464
_JAVA_SECONDS_MAX: Final = 20
_VERSION: Final = re.compile(r'version "([^"]+)"')
_PROC: Final = Path("/proc")
_GROUPS: Final = Path("/sys/fs/cgroup")
_LISTENS: Final = "0A"
_TIME_ENTRY: Final = struct.Struct(">qi")
_UNSYNCHRONIZED: Final = 5
#: struct timex of the largest system, with space left.
_TIMEX_BYTES: Final = 512
_LOCK_NAME: Final = ".lock"
_TIME_INDEX: Final = re.compile(r"(\d{20})" + re.escape(TIME_INDEX_SUFFIX), re.ASCII)


def gather(log_dir: Path | None, *, clock: Clock) -> Facts:
    """The facts, as they are now."""
    return Facts(
        java=java(),
        installation=installation(),
        machine=machine(),
        temporary=space(temporary_directory()),
        ports=(
            port(KAFKA_PORT, "Kafka's protocol"),
            port(HTTP_PORT, "metrics and the commands of a running broker"),
        ),
        log_dir=None if log_dir is None else log_directory(log_dir, now_ms=clock.now_ms()),
    )


# ---- the installation


def java() -> Java:
    """The Java that a compaction would use."""
    from cordwood.cleanup.engine.spark.machine import find_java  # noqa: PLC0415  # if asked for

    by = "JAVA_HOME" if os.environ.get("JAVA_HOME") else "PATH"
    try:
        path = find_java()
    except EngineError:
        return Java(path=None, by=by, error=os.environ.get("JAVA_HOME", ""))
    try:
        done = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Java(path=path, by=by, error=str(error))
    said = done.stderr + done.stdout
    found = _VERSION.search(said)
    if found is None:
        return Java(path=path, by=by, error=said.strip()[:200])
    return Java(path=path, by=by, version=found[1])


def installation() -> Installation:
    """The version and forms of Cordwood, and its extras."""
    return Installation(
        version=__version__,
        python=platform.python_version(),
        kernels=form_here(),
        request_path=request_path_form(),
        missing={extra: tuple(missing_packages(extra)) for extra in PACKAGES},
    )


# ---- the machine


def machine() -> Machine:
    """Memory, processors and limits."""
    from cordwood.cleanup.engine.spark.machine import JVM_HEAP  # noqa: PLC0415  # if asked for
    from cordwood.cleanup.engine.spark.session import default_memory_bytes  # noqa: PLC0415
    from cordwood.surfaces.cli.values import parse_size  # noqa: PLC0415

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    return Machine(
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        available_bytes=_available_bytes(),
        cpus=os.cpu_count() or 1,
        heap_bytes=parse_size(JVM_HEAP, option="heap"),
        python_bytes=default_memory_bytes(),
        group_memory_bytes=_group_memory(),
        group_cpus=_group_cpus(),
        open_files_max=None if soft == unlimited else soft,
        open_files_hard=None if hard == unlimited else hard,
        max_map_count=_number(_PROC / "sys/vm/max_map_count"),
        clock_synchronized=_is_clock_synchronized(),
    )


def _text(path: Path) -> str | None:
    """The text of a file of the system, whose size says nothing; None if it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdigit() else None


def _available_bytes() -> int | None:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(_PROC / "meminfo") or "", re.MULTILINE)
    return None if found is None else int(found[1]) * 1024


def _group_files(name: str) -> Iterator[Path]:
    """A file of this process's control group and of those above it, in version 2."""
    found = re.search(r"^0::/(.*)$", _text(_PROC / "self/cgroup") or "", re.MULTILINE)
    parts = () if found is None else Path(found[1]).parts
    for count in range(len(parts), -1, -1):
        yield _GROUPS.joinpath(*parts[:count], name)


def _group_memory() -> int | None:
    version_1 = _GROUPS / "memory/memory.limit_in_bytes"
    limits = [_number(path) for path in (*_group_files("memory.max"), version_1)]
    return min((each for each in limits if each is not None), default=None)


def _group_cpus() -> float | None:
    limits = []
    for path in _group_files("cpu.max"):
        quota, _, period = (_text(path) or "").strip().partition(" ")
        if quota.isdigit() and period.isdigit():
            limits.append(int(quota) / int(period))
    quota_us = _number(_GROUPS / "cpu/cpu.cfs_quota_us")  # of version 1; -1 is none
    period_us = _number(_GROUPS / "cpu/cpu.cfs_period_us")
    if quota_us and period_us:
        limits.append(quota_us / period_us)
    return min(limits, default=None)


def _is_clock_synchronized() -> bool | None:
    """Source: adjtimex(2), whose result is TIME_ERROR where it is not."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _UNSYNCHRONIZED


def space(path: Path) -> Space:
    """A directory, or the nearest one above it that is there, on its file system."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        found = os.statvfs(there)
        size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    except OSError:
        size = free = 0
    kind, options = _mount_of(there)
    return Space(
        path=str(path),
        is_writable=os.access(there, os.W_OK | os.X_OK),
        size_bytes=size,
        free_bytes=free,
        type=kind,
        options=options,
    )


def _mount_of(path: Path) -> tuple[str, tuple[str, ...]]:
    """Type and options of the mount that a path is on. Source: proc_pid_mountinfo(5)."""
    resolved = path.resolve()
    best: tuple[str, str, tuple[str, ...]] = ("", "", ())
    for line in (_text(_PROC / "self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[4])
        if resolved.is_relative_to(point) and len(point) >= len(best[0]):
            options = tuple(dict.fromkeys([*fields[5].split(","), *source[2].split(",")]))
            best = point, source[0], options
    return best[1], best[2]


# ---- ports


def port(number: int, use: str) -> Port:
    """Whether something listens at a port."""
    inodes = list(_listening(number))
    if inodes:
        return Port(number=number, use=use, is_free=False, user=_owner_of(inodes))
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", number))
        except OSError as error:
            return Port(number=number, use=use, is_free=error.errno != errno.EADDRINUSE)
    return Port(number=number, use=use, is_free=True)


def _listening(number: int) -> Iterator[str]:
    """The inodes of sockets that listen at a port. Source: proc_net_tcp(5)."""
    for name in ("tcp", "tcp6"):
        for line in (_text(_PROC / "net" / name) or "").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == number:
                yield fields[9]


def _owner_of(inodes: Sequence[str]) -> str:
    """The process that has one of some sockets open, as `name (pid)`."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in _PROC.glob("[0-9]*"):
        if any(_target(each) in wanted for each in _files_of(process)):
            return f"{process_name(int(process.name))} ({process.name})"
    return ""


def _files_of(process: Path) -> list[Path]:
    try:
        return list((process / "fd").iterdir())
    except OSError:  # it has ended, or is another user's
        return []


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # it was closed meanwhile
        return ""


def process_name(pid: int) -> str:
    """The name of a process, '' if it cannot be seen."""
    return (_text(_PROC / str(pid) / "comm") or "").strip()


# ---- the log directory


def log_directory(path: Path, *, now_ms: int) -> LogDirectory:
    """The facts about a log directory."""
    try:
        found = path.stat()
    except OSError as error:
        return LogDirectory(path=str(path), error=f"{path}: {error.strerror}")
    if not stat.S_ISDIR(found.st_mode):
        return LogDirectory(path=str(path), error=f"{path} is not a directory")
    may_list = os.access(path, os.R_OK | os.X_OK)
    partition = named_partition(path)
    home = path if partition is None else partition.parent
    lock = home / _LOCK_NAME
    facts = LogDirectory(
        path=str(path),
        owner=_user(found.st_uid),
        user=_user(os.geteuid()),
        mode=f"{stat.filemode(found.st_mode)}, group {_group(found.st_gid)}",
        is_listed=may_list,
        is_readable=may_list,
        is_writable=os.access(path, os.W_OK | os.X_OK),
        is_lockable=os.access(lock if lock.exists() else home, os.R_OK | os.W_OK),
        space=space(path),
    )
    return _contents(facts, path, home, now_ms=now_ms) if may_list else facts


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _contents(facts: LogDirectory, path: Path, home: Path, *, now_ms: int) -> LogDirectory:
    """The facts about a directory's files; `home` is its log directory if it is a partition's."""
    node, meta_error = _meta(home)
    holder = None
    with suppress(OSError):
        holder = OS.lock_holder(home)
    topics, settings_error = _described(home)
    facts = replace(
        facts,
        holder=holder,
        holder_name=process_name(holder) if holder else "",
        broker=_broker(home) if holder else "",
        node=node,
        meta_error=meta_error,
        topics=topics,
        settings_error=settings_error,
    )
    try:
        directory = OfflineLogDirectory(path)
        partitions = [each.path for each in directory.partitions()]
    except (CordwoodError, OSError) as error:
        if meta_error:
            return replace(
                facts, partitions=None, segments=None, files=None, is_whole=None, future=None
            )
        return LogDirectory(path=str(path), error=str(error))
    listed = {each: _names(each) for each in partitions}
    names = [(each, name) for each, found in listed.items() for name in found or ()]
    return replace(
        facts,
        partitions=len(partitions),
        segments=sum(name.endswith(LOG_SUFFIX) for _, name in names),
        files=len(names),
        unreadable=tuple(each.name for each, found in listed.items() if found is None),
        is_whole=directory.is_whole,
        future=tuple(_future(names, now_ms)),
    )


def _names(directory: Path) -> list[str] | None:
    """The files of a partition; None if it cannot be listed."""
    try:
        return sorted(OS.names_in(directory))
    except OSError:
        return None


def _meta(path: Path) -> tuple[str, str]:
    """The node that owns the directory, or why it cannot be read; neither if there is no file."""
    file = path / META_PROPERTIES
    try:
        found = parse_meta_properties(OS.read_bytes(file))
    except FileNotFoundError:
        return "", ""
    except (CordwoodError, OSError) as error:
        return "", f"{file}: {error}"
    if found.node_id is None or found.cluster_id is None:
        return "", f"{file}: it names no node or no cluster"
    return f"node {found.node_id} of cluster {found.cluster_id}", ""


def _described(path: Path) -> tuple[int | None, str]:
    """The number of topics in the metadata log here, or why it cannot be read."""
    from cordwood.queries.settings import metadata_topics  # noqa: PLC0415

    try:
        return metadata_topics(path), ""
    except (CordwoodError, OSError) as error:
        return None, str(error)


def _broker(path: Path) -> str:
    try:
        found = read_runtime_file(path)
    except (CordwoodError, OSError):
        return ""
    return "" if found is None else str(found)


def _future(names: Sequence[tuple[Path, str]], now_ms: int) -> Iterator[tuple[str, int]]:
    """Segments whose newest timestamp, by the last entry of the time index, is ahead."""
    for directory, name in names:
        segment = _TIME_INDEX.fullmatch(name)
        if segment is None:
            continue
        with suppress(OSError):
            newest_ms = _newest_ms(directory / name)
            if newest_ms > now_ms:
                yield f"{directory.name} at {int(segment[1])}", newest_ms - now_ms


def _newest_ms(time_index: Path) -> int:
    """The timestamp of the last entry of a time index; 0 without one.

    A running Kafka has its active one at full size: behind its entries are zeros.
    """
    file = OS.open(time_index)
    try:

        def timestamp(place: int) -> int:
            entry = file.read_at(_TIME_ENTRY.size, place * _TIME_ENTRY.size)
            return int(_TIME_ENTRY.unpack(entry)[0]) if len(entry) == _TIME_ENTRY.size else 0

        count = OS.facts_of(time_index).size_bytes // _TIME_ENTRY.size
        entries = range(count)
        used = bisect_left(entries, True, key=lambda place: not timestamp(place))
        return timestamp(used - 1) if used else 0
    finally:
        file.close()
