"""The verdicts of `cordwood doctor`: pure functions of facts."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cordwood.model.extras import LAKE, NATIVE, SIGN, SPARK, TABLES
from cordwood.surfaces.cli.values import counted, format_bytes
from cordwood.surfaces.doctor.facts import (
    Facts,
    Installation,
    Java,
    LogDirectory,
    Machine,
    Port,
    Space,
)

JAVA_LEAST: Final = 17
_GIB: Final = 1 << 30
#: What a temporary directory should have: Spark spills tables of keys there.
_TEMPORARY_BYTES: Final = _GIB
#: Files that a process has open beside segments: sockets, libraries, checkpoints.
_OTHER_FILES: Final = 1024
_FREE_SHARE: Final = 0.05
_JAVA_REMEDY: Final = "apt-get install openjdk-17-jre-headless, or set JAVA_HOME to a Java 17"
_NETWORK_TYPES: Final = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")
_MEMORY_TYPES: Final = ("tmpfs", "ramfs")


class Verdict(enum.StrEnum):
    """`PROBLEM` hinders; a `WARNING` may later, or hinders what not everybody needs."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of a check: its subject, the state found, and a remedy, '' if none is needed."""

    verdict: Verdict
    subject: str
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings; `ok` if none is a problem, and the subjects of those that are."""

    ok: bool
    problems: Sequence[str]
    findings: Sequence[Finding]


def diagnosis(findings: Sequence[Finding]) -> Diagnosis:
    """The diagnosis that findings make."""
    problems = [each.subject for each in findings if each.verdict is Verdict.PROBLEM]
    return Diagnosis(ok=not problems, problems=problems, findings=findings)


def _ok(subject: str, found: str) -> Finding:
    return Finding(verdict=Verdict.OK, subject=subject, found=found)


def _warning(subject: str, found: str, remedy: str) -> Finding:
    return Finding(verdict=Verdict.WARNING, subject=subject, found=found, remedy=remedy)


def _problem(subject: str, found: str, remedy: str) -> Finding:
    return Finding(verdict=Verdict.PROBLEM, subject=subject, found=found, remedy=remedy)


def examine(facts: Facts) -> list[Finding]:
    """All verdicts, in the order in which they are shown."""
    directory = facts.log_dir
    has_spark = not facts.installation.missing.get(SPARK)
    found = [
        *check_installation(facts.installation),
        check_java(facts.java, has_spark=has_spark),
        check_memory(facts.machine, has_spark=has_spark),
        check_processors(facts.machine),
        check_open_files(facts.machine, directory),
        *check_maps(facts.machine, directory),
        check_temporary(facts.temporary),
        check_clock(facts.machine),
        *(check_port(each, directory) for each in facts.ports),
    ]
    return found if directory is None else [*found, *check_log_dir(directory)]


# ---- the installation


def check_installation(installation: Installation) -> Iterator[Finding]:
    """The version with its forms, and what each extra would add."""
    yield _ok(
        "Cordwood",
        f"{installation.version} on Python {installation.python}; kernels: "
        f"{installation.kernels}; request path: {installation.request_path}",
    )
    for extra, use in (
        (NATIVE, "verify, erase, estimates, and questions about records"),
        (SPARK, "compaction, by clean and by a broker"),
        (SIGN, "signed reports of erase"),
        (LAKE, "object storage, values in Avro"),
        (TABLES, "topics as Delta tables"),
    ):
        missing = installation.missing.get(extra, ())
        if missing:
            yield _warning(
                f"extra {extra}",
                f"not installed ({', '.join(missing)}): {use} need it",
                f"pip install 'cordwood[{extra}]'",
            )
        else:
            yield _ok(f"extra {extra}", f"installed: {use}")


def check_java(java: Java, *, has_spark: bool) -> Finding:
    """Checks Java, which compaction needs; without its extra nobody has missed Java yet."""
    bad = _problem if has_spark else _warning
    if java.path is None:
        text = f"none on the PATH: compaction needs Java {JAVA_LEAST} or newer; all else does not"
        if java.by == "JAVA_HOME":
            text = f"JAVA_HOME has no bin/java: {java.error}"
        return bad("Java", text, _JAVA_REMEDY)
    where = f"{java.path} (by {java.by})"
    if java.major is None:
        return bad("Java", f"{where} does not say its version: {java.error}", _JAVA_REMEDY)
    if java.major < JAVA_LEAST:
        text = f"{java.version} at {where}: compaction needs {JAVA_LEAST} or newer"
        return bad("Java", text, _JAVA_REMEDY)
    return _ok("Java", f"{java.version} at {where}")


# ---- the machine


def check_memory(machine: Machine, *, has_spark: bool) -> Finding:
    """Whether Spark's virtual machine and its Python processes fit.

    Without the extra for it nobody has missed the memory yet.
    """
    limit = machine.memory_bytes
    text = f"{format_bytes(limit)}"
    if machine.group_memory_bytes is not None and machine.group_memory_bytes < limit:
        limit = machine.group_memory_bytes
        text = (
            f"{format_bytes(limit)} by the control group, of {format_bytes(machine.memory_bytes)}"
        )
    available = machine.available_bytes
    if available is not None:
        text += f", {format_bytes(available)} available"
    needed = machine.heap_bytes + machine.python_bytes
    parts = format_bytes(machine.heap_bytes), format_bytes(machine.python_bytes)
    text += (
        f"; a compaction takes up to {format_bytes(needed)} (heap {parts[0]}, Python {parts[1]})"
    )
    if limit < needed:
        bad = _problem if has_spark else _warning
        return bad(
            "memory",
            text,
            "give it more, compact on another machine (--master), or clean with --retention-only",
        )
    if available is not None and available < needed:
        return _warning("memory", text, "clean with --memory 512M, or stop what takes the memory")
    return _ok("memory", text)


def check_processors(machine: Machine) -> Finding:
    """Compares the number of processors with the control group's limit."""
    if machine.group_cpus is None or machine.group_cpus >= machine.cpus:
        return _ok("processors", f"{machine.cpus}")
    text = f"{machine.group_cpus:g} by the control group, of {machine.cpus}"
    if machine.group_cpus < 1:
        return _warning(
            "processors",
            f"{text}: a broker waits for its share",
            "set the limit of the container to 1 or more (docker run --cpus 2)",
        )
    return _ok("processors", text)


def check_open_files(machine: Machine, directory: LogDirectory | None) -> Finding:
    """The limit of open files, against those of the directory."""
    limit = machine.open_files_max
    if limit is None:
        return _ok("open files", "no limit is known here")
    files = None if directory is None or not directory.is_listed else directory.files
    needed = (files or 0) + _OTHER_FILES
    text = f"at most {limit} (ulimit -n)"
    if directory is not None and files is not None:
        text += f"; {directory.path} has {counted(files, 'file')}"
    if limit >= needed:
        return _ok("open files", text)
    wanted = max(65_536, needed)
    hard = machine.open_files_hard
    remedy = f"ulimit -n {wanted} before the start, or LimitNOFILE={wanted} in the unit of systemd"
    if hard is not None and hard < wanted:
        remedy += f" (its hard limit is {hard}: root raises it in /etc/security/limits.conf)"
    return _warning(
        "open files",
        f"{text}: a Kafka broker keeps its segments open and fails; Cordwood opens them again",
        remedy,
    )


def check_maps(machine: Machine, directory: LogDirectory | None) -> Iterator[Finding]:
    """vm.max_map_count, which a Kafka needs for the indexes of the directory: two for a segment."""
    if machine.max_map_count is None or directory is None or directory.error:
        return
    if directory.segments is None or not directory.is_listed:
        return
    needed = 2 * directory.segments
    text = f"vm.max_map_count is {machine.max_map_count}; a Kafka maps {needed} indexes here"
    if needed < machine.max_map_count * 9 // 10:
        yield _ok("memory maps", text)
        return
    yield _warning(
        "memory maps", f"{text}. Cordwood maps none", f"sysctl -w vm.max_map_count={4 * needed}"
    )


def check_temporary(space: Space) -> Finding:
    """The directory for temporary files, where Spark spills."""
    text = f"{space.path}: {format_bytes(space.free_bytes)} free"
    if not space.is_writable:
        return _problem(
            "temporary files", f"{space.path} cannot be written", "set TMPDIR to one that can"
        )
    if space.free_bytes < _TEMPORARY_BYTES:
        return _warning(
            "temporary files",
            f"{text}; Spark keeps what does not fit into memory there",
            "set TMPDIR to a directory on a larger disk",
        )
    if space.type in _MEMORY_TYPES:
        text += f" ({space.type}: it takes memory)"
    return _ok("temporary files", text)


def check_clock(machine: Machine) -> Finding:
    """Checks whether the clock is synchronized: retention by time is by the clock."""
    if machine.clock_synchronized is None:
        return _ok("clock", "whether it is synchronized cannot be seen here")
    if machine.clock_synchronized:
        return _ok("clock", "synchronized")
    return _warning(
        "clock",
        "not synchronized: retention goes by it, and by the timestamps of clients",
        "timedatectl set-ntp true, or install chrony",
    )


def check_port(port: Port, directory: LogDirectory | None) -> Finding:
    """A port that `cordwood serve` takes by default."""
    subject = f"port {port.number}"
    if port.is_free:
        return _ok(subject, f"free for {port.use}")
    user = port.user or "a process that only root sees"
    option = "--port" if port.number == 9092 else "--http-port"
    if directory is not None and directory.holder and f"({directory.holder})" in port.user:
        return _ok(subject, f"used by the broker of {directory.path}, {user}")
    return _warning(subject, f"in use by {user}", f"cordwood serve {option} 0 takes a free one")


# ---- the log directory


def check_log_dir(directory: LogDirectory) -> Iterator[Finding]:
    """The directory, its disk, and what is in it."""
    if directory.error:
        yield _problem(
            "log directory",
            directory.error,
            "name an entry of the broker's log.dirs, as in its server.properties",
        )
        return
    yield check_permissions(directory)
    if directory.is_listed:
        yield check_use(directory)
    if directory.space is not None:
        yield check_disk(directory.space)
    if not directory.is_listed:
        return
    yield check_meta(directory)
    yield check_settings(directory)
    yield from check_stop(directory)
    yield from check_future(directory)


def check_permissions(directory: LogDirectory) -> Finding:
    """Whether this user may read, change and lock it."""
    text = f"{directory.path}: "
    if directory.is_listed and directory.partitions is not None:
        text += f"{counted(directory.partitions, 'partition')}, "
        text += f"{counted(directory.segments or 0, 'segment')}, "
    text += f"owner {directory.owner} ({directory.mode})"
    lacks = [
        name
        for name, may in (
            ("read", directory.is_readable),
            ("write", directory.is_writable),
            ("lock", directory.is_lockable),
        )
        if not may
    ]
    if lacks:
        what = f"{', '.join(lacks)} it"
    elif directory.unreadable:
        first, *others = directory.unreadable
        what = f"read {1 + len(others)} of the partitions, such as {first}"
    else:
        return _ok("log directory", text)
    return _problem(
        "log directory",
        f"{text}; {directory.user} cannot {what}",
        f"sudo -u {directory.owner} cordwood doctor {shlex.quote(directory.path)}",
    )


def check_use(directory: LogDirectory) -> Finding:
    """Whether a broker runs on it."""
    if directory.holder is None:
        return _ok("lock", "free: no broker runs on it")
    if directory.broker:
        return _ok("lock", f"held by a running broker, {directory.broker}")
    name = f"process {directory.holder}" if directory.holder else "a process of another machine"
    if directory.holder_name:
        name += f", {directory.holder_name}"
    path = shlex.quote(directory.path)
    return _warning(
        "lock",
        f"in use by {name}: a Kafka, a broker that is starting, or a cleaning",
        f"stop it before a cleaning; cordwood clean {path} --dry-run looks meanwhile",
    )


def check_disk(space: Space) -> Finding:
    """The file system of the log directory."""
    share = space.free_bytes / space.size_bytes if space.size_bytes else 0.0
    text = (
        f"{format_bytes(space.free_bytes)} of {format_bytes(space.size_bytes)} free ({share:.0%})"
    )
    if space.type:
        text += f", {space.type} ({','.join(space.options)})"
    path = shlex.quote(space.path)
    if "ro" in space.options:
        return _problem(
            "disk", f"{text}: mounted read-only", "find the disk's error in dmesg, then remount it"
        )
    clean = f"cordwood clean {path} --retention-only --dry-run"
    if not space.free_bytes:
        return _problem("disk", f"{text}: full", f"{clean} says what a cleaning frees at once")
    if share < _FREE_SHARE:
        return _warning("disk", f"{text}: nearly full", f"{clean} says what is expired")
    if space.type in _NETWORK_TYPES:
        return _warning(
            "disk",
            f"{text}: locks and renames of a network file system are those of its server",
            "put log.dirs on a local disk (ext4 or xfs)",
        )
    if space.type in _MEMORY_TYPES:
        return _warning("disk", f"{text}: lost at a restart", "put log.dirs on a disk")
    return _ok("disk", text)


def check_meta(directory: LogDirectory) -> Finding:
    """meta.properties, which says whose the directory is."""
    if directory.meta_error:
        return _problem(
            "meta.properties",
            directory.meta_error,
            "put the file back from another log directory of the broker, with its own directory.id",
        )
    if not directory.node:
        return _warning(
            "meta.properties",
            "there is none: a copy of partitions, or a directory that was never formatted",
            "cordwood clean takes it as cleanly stopped; a broker formats an empty directory",
        )
    return _ok("meta.properties", directory.node)


def check_settings(directory: LogDirectory) -> Finding:
    """The metadata log, from which the settings of topics come."""
    if directory.settings_error:
        return _problem(
            "topic settings",
            directory.settings_error,
            "name another replica of the metadata log with --metadata-dir, or use --config-file",
        )
    if directory.topics is None:
        return _warning(
            "topic settings",
            "no metadata log here: a cleaning skips topics that nothing describes",
            "name it with --metadata-dir, or the settings with --server-properties and --set",
        )
    return _ok("topic settings", f"of {counted(directory.topics, 'topic')}, from the metadata log")


def check_stop(directory: LogDirectory) -> Iterator[Finding]:
    """Whether the broker stopped in order, if that is known."""
    if directory.holder is not None:
        yield _ok("last stop", "the broker runs")
    elif directory.is_whole:
        yield _ok("last stop", "clean")
    elif directory.is_whole is not None:
        yield _warning(
            "last stop",
            "unclean: what was not flushed is checked at the next start; a cleaning leaves it "
            "alone",
            f"cordwood verify {shlex.quote(directory.path)}",
        )


def check_future(directory: LogDirectory) -> Iterator[Finding]:
    """Checks for timestamps ahead of the clock, which keep their segments until then."""
    if directory.future is None:
        return
    if not directory.future:
        indexed = "" if directory.holder is None else ", of those that are indexed"
        yield _ok("timestamps", f"none is ahead of the clock{indexed}")
        return
    name, ahead_ms = max(directory.future, key=lambda each: each[1])
    count = len(directory.future)
    yield _warning(
        "timestamps",
        f"{count} segments have some of the future, {name} the furthest, by {ahead_ms} ms: "
        "retention by time counts from there",
        f"cordwood explain {shlex.quote(directory.path)}",
    )
