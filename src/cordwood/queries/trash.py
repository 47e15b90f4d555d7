"""The trash, of a stopped broker or of running ones: its entries, and answers to changes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.brokers import Asked
from cordwood.storage.trash_contents import (
    TrashContents,
    TrashedSegments,
    TrashedTopic,
    TrashEntry,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """A deleted topic that is there again.

    `offsets` counts the committed offsets that are valid again; None if they could not be written
    yet. `hold` is the id of the hold that was added for it.
    """

    restored: TrashedTopic
    offsets: int | None
    hold: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredSegments:
    """Removals that were undone, or would be; `refused` has the reason by partition."""

    dry_run: bool
    restored: Sequence[TrashedSegments]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptiedTrash:
    """Entries that were deleted for good, or would be."""

    dry_run: bool
    deleted: Sequence[TrashEntry]


def of_topics(contents: TrashContents, glob: str) -> TrashContents:
    """The entries of topics with such names."""
    return replace(
        contents,
        removals=[each for each in contents.removals if fnmatchcase(each.topic_name, glob)],
        unknown=[
            path
            for path in contents.unknown
            if fnmatchcase(TopicPartition.parse(Path(path).parent.name).topic, glob)
        ],
    )


def merged(asked: Sequence[Asked[TrashContents]]) -> TrashContents:
    """The entries of the trashes of brokers; with several each names its broker."""
    if len(asked) == 1:
        return asked[0].answer
    entries: list[TrashEntry] = []
    for each in asked:
        node_id = each.broker.node_id
        entries += [replace(entry, node_id=node_id) for entry in each.answer.removals]
    return TrashContents(
        removals=sorted(entries, key=lambda entry: entry.at_ms),
        unknown=[path for each in asked for path in each.answer.unknown],
    )
