"""The APIs of a role: those that the modules of its packages of handlers define.

A module of such a package is an API, or a few that are alike: what it has as `API`, or in `APIS`,
is served and advertised.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from cordwood.serving.api import Api

_OF_BOTH_ROLES: Final = "cordwood.serving.handlers"


def apis_with_modules(
    package: str, *, unstable_versions: bool = False
) -> Iterator[tuple[Api[Any], ModuleType]]:
    """The APIs of a role, each with the module of its handler.

    Args:
        package: the name of the package with the handlers of the role alone; those of both roles
            are served in any case.
        unstable_versions: unstable.api.versions.enable.

    Source: org.apache.kafka.common.message.ApiMessageType.highestSupportedVersion.
    """
    for name in (_OF_BOTH_ROLES, package):
        for found in pkgutil.iter_modules(import_module(name).__path__, f"{name}."):
            module = import_module(found.name)
            single = (module.API,) if hasattr(module, "API") else ()
            for api in (*getattr(module, "APIS", ()), *single):
                is_lower = api.is_last_unstable and not unstable_versions
                yield api._replace(max_version=api.max_version - is_lower), module


def apis_of(package: str, *, unstable_versions: bool = False) -> dict[int, Api[Any]]:
    """The APIs of a role by key, with the arguments of `apis_with_modules`."""
    apis: dict[int, Api[Any]] = {}
    for api, _ in apis_with_modules(package, unstable_versions=unstable_versions):
        assert api.key not in apis, f"two handlers of API {api.key}"
        apis[api.key] = api
    return apis
