"""The trashes of several brokers as one answer, and the entries of some topics."""

from __future__ import annotations

from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.brokers import Asked
from cordwood.queries.identity import NodeIdentity
from cordwood.queries.trash import merged, of_topics
from cordwood.storage.trash_contents import TrashContents, TrashedSegments, TrashedTopic

SEGMENTS = TrashedSegments(
    partition="orders-0",
    at_ms=20,
    expires_ms=None,
    why="retention",
    topic_id=None,
    base_offset=0,
    end_offset=4,
    segments=(0, 2),
    bytes=256,
)
TOPIC = TrashedTopic(
    topic="clicks",
    at_ms=10,
    expires_ms=30,
    why="topic",
    topic_id="MkU3OEVBNTcwNTJENDM2Qk",
    settings={},
    partitions=(),
    groups=("readers",),
    bytes=7,
)


def asked(node_id: int, contents: TrashContents) -> Asked[TrashContents]:
    identity = NodeIdentity(node_id=node_id, cluster_id="c", pid=1, log_dirs=(), http_url=None)
    return Asked(identity, contents)


def test_of_several_brokers_each_entry_names_its_broker_and_the_oldest_is_first() -> None:
    first = TrashContents(directory="/a", removals=(SEGMENTS,), unknown=("/a/orders-0/x",))
    second = TrashContents(directory="/b", removals=(TOPIC,), unknown=())
    found = merged([asked(1, first), asked(2, second)])
    assert [(each.topic_name, each.node_id) for each in found.removals] == [
        ("clicks", 2),
        ("orders", 1),
    ]
    assert (found.directory, found.unknown) == (None, ["/a/orders-0/x"])
    assert merged([asked(1, first)]) == first


def test_only_the_entries_of_topics_with_a_name_are_left() -> None:
    path = f"/a/{TopicPartition('orders', 0)}/x"
    contents = TrashContents(directory="/a", removals=(TOPIC, SEGMENTS), unknown=(path,))
    assert of_topics(contents, "orders") == TrashContents(
        directory="/a", removals=[SEGMENTS], unknown=[path]
    )
    assert of_topics(contents, "c*") == TrashContents(directory="/a", removals=[TOPIC], unknown=[])
