"""What AlterConfigs and IncrementalAlterConfigs have in common: write down, and answer.

Source: kafka.server.KafkaApis.handleIncrementalAlterConfigsRequest, ConfigAdminManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cordwood.broker.configs.alter import Outcome
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
    outcomes: Sequence[Outcome],
    *,
    validate_only: bool,
) -> Response:
    """The response, after the changes that are allowed were written."""
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
