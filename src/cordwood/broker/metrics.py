"""What the broker counts while it serves; others read it when they are asked for metrics.

Source: org.apache.kafka.storage.log.metrics.BrokerTopicMetrics, kafka.network.RequestMetrics.
"""

from __future__ import annotations


class TopicCounters:
    """Totals since the start, of one topic or of all."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        self.total_produce_requests = 0
        self.total_fetch_requests = 0


class RequestCounters:
    """Requests of one API: how many, by version, and how long they took in all, in seconds."""

    __slots__ = ("count", "seconds", "versions")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.versions: dict[int, int] = {}


class BrokerMetrics:
    """Counters of requests by API, and of data by topic; `all_topics` is their sum."""

    def __init__(self) -> None:
        self.all_topics = TopicCounters()
        self.topics: dict[str, TopicCounters] = {}
        self.requests: dict[str, RequestCounters] = {}

    def topic(self, name: str) -> TopicCounters:
        """A topic's counters."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found

    def topic_deleted(self, name: str) -> None:
        """Forgets a topic."""
        self.topics.pop(name, None)

    def request_done(self, api: str, version: int, seconds: float) -> None:
        """A request was answered; `seconds` from its arrival to its answer."""
        found = self.requests.get(api)
        if found is None:
            found = self.requests[api] = RequestCounters()
        found.count += 1
        found.seconds += seconds
        found.versions[version] = found.versions.get(version, 0) + 1
