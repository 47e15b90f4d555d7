"""The programs of a real Apache Kafka, of each version that Cordwood is compared with.

Role: jars, fetched once from Maven Central, and the commands that run their classes. `kafka_tool`
runs one of Kafka's command line programs.

The jars of a version are found, or put, in `kafka-<version>` below `$CORDWOOD_KAFKA_CACHE`, by
default `~/.cache/cordwood`. Needs Java, and for the first fetch Maven and the files in
`tools/realkafka` of a source checkout. `python -m support.kafka_programs` fetches all.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cordwood.model.errors import CordwoodError
from support.class_archive import quick_start
from support.downloads import DownloadError, copy_dependencies

KAFKA_4_3: Final = "4.3.0"
"""The reference of all bytes, and the version that a test runs where it names none."""
KAFKA_4_4: Final = "4.4.0"
KAFKA_VERSIONS: Final = (KAFKA_4_3, KAFKA_4_4)

RESOURCES: Final = Path(__file__).resolve().parents[2] / "tools" / "realkafka"

_TOOLS: Final = "org.apache.kafka.tools"
_TOOL_CLASSES: Final[Mapping[str, str]] = {
    "server": "kafka.Kafka",
    "storage": "kafka.tools.StorageTool",
    "configs": f"{_TOOLS}.ConfigCommand",
    "topics": f"{_TOOLS}.TopicCommand",
    "console-producer": f"{_TOOLS}.ConsoleProducer",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "dump-log": f"{_TOOLS}.DumpLogSegments",
    "features": f"{_TOOLS}.FeatureCommand",
    "leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "groups": f"{_TOOLS}.GroupsCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "transactions": f"{_TOOLS}.TransactionsCommand",
    "cluster": f"{_TOOLS}.ClusterTool",
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
}
#: Classes that a version has elsewhere.
_CLASSES_OF: Final[Mapping[str, Mapping[str, str]]] = {
    KAFKA_4_3: {"configs": "kafka.admin.ConfigCommand"},
    KAFKA_4_4: {},
}


class KafkaUnavailableError(CordwoodError):
    """Java or Maven is missing, or Maven Central cannot be reached."""


def tool_class(name: str, version: str = KAFKA_4_3) -> str:
    """The Java class of a tool such as `dump-log`; a class stays as it is."""
    return _CLASSES_OF[version].get(name) or _TOOL_CLASSES.get(name, name)


def kafka_home(version: str = KAFKA_4_3) -> Path:
    """The directory that holds, or will hold, the jars of a version in `jars`."""
    cache = os.environ.get("CORDWOOD_KAFKA_CACHE") or Path.home() / ".cache" / "cordwood"
    return Path(cache) / f"kafka-{version}"


def kafka_jars(version: str = KAFKA_4_3) -> Path:
    """The directory of a version's jars, fetched if it is not there yet.

    Callers in other processes wait for one fetch, by a lock file beside the jars.

    Raises:
        KafkaUnavailableError: what is missing, in words.
    """
    if shutil.which("java") is None:
        raise KafkaUnavailableError(
            "a real Kafka needs Java 17 or newer, and `java` is not on PATH"
        )
    home = kafka_home(version)
    jars = home / "jars"
    if _stamp(jars, version).exists():
        return jars
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _stamp(jars, version).exists():
            _fetch(jars, version)
    return jars


def _pom() -> Path:
    pom = tools_resource("pom.xml")
    if not pom.exists():
        raise KafkaUnavailableError(f"{pom} is missing: run from a source checkout of Cordwood")
    return pom


def _stamp(jars: Path, version: str) -> Path:
    digest = hashlib.sha256(version.encode() + b"\0" + _pom().read_bytes())
    return jars / f".complete-{digest.hexdigest()[:16]}"


def _fetch(jars: Path, version: str) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailableError(
            f"`mvn` is not on PATH, and {jars} does not hold Apache Kafka {version} yet"
        )
    partial = jars.with_name("jars.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        copy_dependencies(_pom(), partial, {"kafka.version": version})
    except DownloadError as error:
        raise KafkaUnavailableError(str(error)) from error
    _stamp(partial, version).touch()
    shutil.rmtree(jars, ignore_errors=True)
    partial.rename(jars)


def class_command(
    name: str,
    *,
    jars: Path,
    log4j: Path,
    version: str = KAFKA_4_3,
    heap: str = "1g",
    flags: Sequence[str] = (),
) -> list[str]:
    """The command that runs a tool, or a class, of the jars in a directory."""
    quick = quick_start(
        jars,
        kafka_home(version),
        tools_resource("log4j2-server.xml"),
        tool_class("configs", version),
    )
    java = ["java", f"-Xmx{heap}", *flags, *quick, f"-Dlog4j2.configurationFile={log4j}"]
    return [*java, "-cp", f"{jars}/*", tool_class(name, version)]


def kafka_tool(
    name: str,
    *args: str,
    heap: str = "1g",
    timeout_s: float = 900,
    version: str = KAFKA_4_3,
) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's command line programs, such as `dump-log`, and returns what it printed.

    `name` is that of a tool, as `tool_class` takes it, or a Java class. Arguments may be of any
    length: they are given to Java in a file. The exit code is the caller's to judge.
    """
    flags = ["-XX:+UseSerialGC", "-Dfile.encoding=UTF-8"]
    _, *command = class_command(
        name,
        jars=kafka_jars(version),
        log4j=tools_resource("log4j2-tools.xml"),
        version=version,
        heap=heap,
        flags=flags,
    )
    with tempfile.NamedTemporaryFile("w", prefix="kafka-args-", encoding="utf-8") as arguments:
        for part in [*command, *args]:
            escaped = part.replace("\\", "\\\\").replace('"', '\\"')
            arguments.write(f'"{escaped}"\n')
        arguments.flush()
        return subprocess.run(
            ["java", f"@{arguments.name}"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout_s,
            check=False,
        )


def tools_resource(name: str) -> Path:
    """A file of `tools/realkafka` in a source checkout."""
    return RESOURCES / name


def java_command(program: str, *, heap: str = "1g", version: str = KAFKA_4_3) -> list[str]:
    """The command that runs a class of Kafka's, or a source file that uses them."""
    return class_command(
        program,
        jars=kafka_jars(version),
        log4j=tools_resource("log4j2-tools.xml"),
        version=version,
        heap=heap,
        flags=["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"],
    )


def main() -> None:
    """Fetches the jars of all versions; ends with an error text where one cannot be fetched."""
    try:
        for version in KAFKA_VERSIONS:
            kafka_jars(version)
    except KafkaUnavailableError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
