"""A class data sharing archive of Kafka: with it a broker or a tool starts in a third of the time.

Role: the JVM writes the classes that Kafka loads, parsed and verified, to one file beside the jars,
once for each JVM and set of jars. `quick_start` gives the flags that use it, where the environment
variable `CORDWOOD_KAFKA_QUICK_START` asks for it: the tests do, the benchmarks do not.

Source: the page "Class Data Sharing" of the JDK's guide to the virtual machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cordwood.model.errors import CordwoodError
from support.ports import free_port

ASKED_BY: Final = "CORDWOOD_KAFKA_QUICK_START"
_SECONDS_MAX: Final = 120
_SERVER: Final = "kafka.Kafka"
_STORAGE: Final = "kafka.tools.StorageTool"
_DUMP_LOG: Final = "org.apache.kafka.tools.DumpLogSegments"
#: Tools that ask a broker; the others load hardly a class that these do not.
_ASKING: Final = (
    ("org.apache.kafka.tools.TopicCommand", "--list"),
    ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list"),
)


class ClassArchiveError(CordwoodError):
    """The JVM made no archive; the text says what it printed."""


def quick_start(jars: Path, home: Path, log4j: Path, config_command: str) -> list[str]:
    """Flags with which Kafka starts quickly, and runs a little slower once it is warm; or none.

    Args:
        jars: those that are run; a copy of them elsewhere than in `home` has no archive.
        home: the directory that holds the jars of all tests, and the archive.
        log4j: the configuration of logging for the programs that are run to make an archive.
        config_command: the class of `kafka-configs`, which moved after Kafka 4.3.

    Raises:
        ClassArchiveError: there was no archive yet, and none could be made.
    """
    if not os.environ.get(ASKED_BY) or jars.parent != home:
        return []
    archive = home / f"classes-{_version(jars)}.jsa"
    if not archive.exists():
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _make(archive, jars, log4j, config_command)
    return [f"-XX:SharedArchiveFile={archive}", "-XX:TieredStopAtLevel=1"]


def _version(jars: Path) -> str:
    """The version of an archive: names and times of the jars, and the JVM."""
    java = Path(shutil.which("java") or "java").resolve()
    release = java.parents[1] / "release"
    facts = [str(java), release.read_text() if release.exists() else ""]
    facts += [f"{jar} {jar.stat().st_mtime_ns}" for jar in sorted(jars.glob("*.jar"))]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _make(archive: Path, jars: Path, log4j: Path, config_command: str) -> None:
    """Runs a broker and some tools, notes the classes that they load, and archives those."""
    with tempfile.TemporaryDirectory(prefix="kafka-classes-") as name:
        root = Path(name)
        lists = _classes_loaded(root, ["-cp", f"{jars}/*"], log4j, config_command)
        names = dict.fromkeys(line for each in lists for line in each.read_text().splitlines())
        every = root / "every.lst"
        every.write_text("\n".join(names) + "\n")
        made = root / archive.name
        flags = [f"-XX:SharedClassListFile={every}", f"-XX:SharedArchiveFile={made}"]
        _run(["java", "-Xshare:dump", "-Xlog:cds*=off", *flags, "-cp", f"{jars}/*"])
        shutil.copy(made, archive.with_suffix(".partial"))
    archive.with_suffix(".partial").rename(archive)


def _classes_loaded(
    root: Path, class_path: Sequence[str], log4j: Path, config_command: str
) -> list[Path]:
    """Lists of classes, one for each program that was run."""
    lists: list[Path] = []

    def command(*words: str) -> list[str]:
        lists.append(root / f"{len(lists)}.lst")
        config = f"-Dlog4j2.configurationFile={log4j}"
        flags = [f"-XX:DumpLoadedClassList={lists[-1]}", "-XX:+UseSerialGC", config]
        return ["java", *flags, *class_path, *words]

    ports = [free_port(), free_port()]
    config = root / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=1@127.0.0.1:{ports[1]}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}\n"
        f"log.dirs={root / 'data'}\n"
    )
    _run(command(_STORAGE, "format", "-t", "Y29yZHdvb2QtdGVzdHMtMQ", "-c", str(config)))
    log = root / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command(_SERVER, str(config)), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(server, log, r"Kafka Server started")
        describe = (config_command, "--describe", "--entity-type", "brokers", "--all")
        for tool, *options in (*_ASKING, describe):
            _run(command(tool, "--bootstrap-server", f"127.0.0.1:{ports[0]}", *options))
        server.terminate()
        server.wait(_SECONDS_MAX)
    finally:
        server.kill()
        server.wait()
    logs = ",".join(str(path) for path in (root / "data").glob("*/*.log"))
    _run(command(_DUMP_LOG, "--files", logs, "--cluster-metadata-decoder"))
    return lists


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    if done.returncode:
        raise ClassArchiveError(f"{command[-2:]}: {(done.stdout + done.stderr).strip()[-1500:]}")


def _wait_for(server: subprocess.Popen[bytes], log: Path, pattern: str) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not re.search(pattern, log.read_text(errors="replace")):
        if server.poll() is not None or time.monotonic() > deadline:
            raise ClassArchiveError(f"Kafka did not start: {log.read_text()[-1500:]}")
        time.sleep(0.05)
