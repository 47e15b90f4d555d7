"""IncrementalAlterConfigs (44), versions 0 to 1: sets, deletes, appends, subtracts.

Versions: 1 flexible. Topics, this broker or '' for all, its loggers, client metrics, groups.

Source: kafka.server.ConfigAdminManager.preprocess,
ConfigurationControlManager.incrementalAlterConfigs, Kafka 4.3; KIP-339, KIP-412.
"""

from __future__ import annotations

from cordwood.configs.alter import Alteration, Resource
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import IncrementalAlterConfigsRequest
from cordwood.serving.api import Api, Response, always
from cordwood.serving.handlers.config_changes import carry_out
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Response:
    """Checks each resource for itself, then writes down all that may be."""
    return carry_out(context, API.key, request, _resources(request), replaces=False)


def _resources(request: IncrementalAlterConfigsRequest) -> list[Resource]:
    """The resources, with their changes."""
    return [
        Resource(
            each.resource_type,
            each.resource_name,
            [
                Alteration(config.name, config.value, config.config_operation)
                for config in in_steps(each.configs, every=64)
            ],
        )
        for each in in_steps(request.resources, every=8)
    ]


API = Api(44, "IncrementalAlterConfigs", 0, 1, handle, is_long=always)
