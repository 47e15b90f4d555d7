"""DeleteGroups (42), versions 0 to 2: empty groups go, with all their offsets.

Versions: 2 flexible. Not served: groups of other protocols than the classic one
(UNSUPPORTED_VERSION).

Source: kafka.server.KafkaApis.handleDeleteGroupsRequest, GroupCoordinatorShard.deleteGroups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response, always
from cordwood.model.pauses import in_steps

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker


def handle(broker: Broker, request: Any, _call: Call) -> Response:
    """Answers for each group once its end is written."""
    return {
        "results": [
            {"group_id": group_id, "error_code": broker.groups.delete_group(group_id)}
            for group_id in in_steps(dict.fromkeys(request.groups_names))
        ]
    }


API = Api(42, "DeleteGroups", 0, 2, handle, is_long=always)
