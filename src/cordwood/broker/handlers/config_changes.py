"""What AlterConfigs and IncrementalAlterConfigs have in common: write down, and answer.

Source: kafka.server.KafkaApis.handleIncrementalAlterConfigsRequest, ConfigAdminManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cordwood.broker.authorizer import Operation
from cordwood.broker.config_authorization import config_authorization_error
from cordwood.broker.configs.alter import Outcome, Resource
from cordwood.broker.handlers.controller_answers import after_answer, all_or_error
from cordwood.broker.handlers.error_fields import error_fields
from cordwood.broker.request_context import RequestContext
from cordwood.metadata.controller_requests import ConfigChange
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.network.api import Fields, Response


def carry_out(
    context: RequestContext,
    asked: Iterable[Any],
    resources: Sequence[Resource],
    check: Callable[[Sequence[Resource]], Sequence[Outcome]],
    *,
    validate_only: bool,
) -> Response:
    """The response after the changes that are allowed and valid are written.

    Args:
        context: of the request.
        asked: the resources as the request names them.
        resources: the same resources with their changes.
        check: returns the outcome for each of some resources.
        validate_only: write nothing.
    """
    outcomes = _authorized_outcomes(context, resources, check)
    errors: list[KafkaError | None] = [
        outcome if isinstance(outcome, KafkaError) else None
        for outcome in in_steps(outcomes, every=64)
    ]
    places = [place for place, each in enumerate(outcomes) if isinstance(each, ConfigChange)]
    changes = [each for each in outcomes if isinstance(each, ConfigChange)]
    if not changes:
        return _response(asked, errors)

    def respond(results: Sequence[KafkaError | None]) -> Fields:
        for place, result in zip(places, results, strict=True):
            errors[place] = result
        return _response(asked, errors)

    altering = context.broker.controller.alter_configs(changes, validate_only=validate_only)
    return after_answer(context, all_or_error(altering, len(changes)), respond)


def _authorized_outcomes(
    context: RequestContext,
    resources: Sequence[Resource],
    check: Callable[[Sequence[Resource]], Sequence[Outcome]],
) -> list[Outcome]:
    """The outcome for each resource; one that the client may not change is not checked."""
    denied = [
        config_authorization_error(context, Operation.ALTER_CONFIGS, each.kind, each.name)
        for each in in_steps(resources, every=64)
    ]
    allowed = [each for each, error in zip(resources, denied, strict=True) if error is None]
    checked = iter(check(allowed))
    return [next(checked) if error is None else error for error in denied]


def _response(asked: Iterable[Any], errors: Sequence[KafkaError | None]) -> Fields:
    return {
        "responses": [
            {
                **error_fields(error),
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
            for resource, error in in_steps(zip(asked, errors, strict=True), every=16)
        ]
    }
