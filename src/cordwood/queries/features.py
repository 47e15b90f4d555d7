"""The levels of a cluster's features: the answers of `cordwood features`."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.model.documents import CamelCase


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedFeature(CamelCase):
    """A feature: the levels that a node supports, and the finalized one, 0 if there is none."""

    feature: str
    supported_min: int
    supported_max: int
    finalized: int
    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatedFeature:
    """A feature whose level was to be set, and why it was not."""

    feature: str
    level: int
    error: str | None
