"""One module for each API that is served, or a few that are refused alike.

Whatever is an `API`, or in `APIS`, of a module here is served and advertised.
"""

from __future__ import annotations

import importlib
import pkgutil

from cordwood.broker.request_context import BrokerContext
from cordwood.serving.api import Api


def served_apis(*, unstable_versions: bool = False) -> dict[int, Api[BrokerContext]]:
    """The served APIs by key; `unstable_versions` is unstable.api.versions.enable.

    Source: org.apache.kafka.common.message.ApiMessageType.highestSupportedVersion.
    """
    apis: dict[int, Api[BrokerContext]] = {}
    for found in pkgutil.iter_modules(__path__, f"{__name__}."):
        module = importlib.import_module(found.name)
        for api in (*getattr(module, "APIS", ()), getattr(module, "API", None)):
            if api is not None:
                assert api.key not in apis, f"two handlers of API {api.key}"
                is_lower = api.is_last_unstable and not unstable_versions
                apis[api.key] = api._replace(max_version=api.max_version - is_lower)
    return apis
