"""DescribeClientQuotas (48), versions 0 and 1: quotas of entities that match a filter.

Versions: 1 flexible.

Source: org.apache.kafka.image.ClientQuotasImage.describe; KIP-546.
"""

from __future__ import annotations

from typing import Any

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.kafka_errors import InvalidRequestError, KafkaError, UnsupportedRequestError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_KINDS = ("user", "client-id", "ip")


def handle(context: BrokerContext, request: DescribeClientQuotasRequest) -> Response:
    """Answers from the image."""
    try:
        exact, kinds = _filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None
        )
    entries = []
    for entity, quotas in in_steps(context.broker.metadata.image.client_quotas.items(), every=16):
        names = dict(entity)
        if request.strict and len(names) != len(exact) + len(kinds):
            continue
        if not (exact.items() <= names.items() and kinds <= names.keys()):
            continue
        entries.append(
            DescribeClientQuotasResponse.EntryData(
                entity=[
                    DescribeClientQuotasResponse.EntityData(
                        entity_type=kind, entity_name=names[kind]
                    )
                    for kind in _KINDS
                    if kind in names
                ],
                values=[
                    DescribeClientQuotasResponse.ValueData(key=key, value=value)
                    for key, value in quotas.items()
                ],
            )
        )
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _filter(components: Any) -> tuple[dict[str, str | None], set[str]]:
    """Names that kinds of entity must have, and kinds that may have any."""
    exact: dict[str, str | None] = {}
    kinds: set[str] = set()
    for component in in_steps(components, every=16):
        kind = component.entity_type
        if not kind:
            raise InvalidRequestError("Invalid empty entity type.")
        if kind in exact or kind in kinds:
            raise InvalidRequestError(
                f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in _KINDS:
            raise UnsupportedRequestError(f"Unsupported entity type {kind}")
        _require_match(component)
        if component.match_type == _SPECIFIED:
            kinds.add(kind)
        else:
            exact[kind] = component.match
    named = exact.keys() | kinds
    if "ip" in named and len(named) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return exact, kinds


def _require_match(component: DescribeClientQuotasRequest.ComponentData) -> None:
    if component.match_type == _EXACT:
        if component.match is None:
            raise InvalidRequestError(
                "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
    elif component.match_type in {_DEFAULT, _SPECIFIED}:
        name = "MATCH_TYPE_DEFAULT" if component.match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
        if component.match is not None:
            raise InvalidRequestError(
                f"Request specified {name}, but also specified a match string."
            )
    else:
        raise InvalidRequestError(f"Unknown match type {component.match_type}")


API = Api(
    48,
    "DescribeClientQuotas",
    0,
    1,
    handle,
    needs=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
    is_long=always,
)
