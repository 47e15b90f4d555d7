"""A broker that answers config requests without a socket, a log or a controller's disk.

The handlers are the real ones; only what they need of a broker is there, and the metadata log is
an image that each change replaces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from cordwood.broker.broker import Broker
from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.handlers import list_config_resources
from cordwood.configs.describe import describe_new_topic
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.resource import ConfigChange
from cordwood.configs.resource_checks import require_topic
from cordwood.configs.server_properties import BrokerSettings
from cordwood.metadata.image import BrokerImage, MetadataImage, TopicImage
from cordwood.metadata.persistent_map import PersistentMap
from cordwood.model.kafka_errors import KafkaError
from cordwood.protocol.headers import RequestHeader
from cordwood.serving.api import Api
from cordwood.serving.authorizer import AllowAll
from cordwood.serving.handlers import alter_configs, describe_configs, incremental_alter_configs
from cordwood.serving.node_services import Role
from cordwood.serving.session import Session
from support.config_client import Answer, Change

_ELR = "eligible.leader.replicas.version"


class _Recorder:
    """Takes changes as the controller does, and publishes an image with them."""

    def __init__(self, service: EffectiveConfigs, image: MetadataImage) -> None:
        self.service = service
        self.image = image

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        if not validate_only:
            configs = {key: dict(texts) for key, texts in self.image.configs.items()}
            for change in changes:
                texts = configs.setdefault((change.resource_type, change.name), {})
                for name, text in change.values.items():
                    if text is None:
                        texts.pop(name, None)
                    else:
                        texts[name] = text
            old = self.image
            kept = {key: texts for key, texts in configs.items() if texts}
            self.image = replace(old, configs=PersistentMap(kept))
            self.service.on_image(old, self.image)
        return [None] * len(changes)


class ConfigBroker:
    """Node 1 with these topics and properties, a fresh 4.3 cluster's settings recorded.

    Answers have the form that `ConfigClient` gives them.
    """

    def __init__(self, properties: Mapping[str, str], topics: Sequence[str] = ()) -> None:
        image = MetadataImage(
            topics=PersistentMap(
                {
                    name: TopicImage(name=name, topic_id=UUID(int=number))
                    for number, name in enumerate(topics, start=100)
                }
            ),
            brokers=PersistentMap({1: _registration()}),
            configs=PersistentMap({(4, ""): {"min.insync.replicas": "1"}}),
            features=PersistentMap({_ELR: 1}),
        )
        self.settings = BrokerSettings(properties)
        self.service = EffectiveConfigs(self.settings, image)
        self._recorder = _Recorder(self.service, image)

    def describe(
        self,
        *resources: tuple[int, str],
        keys: Sequence[str] | None = None,
        documentation: bool = False,
        synonyms: bool = True,
    ) -> list[Answer]:
        """DescribeConfigs v4."""
        asked = [
            SimpleNamespace(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ]
        answer = self._ask(
            describe_configs.API,
            resources=asked,
            include_synonyms=synonyms,
            include_documentation=documentation,
        )
        return [_described(result) for result in answer.results]

    def alter(
        self, *resources: tuple[int, str, Sequence[Change]], validate_only: bool = False
    ) -> list[Answer]:
        """IncrementalAlterConfigs v1."""
        asked = [
            SimpleNamespace(
                resource_type=kind,
                resource_name=name,
                configs=[
                    SimpleNamespace(
                        name=each.name, value=each.value, config_operation=each.operation
                    )
                    for each in changes
                ],
            )
            for kind, name, changes in resources
        ]
        answer = self._ask(
            incremental_alter_configs.API, resources=asked, validate_only=validate_only
        )
        return [_altered(each) for each in answer.responses]

    def replace(
        self,
        *resources: tuple[int, str, Sequence[tuple[str, str | None]]],
        validate_only: bool = False,
    ) -> list[Answer]:
        """AlterConfigs v2."""
        asked = [
            SimpleNamespace(
                resource_type=kind,
                resource_name=name,
                configs=[SimpleNamespace(name=key, value=value) for key, value in settings],
            )
            for kind, name, settings in resources
        ]
        answer = self._ask(alter_configs.API, resources=asked, validate_only=validate_only)
        return [_altered(each) for each in answer.responses]

    def resources(self, *kinds: int) -> Answer:
        """ListConfigResources v1."""
        answer = self._ask(list_config_resources.API, resource_types=kinds)
        named = [[each.resource_type, each.resource_name] for each in answer.config_resources]
        return {"error": answer.error_code, "resources": sorted(named)}

    def create(
        self, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Answer:
        """Validates a topic's settings as CreateTopics does; nothing is made."""
        assert validate_only, name
        texts = {key: text for key, text in settings.items() if text is not None}
        try:
            require_topic(self.service, texts)
        except KafkaError as error:
            return {"error": error.code, "message": str(error), "entries": []}
        return {
            "error": 0,
            "message": None,
            "entries": [
                [
                    entry.name,
                    entry.value,
                    entry.is_read_only,
                    entry.level.code,
                    entry.is_sensitive,
                ]
                for entry in describe_new_topic(self.service, texts)
            ],
        }

    def _ask(self, api: Api[Any], **fields: object) -> Any:
        broker = SimpleNamespace(
            role=Role.BROKER,
            node_id=1,
            configs=self.service,
            metadata=SimpleNamespace(image=self._recorder.image),
            forwarding=None,
            admin=self._recorder,
            thread=SimpleNamespace(slices=SimpleNamespace(run=_run)),
            authorizer=AllowAll(),
        )
        header = RequestHeader(api.key, api.max_version, 1, "tests", 0)
        context = BrokerContext(
            cast("Broker", broker), header, Session("127.0.0.1", "tests", "PLAINTEXT")
        )
        answer = api.handle(context, SimpleNamespace(**fields))
        if isinstance(answer, Coroutine):
            answer = asyncio.run(answer)
        return answer


async def _run(work: Callable[[], Any]) -> Any:
    return work()


def _registration() -> BrokerImage:
    return BrokerImage(
        broker_id=1,
        epoch=1,
        incarnation_id=UUID(int=7),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(UUID(int=8),),
        endpoints=(),
    )


def _described(result: Any) -> Answer:
    return {
        "error": result.error_code,
        "message": result.error_message,
        "type": result.resource_type,
        "resource": result.resource_name,
        "entries": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "source": entry.config_source,
                "sensitive": entry.is_sensitive,
                "type": entry.config_type,
                "synonyms": [[each.name, each.value, each.source] for each in entry.synonyms],
                "documented": entry.documentation is not None,
            }
            for entry in result.configs
        ],
    }


def _altered(each: Any) -> Answer:
    return {
        "error": each.error_code,
        "message": each.error_message,
        "type": each.resource_type,
        "resource": each.resource_name,
    }
