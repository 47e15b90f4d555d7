"""AlterClientQuotas (49), versions 0 and 1: quotas of users, client ids and addresses.

Versions: 1 flexible. Quotas are recorded and described.

Source: org.apache.kafka.controller.ClientQuotaControlManager; KIP-546, KIP-612.
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.metadata.controller_requests import QuotaChange
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import AlterClientQuotasRequest, AlterClientQuotasResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.handlers.controller_answers import after_answer, all_or_error
from cordwood.serving.handlers.error_fields import error_code, error_message
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: AlterClientQuotasRequest) -> Response:
    """Answers for each entity, once."""
    changes = [
        QuotaChange(
            entity={each.entity_type: each.entity_name for each in entry.entity},
            ops=[(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in in_steps(request.entries, every=8)
    ]

    def respond(errors: Sequence[KafkaError | None]) -> AlterClientQuotasResponse:
        answers = {
            change.key: AlterClientQuotasResponse.AlterClientQuotasResponseEntryData(
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in change.in_kafkas_order
                ],
                error_code=error_code(error),
                error_message=error_message(error),
            )
            for change, error in in_steps(zip(changes, errors, strict=True), every=8)
        }
        return AlterClientQuotasResponse(entries=list(answers.values()))

    asked = context.admin.alter_client_quotas(changes, validate_only=request.validate_only)
    return after_answer(context, all_or_error(asked, len(changes)), respond)


API = Api(
    49,
    "AlterClientQuotas",
    0,
    1,
    handle,
    needs=(on_cluster(AclOperation.ALTER_CONFIGS),),
    is_long=always,
)
