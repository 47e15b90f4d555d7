"""Config requests over a socket, to any broker: what it answers, as plain values to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cordwood.model.error_codes import ErrorCode
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
        values = {
            "resources": [
                {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
                for kind, name in resources
            ],
            "include_synonyms": synonyms,
            "include_documentation": documentation,
        }
        return [_described(each) for each in self.ask("describe_configs", 4, values)["results"]]

    def alter(
        self, *resources: tuple[int, str, Sequence[Change]], validate_only: bool = False
    ) -> list[Answer]:
        """IncrementalAlterConfigs v1: the outcome for each resource (type, name, changes)."""
        values = {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [
                        {"name": each.name, "config_operation": each.operation, "value": each.value}
                        for each in changes
                    ],
                }
                for kind, name, changes in resources
            ],
            "validate_only": validate_only,
        }
        answer = self.ask("incremental_alter_configs", 1, values)
        return [_altered(each) for each in answer["responses"]]

    def replace(
        self,
        *resources: tuple[int, str, Sequence[tuple[str, str | None]]],
        validate_only: bool = False,
    ) -> list[Answer]:
        """AlterConfigs v2: the outcome for each resource (type, name, all its settings)."""
        values = {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [{"name": key, "value": value} for key, value in settings],
                }
                for kind, name, settings in resources
            ],
            "validate_only": validate_only,
        }
        answer = self.ask("alter_configs", 2, values)
        return [_altered(each) for each in answer["responses"]]

    def resources(self, *kinds: int) -> Answer:
        """ListConfigResources v1: the resources of these kinds, or of all."""
        answer = self.ask("list_config_resources", 1, {"resource_types": kinds})
        named = [
            [each["resource_type"], each["resource_name"]] for each in answer["config_resources"]
        ]
        return {"error": _code(answer), "resources": sorted(named)}

    def create(
        self, name: str, settings: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Answer:
        """CreateTopics v7 of one topic of one partition: the outcome, and its settings."""
        topic = {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in settings.items()],
        }
        values = {"topics": [topic], "timeout_ms": 30_000, "validate_only": validate_only}
        (made,) = self.ask("create_topics", 7, values)["topics"]
        names = ("name", "value", "read_only", "config_source", "is_sensitive")
        return {
            "error": _code(made),
            "message": made["error_message"],
            "entries": [[each[name] for name in names] for each in made["configs"] or ()],
        }


def entries(answer: Mapping[str, Any]) -> dict[str, Answer]:
    """The entries of a description by name."""
    return {entry["name"]: entry for entry in answer["entries"]}


def _described(result: Answer) -> Answer:
    return _altered(result) | {
        "entries": [
            {
                "name": entry["name"],
                "value": entry["value"],
                "read_only": entry["read_only"],
                "source": entry["config_source"],
                "sensitive": entry["is_sensitive"],
                "type": entry["config_type"],
                "synonyms": [
                    [each["name"], each["value"], each["source"]] for each in entry["synonyms"]
                ],
                "documented": entry["documentation"] is not None,
            }
            for entry in result["configs"]
        ],
    }


def _altered(each: Answer) -> Answer:
    return {
        "error": _code(each),
        "message": each["error_message"],
        "type": each["resource_type"],
        "resource": each["resource_name"],
    }


def _code(answer: Answer) -> int:
    return int(ErrorCode[answer["error_code"].upper()])
