"""The counters of requests; metrics read them at a scrape.

Source: kafka.network.RequestMetrics.
"""

from __future__ import annotations

from collections import deque

# As many as the reservoir of a histogram of Kafka's holds.
_RECENT_MAX = 1028


class RequestCounters:
    """Requests of one API: how many, by version, how long they took in all, and the last ones did.

    Times are in seconds.
    """

    __slots__ = ("count", "recent", "seconds", "versions")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.versions: dict[int, int] = {}
        self.recent: deque[float] = deque(maxlen=_RECENT_MAX)


class RequestMetrics:
    """Counters of requests, by the name of their API; for the event loop's thread."""

    def __init__(self) -> None:
        self.by_api: dict[str, RequestCounters] = {}

    def answered(self, api: str, version: int, seconds: float) -> None:
        """Counts a request; `seconds` from its arrival to its answer."""
        found = self.by_api.get(api)
        if found is None:
            found = self.by_api[api] = RequestCounters()
        found.count += 1
        found.seconds += seconds
        found.recent.append(seconds)
        found.versions[version] = found.versions.get(version, 0) + 1
