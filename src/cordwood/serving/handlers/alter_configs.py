"""AlterConfigs (33), versions 0 to 2: replaces all settings of a resource.

Versions: 2 flexible. Topics, this broker or '' for all, client metrics, groups.

Source: kafka.server.ConfigAdminManager.preprocess, ConfigurationControlManager.legacyAlterConfigs,
Kafka 4.3; KIP-133.
"""

from __future__ import annotations

from cordwood.configs.alter import Alteration, Resource
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import AlterConfigsRequest
from cordwood.serving.api import Api, Response, always
from cordwood.serving.handlers.config_changes import carry_out
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: AlterConfigsRequest) -> Response:
    """Checks each resource for itself, then writes down all that may be."""
    return carry_out(context, API.key, request, _resources(request), replaces=True)


def _resources(request: AlterConfigsRequest) -> list[Resource]:
    """The resources, with all the settings that they are to have."""
    return [
        Resource(
            each.resource_type,
            each.resource_name,
            [Alteration(config.name, config.value) for config in in_steps(each.configs, every=64)],
        )
        for each in in_steps(request.resources, every=8)
    ]


API = Api(33, "AlterConfigs", 0, 2, handle, is_long=always)
