"""The common part of AlterConfigs and IncrementalAlterConfigs: checks, changes, answers.

Source: kafka.server.KafkaApis.handleIncrementalAlterConfigsRequest, ConfigAdminManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cordwood.configs.alter import Outcome, Resource, check_changes
from cordwood.configs.resource import ConfigChange, ConfigResource
from cordwood.format.messages.message import Message
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import AlterConfigsResponse, IncrementalAlterConfigsResponse
from cordwood.protocol.messages import read, response_codec
from cordwood.serving.api import Response
from cordwood.serving.authorizer import AclOperation
from cordwood.serving.handlers.config_authorization import config_authorization_error
from cordwood.serving.handlers.controller_answers import after_answer, all_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.node_services import Role
from cordwood.serving.request_context import RequestContext

#: Resources whose changes a broker checks itself; it makes those of loggers.
_OF_THIS_BROKER = frozenset({ConfigResource.BROKER, ConfigResource.BROKER_LOGGER})


def carry_out(
    context: RequestContext,
    api_key: int,
    request: Any,
    resources: Sequence[Resource],
    *,
    replaces: bool,
) -> Response:
    """The response after the changes that are allowed and valid are written.

    Args:
        context: of the request.
        api_key: AlterConfigs or IncrementalAlterConfigs.
        request: the request.
        resources: its resources with their changes.
        replaces: the changes are all settings that the resources are to have.
    """
    if context.node.forwarding is not None:
        return _forward(context, api_key, request, resources, replaces=replaces)
    asked = request.resources
    outcomes = _authorized_outcomes(context, request, resources, replaces=replaces)
    errors: list[KafkaError | None] = [
        outcome if isinstance(outcome, KafkaError) else None
        for outcome in in_steps(outcomes, every=64)
    ]
    places = [place for place, each in enumerate(outcomes) if isinstance(each, ConfigChange)]
    changes = [each for each in outcomes if isinstance(each, ConfigChange)]
    if not changes:
        return _response(asked, _results(errors), replaces=replaces)

    def respond(results: Sequence[KafkaError | None]) -> Message:
        for place, result in zip(places, results, strict=True):
            errors[place] = result
        return _response(asked, _results(errors), replaces=replaces)

    altering = context.admin.alter_configs(changes, validate_only=request.validate_only)
    return after_answer(context, all_or_error(altering, len(changes)), respond)


async def _forward(
    context: RequestContext,
    api_key: int,
    request: Any,
    resources: Sequence[Resource],
    *,
    replaces: bool,
) -> Message:
    """The controller's answer for all that this broker has not answered itself.

    Source: ConfigAdminManager.preprocess, copyWithoutPreprocessed, reassembleIncrementalResponse.
    """
    own = [place for place, each in enumerate(resources) if each.kind in _OF_THIS_BROKER]
    outcomes = _authorized_outcomes(
        context, request, [resources[place] for place in own], replaces=replaces
    )
    errors: dict[int, KafkaError | None] = {
        place: outcome if isinstance(outcome, KafkaError) else None
        for place, outcome in zip(own, outcomes, strict=True)
        if not isinstance(outcome, ConfigChange)
    }
    rest = [each for place, each in enumerate(request.resources) if place not in errors]
    answers: dict[tuple[int, str], Any] = {}
    if rest:
        assert context.node.forwarding is not None, "checked by the caller"
        controllers = type(request)(resources=rest, validate_only=request.validate_only)
        body = await context.node.forwarding.forward(api_key, context, controllers)
        answer = read(response_codec(api_key, context.api_version), body)
        answers = {(each.resource_type, each.resource_name): each for each in answer.responses}
    results = []
    for place, each in enumerate(request.resources):
        if place in errors:
            results.append((error_code(errors[place]), error_message(errors[place])))
        else:
            answer = answers[each.resource_type, each.resource_name]
            results.append((answer.error_code, answer.error_message))
    return _response(request.resources, results, replaces=replaces)


def _authorized_outcomes(
    context: RequestContext, request: Any, resources: Sequence[Resource], *, replaces: bool
) -> list[Outcome]:
    """The outcome for each resource; one that the client may not change is not checked."""
    denied = [
        config_authorization_error(context, AclOperation.ALTER_CONFIGS, each.kind, each.name)
        for each in in_steps(resources, every=64)
    ]
    allowed = [each for each, error in zip(resources, denied, strict=True) if error is None]
    checked = iter(_checked(context, request, allowed, replaces=replaces))
    return [next(checked) if error is None else error for error in denied]


def _checked(
    context: RequestContext, request: Any, resources: Sequence[Resource], *, replaces: bool
) -> Sequence[Outcome]:
    """The outcome for each resource; a broker has checked its part of what a controller gets."""
    return check_changes(
        context.node.configs,
        resources,
        replaces=replaces,
        validate_only=request.validate_only,
        is_broker=context.node.role is not Role.CONTROLLER,
    )


def _response(
    asked: Iterable[Any], results: Iterable[tuple[int, str | None]], *, replaces: bool
) -> Message:
    """The response with the code and the text for each resource."""
    made: Any = AlterConfigsResponse if replaces else IncrementalAlterConfigsResponse
    response: Message = made(
        responses=[
            made.AlterConfigsResourceResponse(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, text) in in_steps(zip(asked, results, strict=True), every=16)
        ]
    )
    return response


def _results(errors: Iterable[KafkaError | None]) -> Iterator[tuple[int, str | None]]:
    return ((error_code(error), error_message(error)) for error in errors)
