"""The update that a loader of the metadata log gives to its publishers.

Source: org.apache.kafka.image.publisher.MetadataPublisher, loader.LoaderManifest, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cordwood.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataUpdate:
    """A step from one image to the next; `before` is None for a publisher's first image.

    `size_bytes` is that of the batches between the two. Parts of the images that did not change are
    the same objects, so that a publisher compares them by identity.
    """

    before: MetadataImage | None
    after: MetadataImage
    size_bytes: int = 0


class MetadataPublisher(Protocol):
    """Applies the images of committed metadata to a part of a node."""

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Applies an update; later updates wait until it returns."""
