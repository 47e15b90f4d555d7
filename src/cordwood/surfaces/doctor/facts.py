"""Facts about the machine, the installation and a log directory, for `cordwood doctor`.

`gather` reads it once; `checks` judges it, and asks nothing else. None stands for what cannot be
known here, such as on another system than Linux.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """The Java that Spark would be started with; `version` is None where it does not run."""

    path: str | None
    by: str = "PATH"
    version: str | None = None
    error: str = ""

    @property
    def major(self) -> int | None:
        """17 of 17.0.12, 8 of 1.8.0_402; None if it is unknown."""
        parts = (self.version or "").replace("-", ".").replace("_", ".").split(".")
        numbers = [int(each) for each in parts if each.isdigit()]
        if not numbers:
            return None
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Installed packages; `missing` has the packages that each extra lacks."""

    version: str
    python: str
    kernels: str
    request_path: str
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Memory in bytes, processors, and limits of this process.

    `group_memory_bytes` and `group_cpus` are the limits of the control group. `heap` is the largest
    heap of Spark's virtual machine, as `1g`; `python_bytes` is what its Python processes get.
    """

    memory_bytes: int
    available_bytes: int | None
    cpus: int
    heap_bytes: int
    python_bytes: int
    group_memory_bytes: int | None = None
    group_cpus: float | None = None
    open_files_max: int | None = None
    open_files_hard: int | None = None
    max_map_count: int | None = None
    clock_synchronized: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A directory on its file system; `options` are those of the mount."""

    path: str
    is_writable: bool
    size_bytes: int
    free_bytes: int
    type: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port of this machine; `user` is what listens there, '' if that cannot be seen."""

    number: int
    use: str
    is_free: bool
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """A log directory; with an `error`, why it is none, there is nothing else.

    `owner` and `user` are names of users; `holder` is the process that holds its lock, 0 one of
    another machine, `holder_name` what that is, `broker` the running Cordwood broker, if it is one.
    `future` are segments whose newest timestamp is ahead of the clock, with how far, in ms;
    `settings_error` says why the metadata log cannot be read. `unreadable` are partitions that
    cannot be listed.

    Without `is_listed` nothing is known of what is in it. Numbers, `is_whole` and `future` are None
    where `meta_error` keeps them from being known.
    """

    path: str
    error: str = ""
    owner: str = ""
    user: str = ""
    mode: str = ""
    is_listed: bool = True
    is_readable: bool = True
    is_writable: bool = True
    is_lockable: bool = True
    holder: int | None = None
    holder_name: str = ""
    broker: str = ""
    space: Space | None = None
    partitions: int | None = 0
    segments: int | None = 0
    files: int | None = 0
    unreadable: tuple[str, ...] = ()
    is_whole: bool | None = True
    node: str = ""
    meta_error: str = ""
    topics: int | None = None
    settings_error: str = ""
    future: tuple[tuple[str, int], ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts; `log_dir` is None if no directory was named."""

    java: Java
    installation: Installation
    machine: Machine
    temporary: Space
    ports: tuple[Port, ...]
    log_dir: LogDirectory | None = None
