"""A real Kafka with tiered storage: its remote storage is a directory, by `LocalTieredStorage`.

That class is of the jar of Kafka's own tests; the metadata of remote segments are in
`__remote_log_metadata`, as of any Kafka with tiered storage.
"""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from support.downloads import DownloadError, copy_dependencies
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_3, KafkaUnavailableError, kafka_home, tools_resource

_CLASS: Final = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
#: That the class makes below the directory of its configuration.
_DIRECTORY: Final = "kafka-tiered-storage"

#: Of a tiered topic: its closed segments are copied at once, and the local ones are then removed.
TIERED: Final[Mapping[str, str]] = {
    "remote.storage.enable": "true",
    "local.retention.ms": "1",
    "retention.ms": "-1",
    "internal.segment.bytes": "16384",
}


def tiered_storage_jars(version: str = KAFKA_4_3) -> Path:
    """The directory with the jar of `LocalTieredStorage`, fetched if it is not there yet.

    Raises:
        KafkaUnavailableError: it cannot be fetched.
    """
    home = kafka_home(version)
    jars = home / "tiered"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(jars.glob("*.jar")):
            pom = tools_resource("tiered-pom.xml")
            try:
                copy_dependencies(pom, jars, {"kafka.version": version})
            except DownloadError as error:
                raise KafkaUnavailableError(str(error)) from error
    return jars


def tiered_properties(remote_dir: Path, version: str = KAFKA_4_3) -> dict[str, str]:
    """The lines of server.properties with which segments go to `remote_dir`.

    The class gives this directory its name.
    """
    assert remote_dir.name == _DIRECTORY
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": _CLASS,
        "remote.log.storage.manager.class.path": f"{tiered_storage_jars(version)}/*",
        "rsm.config.dir": str(remote_dir.parent),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "log.cleaner.enable": "false",
    }


def remote_segments(remote_dir: Path, partition: str) -> list[Path]:
    """The `.log` files of a partition in remote storage, by base offset."""
    return sorted(remote_dir.glob(f"{partition}-*/*.log"))


class TieredKafka(RealKafka):
    """A single-node Kafka whose closed segments go to `remote_dir`."""

    def __init__(self, root: Path, *, version: str = KAFKA_4_3) -> None:
        self.remote_dir = root / "remote" / _DIRECTORY
        properties = tiered_properties(self.remote_dir, version)
        super().__init__(root, properties=properties, version=version)
