"""Handlers of the APIs that only controllers serve, at their listener.

Source: kafka.server.ControllerApis,
org.apache.kafka.common.protocol.ApiKeys.apisForListener(CONTROLLER), Kafka 4.3.
"""

from __future__ import annotations

from typing import Any

from cordwood.serving.api import Api
from cordwood.serving.registry import apis_of


def controller_apis() -> dict[int, Api[Any]]:
    """The APIs of a controller by key."""
    return apis_of(__name__)
