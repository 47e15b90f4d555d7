"""A real Kafka on this machine, whose brokers join a cluster."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.model.errors import ConfigError
from cordwood.storage.filesystem import OS, FileSystem

VERSION: Final = "4.3"
HOME_VARIABLE: Final = "KAFKA_HOME"
_HEAP_VARIABLE: Final = "KAFKA_HEAP_OPTS"
_HEAP: Final = "-Xmx512m"
#: A distribution has its jars in `libs`; a directory that Maven has filled, in `jars`.
_JAR_DIRECTORIES: Final = ("libs", "jars")
_CLIENTS_JAR = re.compile(r"kafka-clients-(\d+\.\d+)[\d.]*\.jar")
_LOGGING: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR" shutdownHook="disable">
  <Appenders>
    <Console name="STDOUT" target="SYSTEM_OUT">
      <PatternLayout pattern="[%d] %p %m (%c)%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="STDOUT"/></Root>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaInstallation:
    """Java, and the directory of Kafka's jars."""

    java: str
    jars: Path

    @classmethod
    def find(cls, home: Path | None, environment: Mapping[str, str]) -> KafkaInstallation:
        """The installation in `home`, or in the directory that the environment names.

        Raises:
            ConfigError: there is none, it is of another version, or Java is missing.
        """
        named = home or (
            Path(environment[HOME_VARIABLE]) if environment.get(HOME_VARIABLE) else None
        )
        if named is None:
            raise ConfigError(
                f"brokers of Kafka need an installation of Kafka {VERSION}: name its directory "
                f"with --kafka-home or {HOME_VARIABLE}"
            )
        for name in _JAR_DIRECTORIES:
            found = _version_in(named / name)
            if found is None:
                continue
            if found != VERSION:
                raise ConfigError(f"{named} is Kafka {found}: expected Kafka {VERSION}")
            return cls(java=_java(environment), jars=named / name)
        raise ConfigError(
            f"{named} is not an installation of Kafka: there is no kafka-clients-{VERSION}.*.jar "
            f"in {' or '.join(_JAR_DIRECTORIES)}"
        )

    def command(self, properties: Path, environment: Mapping[str, str]) -> list[str]:
        """The command that runs a node; `write_logging` must have been called for its directory."""
        heap = shlex.split(environment.get(_HEAP_VARIABLE, "")) or [_HEAP]
        logging = _logging_file(properties.parent)
        return [
            *(self.java, *heap, "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={logging}"),
            *("-cp", f"{self.jars}/*", "kafka.Kafka", str(properties)),
        ]


def write_logging(directory: Path, *, fs: FileSystem = OS) -> None:
    """Writes a configuration with which a node logs to standard output."""
    fs.write_file(_logging_file(directory), _LOGGING.encode())


def _logging_file(directory: Path) -> Path:
    return directory / "log4j2.xml"


def _version_in(jars: Path) -> str | None:
    """The version of the Kafka whose jars these are; None if there are none."""
    names = OS.names_in(jars) if OS.is_directory(jars) else []
    found = [match[1] for name in names if (match := _CLIENTS_JAR.fullmatch(name))]
    return found[0] if found else None


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    own = Path(home, "bin", "java") if home else None
    if own is not None and os.access(own, os.X_OK):
        return str(own)
    found = shutil.which("java")
    if found is None:
        raise ConfigError("brokers of Kafka need Java 17 or newer, and `java` is not on PATH")
    return found
