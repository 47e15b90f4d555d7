"""Handlers of the APIs that only brokers serve."""

from __future__ import annotations

from typing import Any

from cordwood.serving.api import Api
from cordwood.serving.registry import apis_of


def served_apis(*, unstable_versions: bool = False) -> dict[int, Api[Any]]:
    """The APIs of a broker by key; `unstable_versions` is unstable.api.versions.enable."""
    return apis_of(__name__, unstable_versions=unstable_versions)
