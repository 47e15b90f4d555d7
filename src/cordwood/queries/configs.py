"""Settings and quotas of a cluster: the answers of `cordwood configs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cordwood.client.configs import ConfigFacts
from cordwood.model.documents import KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredConfigs:
    """Settings of an entity that were set or deleted; `name` is None for the default."""

    type: str
    name: str | None
    added: Mapping[str, str] = field(metadata={KEY: "set"})
    deleted: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SynonymOfConfig:
    """A place that would give a value if those before it did not."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """A setting, where its value comes from, and the places that are asked for it, in order."""

    name: str
    value: str | None
    source: str
    sensitive: bool
    synonyms: Sequence[SynonymOfConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntity:
    """An entity, such as a topic, with its settings; `name` is None for the default."""

    type: str
    name: str | None
    configs: Sequence[DescribedConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntities:
    """Entities with their settings."""

    entities: Sequence[ConfigEntity]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedQuotas:
    """Quotas, and the passwords of users.

    A quota has its `entity` (names by type, None for the default) and a number for each limit;
    `credentials` has by user the iterations of each mechanism.
    """

    quotas: Sequence[Mapping[str, Mapping[str, str | None] | float]]
    credentials: Mapping[str, Mapping[str, int]]


def config_entity(kind: str, name: str, configs: Iterable[ConfigFacts]) -> ConfigEntity:
    """An entity of that kind, whose name is empty for the default."""
    return ConfigEntity(
        type=kind,
        name=name or None,
        configs=[
            DescribedConfig(
                name=each.name,
                value=each.value,
                source=each.source,
                sensitive=each.is_sensitive,
                synonyms=[SynonymOfConfig(**synonym._asdict()) for synonym in each.synonyms],
            )
            for each in configs
        ],
    )
