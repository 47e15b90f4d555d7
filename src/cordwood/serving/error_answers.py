"""The answer to a request that failed as a whole: its error for each thing that it asked about.

Source: org.apache.kafka.common.requests.AbstractRequest.getErrorResponse and its overrides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from cordwood.format.messages.message import Message
from cordwood.format.messages.schema import Field, fields_of
from cordwood.protocol.messages import response_codec

_UNKNOWN_SERVER_ERROR: Final = -1
_UNKNOWN_SERVER_TEXT: Final = (
    "The server experienced an unexpected error when processing the request."
)
_PRODUCE: Final = 0
_DESCRIBE_CONFIGS: Final = 32
_ALTER_CLIENT_QUOTAS: Final = 49
_NAMES_UNKNOWN_ERRORS: Final = {_DESCRIBE_CONFIGS, _ALTER_CLIENT_QUOTAS}

_ERROR_CODES: Final = ("error_code", "partition_error_code")
"""The fields that have an error's code."""

_REPEATS_ALL: Final = {43, 45, 46, 50}
"""APIs whose error is at the top of the answer and again for each thing that was asked about."""

_ASKED_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "coordinators": ("coordinator_keys",),
    "filter_results": ("filters",),
    "groups": ("group_ids",),
    "partition_responses": ("partition_data",),
    "partition_result": ("partitions",),
    "partitions": ("partition_indexes",),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topics", "topic_names", "topic_data", "resources"),
    "results": ("topics", "resources", "creations", "groups_names", "users"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "transaction_states": ("transactional_ids",),
}
"""Arrays of answers by the arrays of the request that they answer, where the names differ."""

_SCALARS: Final[Mapping[str, str]] = {
    "coordinators": "key",
    "groups": "group_id",
    "partition_result": "partition_id",
    "partitions": "partition_index",
    "responses": "name",
    "results": "group_id",
    "results_by_partition": "partition_index",
    "transaction_states": "transactional_id",
}
"""Fields of the answer that repeat the values of an array of plain values in the request."""

_REPEATED: Final[Mapping[str, tuple[str, ...]]] = {
    "entity_name": ("entity_name",),
    "entity_type": ("entity_type",),
    "group_id": ("group_id",),
    "index": ("index",),
    "name": ("name",),
    "partition": ("partition",),
    "partition_index": ("partition_index", "partition"),
    "resource_name": ("resource_name",),
    "resource_type": ("resource_type",),
    "topic": ("topic",),
    "topic_id": ("topic_id",),
    "topic_name": ("name",),
}
"""Fields of the answer that say what it is about, by those of the request."""

_REPEATED_IN: Final[Mapping[str, tuple[str, ...]]] = {"markers": ("producer_id",)}
"""Further such fields of the entries of one array. Elsewhere a producer ID is a result."""

_INVALID: Final[Mapping[str, int]] = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "producer_epoch": -1,
    "producer_id": -1,
}
"""Values in place of a result, where the schema has no default."""

MakeEntry = Callable[[Any, Mapping[str, Any]], dict[str, Any]]


def error_answer(
    api_key: int, version: int, request: Any, code: int, text: str | None
) -> Message | None:
    """A response that has nothing but the error; None where none can say it.

    Args:
        api_key: of the request.
        version: of the request.
        request: as it was read.
        code: of the error.
        text: for people, where the response has a place for one.
    """
    if code == _UNKNOWN_SERVER_ERROR:
        text = _UNKNOWN_SERVER_TEXT if api_key in _NAMES_UNKNOWN_ERRORS else None
    codec = response_codec(api_key, version)
    fields = codec.fields
    if (api_key == _PRODUCE and request.acks == 0) or not _says_error(fields, version):
        return None
    answer = _answer(fields, version, repeats_all=api_key in _REPEATS_ALL)
    values = answer(request, {**dict.fromkeys(_ERROR_CODES, code), "error_message": text})
    return codec.message(values)


@cache
def _says_error(fields: tuple[Field, ...], version: int) -> bool:
    return any(
        field.attribute in _ERROR_CODES
        or (_is_entries(field) and _says_error(fields_of(field.fields, version), version))
        for field in fields
    )


def _is_entries(field: Field) -> bool:
    return field.is_array and field.kind == "struct"


@cache
def _answer(
    fields: tuple[Field, ...], version: int, *, of: str = "", repeats_all: bool = False
) -> MakeEntry:
    """Makes one entry of an answer from the entry of the request, and the error's fields.

    `of`: the array whose entry it is.
    `repeats_all`: an entry that has the error has its arrays, too.
    """
    names = {field.attribute for field in fields}
    # An error holds for all that is nested; the entity of a quota is the entry's name.
    arrays = [
        field
        for field in fields
        if _is_entries(field)
        and (repeats_all or "error_code" not in names or field.attribute == "entity")
    ]
    repeated = {name: asked for name, asked in _REPEATED.items() if name in names}
    repeated |= {name: (name,) for name in _REPEATED_IN.get(of, ())}
    invalid = {name: value for name, value in _INVALID.items() if name in names}

    def answer(asked: Any, error: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {**invalid}
        for name, candidates in repeated.items():
            for each in candidates:
                if hasattr(asked, each):
                    values[name] = getattr(asked, each)
                    break
        values |= {name: value for name, value in error.items() if name in names}
        for field in arrays:
            values[field.attribute] = _elements(field, version, asked, error)
        return values

    return answer


def _elements(
    field: Field, version: int, asked: Any, error: Mapping[str, Any]
) -> list[dict[str, Any]]:
    inner = _answer(fields_of(field.fields, version), version, of=field.attribute)
    scalar = _SCALARS.get(field.attribute)
    return [
        {**inner(None, error), scalar: item}
        if isinstance(item, str | int) and scalar is not None
        else inner(item, error)
        for item in _asked(field.attribute, asked)
    ]


def _asked(name: str, request: Any) -> Iterable[Any]:
    for each in (name, *_ASKED_AS.get(name, ())):
        found = getattr(request, each, None)
        if found:  # a field that the version lacks is empty
            return found  # type: ignore[no-any-return]
    # AlterReplicaLogDirs asks by directory, and is answered by topic.
    return [topic for each in getattr(request, "dirs", ()) for topic in each.topics]
