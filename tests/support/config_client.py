"""Config requests over a socket, to any broker: what it answers, as plain values to compare.

Requests are written by kio alone, not by Cordwood's own protocol package, so that a mistake there
cannot hide itself.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i16, i32, i32Timedelta

from support.wire import Wire

Answer = dict[str, Any]
"""An answer as JSON has it."""


class Change(NamedTuple):
    """One change of IncrementalAlterConfigs: `operation` 0 sets, 1 deletes, 2 appends, 3 takes."""

    name: str
    value: str | None = None
    operation: int = 0


class ConfigClient(Wire):
    """One connection to the broker at `host`:`port`, one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(port, host=host)

    def describe(
        self,
        *resources: tuple[int, str],
        keys: Sequence[str] | None = None,
        documentation: bool = False,
        synonyms: bool = True,
    ) -> list[Answer]:
        """DescribeConfigs v4: for each resource (type, name) what is said of it."""
        from kio.schema.describe_configs.v4 import request, response  # noqa: PLC0415

        wanted = None if keys is None else tuple(keys)
        asked = request.DescribeConfigsRequest(
            resources=tuple(
                request.DescribeConfigsResource(
                    resource_type=i8(kind), resource_name=name, configuration_keys=wanted
                )
                for kind, name in resources
            ),
            include_synonyms=synonyms,
            include_documentation=documentation,
        )
        answer = self._ask(asked, response.DescribeConfigsResponse)
        return [_described(result) for result in answer.results]

    def alter(
        self, *resources: tuple[int, str, Sequence[Change]], validate_only: bool = False
    ) -> list[Answer]:
        """IncrementalAlterConfigs v1: the outcome for each resource (type, name, changes)."""
        from kio.schema.incremental_alter_configs.v1 import request, response  # noqa: PLC0415

        asked = request.IncrementalAlterConfigsRequest(
            resources=tuple(
                request.AlterConfigsResource(
                    resource_type=i8(kind),
                    resource_name=name,
                    configs=tuple(
                        request.AlterableConfig(
                            name=change.name,
                            config_operation=i8(change.operation),
                            value=change.value,
                        )
                        for change in changes
                    ),
                )
                for kind, name, changes in resources
            ),
            validate_only=validate_only,
        )
        answer = self._ask(asked, response.IncrementalAlterConfigsResponse)
        return [_altered(each) for each in answer.responses]

    def replace(
        self,
        *resources: tuple[int, str, Sequence[tuple[str, str | None]]],
        validate_only: bool = False,
    ) -> list[Answer]:
        """AlterConfigs v2: the outcome for each resource (type, name, all its settings)."""
        from kio.schema.alter_configs.v2 import request, response  # noqa: PLC0415

        asked = request.AlterConfigsRequest(
            resources=tuple(
                request.AlterConfigsResource(
                    resource_type=i8(kind),
                    resource_name=name,
                    configs=tuple(
                        request.AlterableConfig(name=key, value=value) for key, value in settings
                    ),
                )
                for kind, name, settings in resources
            ),
            validate_only=validate_only,
        )
        answer = self._ask(asked, response.AlterConfigsResponse)
        return [_altered(each) for each in answer.responses]

    def resources(self, *kinds: int) -> Answer:
        """ListConfigResources v1: the resources of these kinds, or of all."""
        from kio.schema.list_config_resources.v1 import request, response  # noqa: PLC0415

        asked = request.ListConfigResourcesRequest(resource_types=tuple(i8(kind) for kind in kinds))
        answer = self._ask(asked, response.ListConfigResourcesResponse)
        named = [(int(each.resource_type), each.resource_name) for each in answer.config_resources]
        return {"error": int(answer.error_code), "resources": sorted(map(list, named))}

    def create(
        self, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Answer:
        """CreateTopics v7 of one topic of one partition: the outcome, and its settings."""
        from kio.schema.create_topics.v7 import request, response  # noqa: PLC0415
        from kio.schema.types import TopicName  # noqa: PLC0415

        asked = request.CreateTopicsRequest(
            topics=(
                request.CreatableTopic(
                    name=TopicName(name),
                    num_partitions=i32(1),
                    replication_factor=i16(1),
                    assignments=(),
                    configs=tuple(
                        request.CreatableTopicConfig(name=key, value=value)
                        for key, value in settings.items()
                    ),
                ),
            ),
            timeout=i32Timedelta.parse(timedelta(seconds=30)),
            validate_only=validate_only,
        )
        (made,) = self._ask(asked, response.CreateTopicsResponse).topics
        return {
            "error": int(made.error_code),
            "message": made.error_message,
            "entries": [
                [each.name, each.value, each.read_only, int(each.config_source), each.is_sensitive]
                for each in made.configs or ()
            ],
        }

    def _ask(self, asked: Any, answers: Any) -> Any:
        out = io.BytesIO()
        entity_writer(type(asked))(out, asked)
        data = self.exchange(int(asked.__api_key__), int(asked.__version__), out.getvalue())
        _, used = entity_reader(answers.__header_schema__)(data, 0)
        entity: Any
        entity, size = entity_reader(answers)(data, used)
        assert used + size == len(data), "bytes are left over"
        return entity


def entries(answer: Mapping[str, Any]) -> dict[str, Answer]:
    """The entries of a description by name."""
    return {entry["name"]: entry for entry in answer["entries"]}


def _described(result: Any) -> Answer:
    return {
        "error": int(result.error_code),
        "message": result.error_message,
        "type": int(result.resource_type),
        "resource": result.resource_name,
        "entries": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "source": int(entry.config_source),
                "sensitive": entry.is_sensitive,
                "type": int(entry.config_type),
                "synonyms": [[each.name, each.value, int(each.source)] for each in entry.synonyms],
                "documented": entry.documentation is not None,
            }
            for entry in result.configs
        ],
    }


def _altered(each: Any) -> Answer:
    return {
        "error": int(each.error_code),
        "message": each.error_message,
        "type": int(each.resource_type),
        "resource": each.resource_name,
    }
