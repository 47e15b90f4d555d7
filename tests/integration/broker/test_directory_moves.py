"""Moves between log directories, and the clients who ask for them."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from cordwood.broker.broker import Broker
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OsFileSystem
from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Wire, request_body, request_frame

ALTER_REPLICA_LOG_DIRS = 34


class SlowToMove(OsFileSystem):
    """Makes no directory for what is on its way until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.may = threading.Event()

    def make_directory(self, path: Path) -> None:
        if path.name.endswith("-future"):
            self.asked.set()
            self.may.wait(120)
        super().make_directory(path)


def test_a_client_that_goes_away_does_not_end_the_move_that_it_asked_for(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    fs = SlowToMove()
    properties = {"log.dirs": ",".join(map(str, directories))}
    with RunningBroker(properties, log_dir=tmp_path, engine=NoEngine, fs=fs) as running:
        with Wire(running.port) as wire:
            asked = {"name": "t", "num_partitions": 1, "replication_factor": 1}
            wire.ask("create_topics", 5, {"timeout_ms": 5000, "topics": [asked]})
        logs = running.broker.replicas.logs
        partition = TopicPartition("t", 0)
        (source,) = [log.log_dir for log in logs.logs() if log.topic_partition == partition]
        (target,) = [each for each in directories if each != source]
        topics = [{"name": "t", "partitions": [0]}]
        fields = {"dirs": [{"path": str(target), "topics": topics}]}
        body = request_body(ALTER_REPLICA_LOG_DIRS, 2, fields)
        with socket.create_connection(("127.0.0.1", running.port), 120) as client:
            client.sendall(request_frame(ALTER_REPLICA_LOG_DIRS, 2, 1, "c", body))
            assert fs.asked.wait(120)

            def hang_up(_: Broker) -> None:
                for each in list(running.node.server.connections):
                    each.close(None)

            running.call(hang_up)
        running.call(lambda _: None)
        fs.may.set()
        poll_until(
            lambda: _is_in(running, partition, target), timeout_s=120, what="the end of the move"
        )


def _is_in(running: RunningBroker, partition: TopicPartition, directory: Path) -> bool:
    def look(broker: Broker) -> bool:
        return broker.replicas.log(partition.topic, partition.partition).log_dir == directory

    return running.call(look)
