"""Search for an installation of Kafka, and the error where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordwood.model.errors import ConfigError
from cordwood.surfaces.local_cluster.kafka_installation import KafkaInstallation, write_logging


def installation(home: Path, version: str = "4.3.0", directory: str = "libs") -> Path:
    """A directory that looks like one, with a Java of its own."""
    (home / directory).mkdir(parents=True)
    (home / directory / f"kafka-clients-{version}.jar").touch()
    java = home / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    return home


@pytest.mark.parametrize("directory", ["libs", "jars"])
def test_it_is_found_where_the_option_or_the_environment_says(
    tmp_path: Path, directory: str
) -> None:
    home = installation(tmp_path, directory=directory)
    environment = {"JAVA_HOME": str(home / "java")}
    found = KafkaInstallation.find(home, environment)
    assert found.jars == home / directory
    assert found.java == str(home / "java" / "bin" / "java")
    assert KafkaInstallation.find(None, environment | {"KAFKA_HOME": str(home)}) == found


def test_without_a_name_the_error_says_how_to_give_one() -> None:
    with pytest.raises(ConfigError, match="with --kafka-home or KAFKA_HOME"):
        KafkaInstallation.find(None, {})


def test_a_directory_without_kafka_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no kafka-clients-4\.3"):
        KafkaInstallation.find(tmp_path, {})


def test_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is Kafka 3\.9: expected Kafka 4\.3"):
        KafkaInstallation.find(installation(tmp_path, "3.9.1"), {})


def test_a_machine_without_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="`java` is not on PATH"):
        KafkaInstallation.find(installation(tmp_path), {})


def test_the_command_has_the_heap_of_the_environment(tmp_path: Path) -> None:
    found = KafkaInstallation.find(installation(tmp_path), {"JAVA_HOME": str(tmp_path / "java")})
    properties = tmp_path / "node" / "server.properties"
    properties.parent.mkdir()
    write_logging(properties.parent)
    command = found.command(properties, {"KAFKA_HEAP_OPTS": "-Xmx1g -Xms1g"})
    assert command[1:3] == ["-Xmx1g", "-Xms1g"]
    assert "-Xmx512m" in found.command(properties, os.environ | {"KAFKA_HEAP_OPTS": ""})
    logging = next(each for each in command if each.startswith("-Dlog4j2"))
    assert Path(logging.partition("=")[2]).exists()
    assert command[-2:] == ["kafka.Kafka", str(properties)]
