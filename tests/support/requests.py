"""Requests of any API, given as fields by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordwood.format.messages.message import Request, message_of
from cordwood.protocol import data
from cordwood.protocol.apis import APIS


def request_of(api: str, fields: Mapping[str, Any]) -> Request[Any]:
    """The request of the API whose name in snake case is `api`."""
    (name,) = (each.name for each in APIS.values() if each.snake_name == api)
    request = message_of(getattr(data, f"{name}Request"), fields)
    assert isinstance(request, Request)
    return request
