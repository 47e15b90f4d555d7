"""One module for each API that is served; whatever has an `API` here is served and advertised."""

from __future__ import annotations

import importlib
import pkgutil

from cordwood.broker.api import Api


def served_apis() -> dict[int, Api]:
    """The served APIs by key."""
    apis: dict[int, Api] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        api = getattr(importlib.import_module(module.name), "API", None)
        if api is not None:
            assert api.key not in apis, f"two handlers of API {api.key}"
            apis[api.key] = api
    return apis
