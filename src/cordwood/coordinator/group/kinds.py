"""The kinds of groups that there are.

A new kind is a package with a subclass of `Group` and one of `GroupKind`, and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cordwood.coordinator.group.classic.kind import ClassicKind
from cordwood.coordinator.group.consumer.kind import ConsumerKind
from cordwood.coordinator.group.kind import GroupKind
from cordwood.coordinator.group.unserved import ShareKind, StreamsKind

KINDS: Final[tuple[type[GroupKind], ...]] = (ClassicKind, ConsumerKind, ShareKind, StreamsKind)
KIND_OF_RECORD: Final[Mapping[int, type[GroupKind]]] = {
    record_type: kind for kind in KINDS for record_type in kind.record_types
}

assert len(KIND_OF_RECORD) == sum(len(kind.record_types) for kind in KINDS), "a type of two kinds"
assert len({kind.name for kind in KINDS}) == len(KINDS), "two kinds have one name"
