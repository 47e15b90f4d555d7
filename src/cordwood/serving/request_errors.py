"""Requests that get no response: their connection is closed."""

from __future__ import annotations

from cordwood.model.errors import CordwoodError


class UnservedRequestError(CordwoodError):
    """An API, or a version of one, that is not served: ApiVersions does not list it."""


class UnansweredRequestError(CordwoodError):
    """A request that has failed, and whose response has no field for the error."""
