"""Log directories and whether they are formatted: the answers of `cordwood storage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cordwood.model.documents import CamelCase


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomUuid:
    """A random id, in Kafka's Base64."""

    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageInfo:
    """Log directories that are there, the first meta.properties of them, and what is wrong."""

    directories: Sequence[str]
    metadata: Mapping[str, str]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFeatures:
    """The level of each feature with which a cluster of a release begins."""

    release: str
    features: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureNeeds:
    """The levels of other features that a level of a feature needs, at least."""

    feature: str
    level: int
    needs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedStorage(CamelCase):
    """The directories of a node that were formatted, with the levels of a release's features."""

    cluster_id: str
    node_id: int
    formatted: Sequence[str]
    features: Mapping[str, int]
    release: str
