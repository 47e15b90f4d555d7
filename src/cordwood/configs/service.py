"""A broker's settings, in one place: effective values, description and changes.

Source: kafka.server.ConfigHelper, ConfigAdminManager, DynamicBrokerConfig, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cordwood.configs import alter, describe
from cordwood.configs.alter import Outcome, Resource
from cordwood.configs.describe import Entry
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.resource import ConfigResource, NewCluster
from cordwood.configs.resource_checks import require_topic
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import InvalidConfigError, KafkaError


class ConfigService(EffectiveConfigs):
    """The settings of a broker and of its topics, groups and clients' metrics."""

    def describe(
        self,
        kind: int,
        name: str,
        *,
        wanted: Collection[str] | None = None,
        documentation: bool = False,
    ) -> list[Entry]:
        """The entries of DescribeConfigs for a resource, with synonyms; `wanted` None means all.

        Raises:
            KafkaError: there is no such resource here.
        """
        return describe.describe(self, kind, name, wanted=wanted, documentation=documentation)

    def describe_created_topic(self, name: str) -> list[Entry]:
        """The entries of a CreateTopics response for a topic that the image has."""
        return describe.describe_created(self, self.recorded(ConfigResource.TOPIC, name))

    def describe_new_topic(self, settings: Mapping[str, str]) -> list[Entry]:
        """The same for a topic that would be made with `settings`."""
        return describe.describe_created(self, settings)

    def require_topic_settings(self, settings: Mapping[str, str]) -> None:
        """Checks the settings that a topic is to be made with.

        Raises:
            InvalidConfigError: Kafka would refuse them.
        """
        try:
            require_topic(self, settings)
        except ConfigError as error:
            raise InvalidConfigError(str(error)) from error

    def check_incremental(
        self, resources: Sequence[Resource], *, validate_only: bool
    ) -> list[Outcome]:
        """The result of IncrementalAlterConfigs: for each resource a change, an error or None.

        Levels of loggers are changed here and now unless `validate_only`; the changes are the
        controller's to write down.
        """
        return alter.check_incremental(self, resources, validate_only=validate_only)

    def check_for_controller(
        self, resources: Sequence[Resource], *, replaces: bool
    ) -> list[Outcome]:
        """The result of either request at the controller, for what a broker does not check itself.

        `replaces` is true for AlterConfigs.
        """
        return alter.check_for_controller(self, resources, replaces=replaces)

    def check_replacement(self, resources: Sequence[Resource]) -> list[Outcome]:
        """The result of AlterConfigs."""
        return alter.check_replacement(self, resources)

    def supposing(self, resources: Sequence[Resource]) -> ConfigService:
        """The settings as they would be after IncrementalAlterConfigs; nothing is changed.

        Raises:
            KafkaError: that request would refuse a resource, the first of them.
        """
        changed = {}
        for outcome in self.check_incremental(resources, validate_only=True):
            if isinstance(outcome, KafkaError):
                raise outcome
            if outcome is not None:
                texts = {**self.recorded(outcome.resource_type, outcome.name), **outcome.values}
                changed[outcome.resource_type, outcome.name] = {
                    name: text for name, text in texts.items() if text is not None
                }
        image = NewCluster(
            topics=self.image.topics,
            configs={**self.image.configs, **changed},
            brokers=self.image.brokers,
            controllers=self.image.controllers,
            features=self.image.features,
        )
        return ConfigService(self.settings, image)
