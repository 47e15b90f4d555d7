"""AlterClientQuotas (49), versions 0 and 1: quotas of users, client ids and addresses.

Versions: 1 flexible. Quotas are recorded and described.

Source: org.apache.kafka.controller.ClientQuotaControlManager; KIP-546, KIP-612.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response
from cordwood.broker.controller.model import QuotaChange
from cordwood.broker.handlers.error_fields import all_or_error, error_fields

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker


def handle(broker: Broker, request: Any, _call: Call) -> Response:
    """Answers for each entity, once."""
    changes = [
        QuotaChange(
            entity={each.entity_type: each.entity_name for each in entry.entity},
            ops=[(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    ]
    errors = all_or_error(
        lambda: broker.controller.alter_client_quotas(changes, validate_only=request.validate_only),
        len(changes),
    )
    answers = {
        change.key: {
            "entity": [
                {"entity_type": kind, "entity_name": name} for kind, name in change.entity.items()
            ],
            **error_fields(error),
        }
        for change, error in zip(changes, errors, strict=True)
    }
    return {"entries": list(answers.values())}


API = Api(49, "AlterClientQuotas", 0, 1, handle)
