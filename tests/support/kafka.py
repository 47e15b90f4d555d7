"""A real Apache Kafka for tests, run on loopback.

Role: the other side of every comparison: a broker and controller in one process, of the version and
on the directories of the caller's choice.
"""

from __future__ import annotations

import base64
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import uuid4

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from cordwood.model.errors import CordwoodError
from support.kafka_programs import (
    KAFKA_4_3,
    RESOURCES,
    KafkaUnavailableError,
    class_command,
    kafka_jars,
    kafka_tool,
)
from support.ports import free_port, listens

T = TypeVar("T")

CLUSTER_ID: Final = "Y29yZHdvb2QtdGVzdHMtMQ"
_START_SECONDS_MAX: Final = 300
_STOP_SECONDS_MAX: Final = 300
_QUIET_SECONDS_MAX: Final = 600
_POLL_SECONDS: Final = 0.1
_START_POLL_SECONDS: Final = 0.05


class KafkaRunError(CordwoodError):
    """A real Kafka that did not start, stop or settle in the time it was given."""


def poll_until(
    observe: Callable[[], T | None],
    *,
    timeout_s: float,
    what: str,
    interval_s: float = _POLL_SECONDS,
) -> T:
    """The first result of `observe` that is neither None nor False.

    Raises:
        KafkaRunError: `timeout_s` passed before that; `what` says what was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        seen = observe()
        if seen is not None and seen is not False:
            return seen
        if time.monotonic() > deadline:
            raise KafkaRunError(f"waited {timeout_s:.0f} s in vain: {what}")
        time.sleep(interval_s)


_BASE_PROPERTIES: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "auto.create.topics.enable": "false",
}
_CLEANER_OFF: Final[Mapping[str, str]] = {
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": "86400000",
    "log.initial.task.delay.ms": "86400000",
}
_CLEANER_ON: Final[Mapping[str, str]] = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}

_WORK = re.compile(
    r"Beginning cleaning of log|Deleting segment|Incremented log start offset"
    r"|Rolled new log segment|Rolling the active segment|Truncating to offset"
)
_LOOKED_AT = re.compile(r"Finding range of cleanable offsets for log=(\S+?)\. Last clean offset")
_RETENTION_PASS = re.compile(r"Log cleanup completed\. 0 files deleted")
_STARTED = re.compile(r"Kafka Server started")
_PASSES_WITHOUT_WORK: Final = 3

_ERROR: Final = re.compile(r"\] (?:ERROR|FATAL) ")
_AT_CONTROLLER: Final = re.compile(r"\[ControllerApis .* Unexpected error handling request")
_ASSIGNED: Final = re.compile(r"\[ControllerApis .*\(apiKey=ASSIGN_REPLICAS_TO_DIRS,")
_SLOW: Final = re.compile(r"EventPerformanceMonitor|CONTROLLER_REGISTRATION")
_TRIED_AGAIN: Final = re.compile(r"\[AssignmentsManager .* STALE_BROKER_EPOCH\. Retrying\.")


def cleaner_is_quiet(log: str) -> bool:
    """True when the broker whose log since its start is `log` has found nothing more to clean.

    That is: since the broker was started, and since the last line that says something was cleaned
    or deleted, each compacted log was looked at three times and retention passed three times.
    """
    last_work = -1
    looked_at: dict[str, int] = {}
    retention_passes = 0
    for number, line in enumerate(log.splitlines()):
        if _STARTED.search(line) or _WORK.search(line):
            last_work = number
            looked_at = dict.fromkeys(looked_at, 0)
            retention_passes = 0
        elif seen := _LOOKED_AT.search(line):
            looked_at[seen[1]] = looked_at.get(seen[1], 0) + 1
        elif _RETENTION_PASS.search(line):
            retention_passes += 1
    return (
        last_work >= 0
        and _STARTED.search(log) is not None
        and retention_passes >= _PASSES_WITHOUT_WORK
        and all(times >= _PASSES_WITHOUT_WORK for times in looked_at.values())
    )


class RealKafka:
    """A single-node Apache Kafka on loopback: a context manager that leaves nothing running.

    `log_dirs` may hold data already: they are formatted only where `meta.properties` is missing, at
    the metadata version of `release`, such as "4.3", or at the version's own. `properties` are
    lines of server.properties on top of small defaults. With `user`, Kafka runs as that user (which
    takes root), and what is formatted here is given to it, once.
    Entering the context does not start the broker: `start` does, as often as wanted.
    """

    def __init__(
        self,
        root: Path,
        *,
        log_dirs: Sequence[Path] | None = None,
        properties: Mapping[str, str] | None = None,
        user: str | None = None,
        version: str = KAFKA_4_3,
        release: str | None = None,
    ) -> None:
        self.root = root
        self.version = version
        self.release = release
        self.log_dirs = list(log_dirs) if log_dirs is not None else [root / "data"]
        self.properties = dict(properties or {})
        self.user = user
        self.port = free_port()
        self._controller_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_position = 0
        root.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill()

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def config_file(self) -> Path:
        """The server.properties of the last start."""
        return self.root / "server.properties"

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True between `start` and the end of the process."""
        return self._process is not None and self._process.poll() is None

    @property
    def server_log(self) -> str:
        """All that the broker has logged, over all its starts."""
        path = self.root / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def log_since_start(self) -> str:
        """The lines that the broker has logged since its last start."""
        path = self.root / "server.log"
        if not path.exists():
            return ""
        with path.open("rb") as log:
            log.seek(self._log_position)
            return log.read().decode(errors="replace")

    @property
    def errors_since_start(self) -> list[str]:
        """The errors that the broker has logged since it was last started.

        Left out are those that depend on the speed of the machine: a broker that says in which
        directories its partitions are while it registers is refused for its epoch, and tries again;
        a controller that is not active yet refuses a request; and a controller complains of an
        event, or of its registration, that took long.
        """
        lines = [*self.log_since_start.splitlines(), ""]
        return [
            line
            for line, following in pairwise(lines)
            if _ERROR.search(line)
            and not (_SLOW.search(line) or _TRIED_AGAIN.search(line))
            and not (_ASSIGNED.search(line) and "StaleBrokerEpochException" in following)
            and not (_AT_CONTROLLER.search(line) and "NotControllerException" in following)
        ]

    def client(self, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A librdkafka configuration for this broker, quiet about brokers that come and go."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **(settings or {})}

    def admin(self) -> AdminClient:
        """A new admin client of this broker."""
        return AdminClient(self.client())

    def start(self, properties: Mapping[str, str] | None = None) -> AdminClient:
        """Starts the broker and waits until each partition has a leader.

        `properties` hold for this start only, above those given to the constructor.

        Raises:
            KafkaRunError: the process ended, or did not answer in time.
        """
        self.launch(properties)
        return poll_until(
            self.serving,
            timeout_s=_START_SECONDS_MAX,
            what="Kafka starts",
            interval_s=_START_POLL_SECONDS,
        )

    def launch(self, properties: Mapping[str, str] | None = None) -> None:
        """Starts without waiting."""
        assert not self.is_running, "started twice"
        jars, resources = self.programs()
        self._write_config(properties or {})
        if any(not (d / "meta.properties").exists() for d in self.log_dirs):
            self._format()
        log_path = self.root / "server.log"
        self._log_position = log_path.stat().st_size if log_path.exists() else 0
        command = class_command(
            "server",
            jars=jars,
            log4j=resources / "log4j2-server.xml",
            version=self.version,
            heap="768m",
            flags=["-XX:+UseSerialGC"],
        )
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._launcher(), *command, str(self.config_file)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.root,
            )

    def stop(self) -> None:
        """Stops the broker cleanly (SIGTERM)."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise KafkaRunError("Kafka did not stop on SIGTERM") from error
        self._process = None

    def kill(self) -> None:
        """Ends the broker as a power cut would (SIGKILL)."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._process.wait(_STOP_SECONDS_MAX)
        self._process = None

    def start_cleaning(self, properties: Mapping[str, str] | None = None) -> AdminClient:
        """Starts the broker with its cleaner and its retention on, both in short intervals."""
        return self.start({**_CLEANER_ON, **(properties or {})})

    def start_without_cleaning(self, properties: Mapping[str, str] | None = None) -> AdminClient:
        """Starts the broker with neither cleaner nor retention."""
        return self.start({**_CLEANER_OFF, **(properties or {})})

    def wait_until_clean(
        self,
        *,
        timeout_s: float = _QUIET_SECONDS_MAX,
        also: Callable[[], bool] | None = None,
    ) -> None:
        """Waits until the running broker has cleaned and deleted all that it ever will.

        `also` is a further condition, such as a line of a checkpoint file.

        Raises:
            KafkaRunError: there was still work after `timeout_s`.
        """

        def quiet() -> bool:
            if not self.is_running:
                raise KafkaRunError(f"Kafka ended while cleaning: {self._last_words()}")
            return cleaner_is_quiet(self.log_since_start) and (also is None or also())

        poll_until(quiet, timeout_s=timeout_s, what="Kafka's cleaner comes to rest", interval_s=0.5)

    def run_cleaner_until(
        self,
        condition: Callable[[], bool] | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_s: float = _QUIET_SECONDS_MAX,
    ) -> None:
        """Starts the stopped broker, lets it clean until nothing is left to do, and stops it."""
        self.start_cleaning(properties)
        self.wait_until_clean(timeout_s=timeout_s, also=condition)
        self.stop()

    def checkpoint(self, name: str, log_dir: Path | None = None) -> dict[str, int]:
        """The offsets in a log directory's checkpoint file by `<topic>-<partition>`."""
        path = (log_dir or self.log_dirs[0]) / name
        return read_checkpoint(path)

    def copy_data(self, target: Path) -> list[Path]:
        """Copies the log directories of the stopped broker below `target`, and returns the copies.

        A single directory becomes `target` itself, several become `target/<name>`. Files on their
        way out (`*.deleted`) and the lock are left behind; modification times are kept.
        """
        assert not self.is_running, "stop Kafka first"
        if len(self.log_dirs) == 1:
            copy_log_dir(self.log_dirs[0], target)
            return [target]
        for log_dir in self.log_dirs:
            copy_log_dir(log_dir, target / log_dir.name)
        return [target / log_dir.name for log_dir in self.log_dirs]

    def programs(self) -> tuple[Path, Path]:
        """The directory of Kafka's jars and that of log4j's configuration; may be overridden."""
        jars = kafka_jars(self.version)
        if self.user is None:
            return jars, RESOURCES
        # Another user may not be able to look into this one's home directory.
        own = self.root / "kafka"
        if not own.exists():
            shutil.copytree(jars, own / "jars")
            for config in RESOURCES.glob("*.xml"):
                shutil.copy(config, own)
        return own / "jars", own

    def _launcher(self) -> list[str]:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            if self.user is not None:
                raise KafkaUnavailableError("`setpriv` is needed to run Kafka as another user")
            return []
        identity = []
        if self.user is not None:
            identity = [f"--reuid={self.user}", f"--regid={_group_of(self.user)}", "--clear-groups"]
        return [setpriv, *identity, "--pdeathsig=KILL", "--"]

    def roles(self) -> dict[str, str]:
        """The properties of what the node is in its cluster; may be overridden."""
        broker, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{self._controller_port}"
        node_id = self.properties.get("node.id", _BASE_PROPERTIES["node.id"])
        return {
            "controller.quorum.voters": f"{node_id}@{controller}",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
        }

    def _write_config(self, properties: Mapping[str, str]) -> None:
        lines = {
            **_BASE_PROPERTIES,
            **self.roles(),
            "log.dirs": ",".join(str(d) for d in self.log_dirs),
            **self.properties,
            **properties,
        }
        self.config_file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def format_flags(self) -> list[str]:
        """The flags of `kafka-storage format` beside the cluster's id; may be overridden."""
        return []

    def _format_arguments(self) -> list[str]:
        level = [] if self.release is None else ["--release-version", self.release]
        return [*self.format_flags(), *level]

    def _format(self) -> None:
        for log_dir in self.log_dirs:
            log_dir.mkdir(parents=True, exist_ok=True)
        kind = self._kind_of_format()
        known = None if kind is None else _FORMATTED.get(kind)
        if known is None:
            self._run_format()
            if kind is not None:
                _FORMATTED[kind] = [_files_of(log_dir) for log_dir in self.log_dirs]
        else:
            for log_dir, files in zip(self.log_dirs, known, strict=True):
                _format_alike(log_dir, files)
        if self.user is not None:
            for top in (self.root, *self.log_dirs):
                for path in (top, *top.rglob("*")):
                    shutil.chown(path, self.user, _group_of(self.user))

    def _run_format(self) -> None:
        config = ["-c", str(self.config_file), "--ignore-formatted"]
        done = kafka_tool(
            "storage",
            "format",
            "-t",
            CLUSTER_ID,
            *config,
            *self._format_arguments(),
            version=self.version,
        )
        if done.returncode != 0:
            raise KafkaRunError(f"kafka-storage format failed: {done.stdout}{done.stderr}")

    def _kind_of_format(self) -> _Format | None:
        """The nodes whose directories are formatted as this one's; None for this node alone.

        A controller of a quorum by kraft.version 1 writes the voters' addresses, too.
        """
        flags = self._format_arguments()
        is_new = not any(any(log_dir.iterdir()) for log_dir in self.log_dirs)
        chosen = {**_BASE_PROPERTIES, **self.roles(), **self.properties}
        if not is_new or "--standalone" in flags or chosen.keys() & _FORMAT_PROPERTIES:
            return None
        return _Format(
            version=self.version,
            node_id=chosen["node.id"],
            roles=chosen["process.roles"],
            flags=tuple(flags),
            log_dirs=len(self.log_dirs),
        )

    def serving(self) -> AdminClient | None:
        """A client once Kafka serves; None while it does not. May be overridden.

        Raises:
            KafkaRunError: Kafka has ended.
        """
        if (answered := self.asked()) is None:
            return None
        admin, metadata = answered
        partitions = [p for topic in metadata.topics.values() for p in topic.partitions.values()]
        if not metadata.brokers or any(p.leader < 0 for p in partitions):
            return None
        return admin if _are_led(admin, metadata) else None

    def asked(self) -> tuple[AdminClient, ClusterMetadata] | None:
        """A client and the metadata that it gets; None while Kafka does not answer.

        Raises:
            KafkaRunError: Kafka has ended.
        """
        self.require_running()
        if not listens(self.port):
            return None
        admin = self.admin()
        try:
            return admin, admin.list_topics(timeout=2)
        except KafkaException:
            return None

    def require_running(self) -> None:
        """Checks a Kafka that starts.

        Raises:
            KafkaRunError: it has ended.
        """
        if not self.is_running:
            raise KafkaRunError(f"Kafka ended while starting: {self._last_words()}")

    def _last_words(self) -> str:
        return self.log_since_start[-3000:]


class _Format(NamedTuple):
    """A kind of node, as far as `kafka-storage format` writes other files for it."""

    version: str
    node_id: str
    roles: str
    flags: tuple[str, ...]
    log_dirs: int


#: What `kafka-storage format` has written in this process: contents by name, of each directory.
_FORMATTED: Final[dict[_Format, list[dict[str, bytes]]]] = {}
#: A node with one of these is formatted in its own way.
_FORMAT_PROPERTIES: Final = frozenset(
    {"metadata.log.dir", "unstable.api.versions.enable", "unstable.feature.versions.enable"}
)
_DIRECTORY_ID: Final = re.compile(rb"^directory\.id=.*$", re.MULTILINE)


def _files_of(log_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(log_dir)): path.read_bytes()
        for path in log_dir.rglob("*")
        if path.is_file()
    }


def _format_alike(log_dir: Path, files: Mapping[str, bytes]) -> None:
    """Formats a directory as another was, but for its id."""
    for name, content in files.items():
        own = _DIRECTORY_ID.sub(b"directory.id=" + _directory_id(), content)
        (log_dir / name).parent.mkdir(exist_ok=True)
        (log_dir / name).write_bytes(own if name == "meta.properties" else content)


def _directory_id() -> bytes:
    """A random id as Kafka writes it: none begins with a dash."""
    while (text := base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=")).startswith(b"-"):
        pass
    return text


def _are_led(admin: AdminClient, metadata: ClusterMetadata) -> bool:
    """True when each partition is served: a broker shows its leaders before it leads."""
    asked = {
        TopicPartition(name, number): OffsetSpec.latest()
        for name, topic in metadata.topics.items()
        for number in topic.partitions
    }
    try:
        for found in admin.list_offsets(asked).values() if asked else ():
            found.result()
    except KafkaException:
        return False
    return True


def _group_of(user: str) -> str:
    import grp  # noqa: PLC0415  # neither module exists outside POSIX
    import pwd  # noqa: PLC0415

    return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name


def read_checkpoint(path: Path) -> dict[str, int]:
    """The offsets in a checkpoint file of Kafka's by `<topic>-<partition>`; empty if missing."""
    if not path.exists():
        return {}
    entries = (line.split(" ") for line in path.read_text().splitlines()[2:] if line)
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in entries}


def copy_log_dir(source: Path, target: Path) -> Path:
    """Copies a log directory without its lock and without files that are on their way out."""
    left_behind = shutil.ignore_patterns("*.deleted", ".lock")
    shutil.copytree(source, target, ignore=left_behind, symlinks=True)
    return target


@contextmanager
def running(kafka: RealKafka, properties: Mapping[str, str] | None = None) -> Iterator[AdminClient]:
    """A started broker without cleaning, stopped cleanly at the end of a block that succeeds."""
    admin = kafka.start_without_cleaning(properties)
    try:
        yield admin
    except BaseException:
        if kafka.is_running:
            kafka.kill()
        raise
    kafka.stop()
