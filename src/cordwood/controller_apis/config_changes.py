"""AlterConfigs (33) and IncrementalAlterConfigs (44) at a controller.

The settings of a broker are checked by that broker, which forwards them.

Source: kafka.server.ControllerApis.handleLegacyAlterConfigs, handleIncrementalAlterConfigs.
"""

from __future__ import annotations

from functools import partial

from cordwood.broker.handlers import alter_configs, incremental_alter_configs
from cordwood.broker.handlers.config_changes import carry_out
from cordwood.controller_apis.context import ControllerContext
from cordwood.protocol.apis.alter_configs import AlterConfigsRequest
from cordwood.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from cordwood.serving.api import Api, Response, always


def replace(context: ControllerContext, request: AlterConfigsRequest) -> Response:
    """Replaces all settings of resources."""
    check = partial(context.node.configs.check_for_controller, replaces=True)
    resources = alter_configs.resources_of(request)
    return carry_out(context, alter_configs.API.key, request, resources, check)


def alter(context: ControllerContext, request: IncrementalAlterConfigsRequest) -> Response:
    """Sets, deletes, appends and subtracts."""
    check = partial(context.node.configs.check_for_controller, replaces=False)
    resources = incremental_alter_configs.resources_of(request)
    return carry_out(context, incremental_alter_configs.API.key, request, resources, check)


APIS = (
    Api(33, "AlterConfigs", 0, 2, replace, is_long=always),
    Api(44, "IncrementalAlterConfigs", 0, 1, alter, is_long=always),
)
