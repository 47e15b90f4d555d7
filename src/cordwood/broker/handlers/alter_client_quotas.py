"""AlterClientQuotas (49), versions 0 and 1: quotas of users, client ids and addresses.

Versions: 1 flexible. Quotas are recorded and described.

Source: org.apache.kafka.controller.ClientQuotaControlManager; KIP-546, KIP-612.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response, always
from cordwood.broker.handlers.error_fields import all_or_error, error_fields
from cordwood.controller.host_lookup import look_up_hosts
from cordwood.controller.quotas import hosts_to_look_up, in_kafkas_order
from cordwood.metadata.controller_requests import QuotaChange
from cordwood.model.pauses import in_steps

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker


def handle(broker: Broker, request: Any, _call: Call) -> Response:
    """Answers for each entity, once."""
    changes = [
        QuotaChange(
            entity={each.entity_type: each.entity_name for each in entry.entity},
            ops=[(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in in_steps(request.entries, every=8)
    ]
    names = hosts_to_look_up(changes)
    if names:
        return _after_look_up(broker, changes, names, validate_only=request.validate_only)
    return _answer(broker, changes, frozenset(), validate_only=request.validate_only)


async def _after_look_up(
    broker: Broker, changes: Sequence[QuotaChange], names: Sequence[str], *, validate_only: bool
) -> dict[str, object]:
    """As `_answer`, once the system's resolver has answered: it may take seconds."""
    known_hosts = await look_up_hosts(names)
    return await broker.slices.run(
        lambda: _answer(broker, changes, known_hosts, validate_only=validate_only)
    )


def _answer(
    broker: Broker,
    changes: Sequence[QuotaChange],
    known_hosts: frozenset[str],
    *,
    validate_only: bool,
) -> dict[str, object]:
    errors = all_or_error(
        lambda: broker.controller.alter_client_quotas(
            changes, known_hosts=known_hosts, validate_only=validate_only
        ),
        len(changes),
    )
    answers = {
        change.key: {
            "entity": [
                {"entity_type": kind, "entity_name": name}
                for kind, name in in_kafkas_order(change.entity)
            ],
            **error_fields(error),
        }
        for change, error in in_steps(zip(changes, errors, strict=True), every=8)
    }
    return {"entries": list(answers.values())}


API = Api(49, "AlterClientQuotas", 0, 1, handle, is_long=always)
