"""Requests as a broker reads them: the header, and the body of a version of an API.

Source: org.apache.kafka.common.requests.RequestContext.parseRequest.
"""

from __future__ import annotations

from typing import Any

from cordwood.protocol.headers import skip_tags
from cordwood.protocol.messages import read_request, request_codec


class RequestReader:
    """Reads the bodies of the requests of one version of an API."""

    __slots__ = ("_api_key", "_distinct", "_is_flexible", "_version")

    def __init__(self, api_key: int, version: int, *, distinct: str = "") -> None:
        """Prepares; `distinct` as for `read_request`.

        Raises:
            UnknownMessageError: there is no such API or version.
        """
        self._api_key = api_key
        self._version = version
        self._distinct = distinct
        self._is_flexible = request_codec(api_key, version).is_flexible

    @property
    def is_flexible(self) -> bool:
        """Whether the version has tagged fields, in the headers of request and response too."""
        return self._is_flexible

    def read(self, frame: memoryview, at: int) -> Any:
        """The body of a request.

        Args:
            frame: the request.
            at: where its header has been read to (`RequestHeader.body_at`).

        Raises:
            MalformedMessageError: the bytes are not such a request.
        """
        if self._is_flexible:
            at = skip_tags(frame, at)
        return read_request(self._api_key, self._version, frame, at, distinct=self._distinct)
