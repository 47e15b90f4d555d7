"""Frequent requests of tests, on one connection: topics, records, directories, groups."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from cordwood.format.record_batch import Record, build_batch, iter_batches
from support.wire import NO_UUID, Plain, Wire

_TIMESTAMP_MS = 1_700_000_000_000
_FETCH_BYTES = 1 << 24


def batch_of(*values: bytes, timestamp_ms: int = _TIMESTAMP_MS) -> bytes:
    """A batch of records with these values."""
    records = [Record(n, timestamp_ms, b"k", value) for n, value in enumerate(values)]
    return build_batch(records, base_offset=0)


class WireClient(Wire):
    """A connection with the few requests that most tests need; errors are names."""

    def create(
        self, topic: str, partitions: int = 1, *, name_of_error: bool = False, **configs: Any
    ) -> str:
        """Makes a topic; settings by keyword, with underscores for dots. The error's name."""
        answer = self.ask(
            "create_topics",
            5,
            {
                "timeout_ms": 60_000,
                "topics": [
                    {
                        "name": topic,
                        "num_partitions": partitions,
                        "replication_factor": 1,
                        "configs": [
                            {"name": name.replace("_", "."), "value": str(value)}
                            for name, value in configs.items()
                        ],
                    }
                ],
            },
        )
        error = str(answer["topics"][0]["error_code"])
        assert name_of_error or error == "none", answer
        return error

    def delete(self, topic: str) -> str:
        """Deletes a topic; the error's name."""
        answer = self.ask("delete_topics", 5, {"topic_names": [topic], "timeout_ms": 60_000})
        return str(answer["responses"][0]["error_code"])

    def produce(self, topic: str, records: bytes, partition: int = 0, *, acks: int = -1) -> Plain:
        """The answer for the one partition."""
        answer = self.ask(
            "produce",
            9,
            {
                "acks": acks,
                "timeout_ms": 5000,
                "topic_data": [
                    {"name": topic, "partition_data": [{"index": partition, "records": records}]}
                ],
            },
        )
        found: Plain = answer["responses"][0]["partition_responses"][0]
        return found

    def fetch(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        wait_ms: int = 0,
        isolation_level: int = 0,
    ) -> Plain:
        """The answer for the one partition."""
        wanted = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": _FETCH_BYTES,
        }
        answer = self.ask(
            "fetch",
            11,
            {
                "replica_id": -1,
                "max_wait_ms": wait_ms,
                "min_bytes": 1,
                "max_bytes": _FETCH_BYTES,
                "isolation_level": isolation_level,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": [wanted]}],
            },
        )
        found: Plain = answer["responses"][0]["partitions"][0]
        return found

    def records(self, topic: str, partition: int = 0, offset: int = 0) -> list[Record]:
        """All records from an offset on."""
        found: list[Record] = []
        while True:
            told = self.fetch(topic, partition, offset)
            assert told["error_code"] == "none", told
            if not told["records"]:
                return found
            for _, batch in iter_batches(told["records"]):
                found += [each for each in batch.records() if each.offset >= offset]
            offset = found[-1].offset + 1

    def delete_records(self, topic: str, partition: int, offset: int) -> Plain:
        """The answer for the one partition; -1 is all there is."""
        answer = self.ask(
            "delete_records",
            1,
            {
                "timeout_ms": 5000,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [{"partition_index": partition, "offset": offset}],
                    }
                ],
            },
        )
        found: Plain = answer["topics"][0]["partitions"][0]
        return found

    def partitions(self, topic: str) -> dict[int, Plain]:
        """The partitions of a topic by Metadata."""
        return {each["partition_index"]: each for each in self._metadata(topic)["partitions"]}

    def topic_id(self, topic: str) -> uuid.UUID:
        """The id of a topic by Metadata; `NO_UUID` if it is not there."""
        found: uuid.UUID = self._metadata(topic)["topic_id"]
        return found

    def _metadata(self, topic: str) -> Plain:
        answer = self.ask(
            "metadata",
            12,
            {
                "topics": [{"name": topic, "topic_id": NO_UUID}],
                "allow_auto_topic_creation": False,
            },
        )
        (found,) = answer["topics"]
        return dict(found)

    def directories(self) -> dict[str, Plain]:
        """The answer of DescribeLogDirs, by path; `partitions` are those of all topics."""
        answer = self.ask("describe_log_dirs", 5, {"topics": None})
        return {
            each["log_dir"]: each
            | {
                "partitions": {
                    f"{topic['name']}-{one['partition_index']}": one
                    for topic in each["topics"]
                    for one in topic["partitions"]
                }
            }
            for each in answer["results"]
        }

    def place_of(self, partition: str) -> str:
        """The directory of a partition's log, such as `t-0`."""
        (found,) = [
            path
            for path, each in self.directories().items()
            if partition in each["partitions"]
            and not each["partitions"][partition]["is_future_key"]
        ]
        return found

    def move(self, topic: str, partitions: Sequence[int], directory: object) -> dict[int, str]:
        """Asks for moves to another directory; errors by partition."""
        answer = self.ask(
            "alter_replica_log_dirs",
            2,
            {
                "dirs": [
                    {
                        "path": str(directory),
                        "topics": [{"name": topic, "partitions": list(partitions)}],
                    }
                ]
            },
        )
        return {
            each["partition_index"]: each["error_code"]
            for each in answer["results"][0]["partitions"]
        }

    def commit(self, group: str, topic: str, partition: int, offset: int) -> str:
        """Commits an offset as who is no member; the error's name."""
        answer = self.ask(
            "offset_commit",
            8,
            {
                "group_id": group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": partition,
                                "committed_offset": offset,
                                "committed_leader_epoch": -1,
                            }
                        ],
                    }
                ],
            },
        )
        return str(answer["topics"][0]["partitions"][0]["error_code"])

    def committed(self, group: str, topic: str, partition: int) -> int:
        """A group's offset; -1 for none."""
        answer = self.ask(
            "offset_fetch",
            7,
            {"group_id": group, "topics": [{"name": topic, "partition_indexes": [partition]}]},
        )
        assert answer["error_code"] == "none", answer
        return int(answer["topics"][0]["partitions"][0]["committed_offset"])

    def find_coordinator(self, group: str) -> str:
        """Asks for a group's coordinator, whose topic is made if it is not there; the error."""
        answer = self.ask("find_coordinator", 3, {"key": group, "key_type": 0})
        return str(answer["error_code"])
