"""The kinds of resources that have settings, and the settings recorded for them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

Texts = Mapping[str, str]
"""Settings as they are written."""


class ConfigResource(IntEnum):
    """The kind of resource that a config record of the metadata log is for.

    Source: org.apache.kafka.common.config.ConfigResource.Type.
    """

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Settings of one resource; None takes one away. Names and values are valid already."""

    resource_type: int
    name: str
    values: Mapping[str, str | None]


class RecordedSettings(Protocol):
    """The settings in the metadata log."""

    @property
    def topics(self) -> Container[str]:
        """The topics there are."""

    @property
    def configs(self) -> Mapping[tuple[int, str], Texts]:
        """Settings by kind of resource and its name; all brokers are the broker called ''."""


class ClusterSettings(RecordedSettings, Protocol):
    """The part of a metadata image that settings are checked by."""

    @property
    def brokers(self) -> Container[int]:
        """The ids of registered brokers."""

    @property
    def controllers(self) -> Container[int]:
        """The ids of registered controllers."""

    @property
    def features(self) -> Mapping[str, int]:
        """The finalized level of each feature."""


class SettingsUpdate(Protocol):
    """A step from one image to the next; `before` is None for the first."""

    @property
    def before(self) -> ClusterSettings | None:
        """The image so far."""

    @property
    def after(self) -> ClusterSettings:
        """The image from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster:
    """The settings of a cluster without records, and any that are supposed."""

    topics: Container[str] = ()
    configs: Mapping[tuple[int, str], Texts] = field(default_factory=dict)
    brokers: Container[int] = ()
    controllers: Container[int] = ()
    features: Mapping[str, int] = field(default_factory=dict)
