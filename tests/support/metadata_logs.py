"""The metadata log of a stopped node, as far as a cluster has topics with settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordwood.format.file_names import CLUSTER_METADATA_DIR
from cordwood.format.metadata_records import encode_metadata_record
from cordwood.format.record_batch import Record, build_batch
from support.log_builder import TOPIC_ID

_TOPIC, _BROKER = 2, 4


def write_metadata_log(
    root: Path,
    topic: str,
    settings: Mapping[str, str] | None = None,
    *,
    of_brokers: Mapping[str, str] | None = None,
    level: int = 30,
) -> None:
    """A topic with its own settings, in a cluster at a level of metadata.version."""
    records: list[tuple[str, int, dict[str, Any]]] = [
        ("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": level}),
        ("TopicRecord", 0, {"name": topic, "topicId": TOPIC_ID}),
    ]
    for kind, resource, given in ((_TOPIC, topic, settings), (_BROKER, "", of_brokers)):
        of = {"resourceType": kind, "resourceName": resource}
        for name, value in (given or {}).items():
            records.append(("ConfigRecord", 0, {**of, "name": name, "value": value}))
    directory = root / CLUSTER_METADATA_DIR
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(
        build_batch(
            [
                Record(number, 0, None, encode_metadata_record(*each))
                for number, each in enumerate(records)
            ],
            base_offset=0,
            partition_leader_epoch=1,
        )
    )
