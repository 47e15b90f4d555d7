"""A running broker's HTTP endpoint, and what a scrape of it says."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from cordwood.surfaces.http.endpoint import HttpEndpoint, listen
from cordwood.surfaces.http.observed import ObservedBroker
from cordwood.surfaces.http.server import RequestLimits
from cordwood.testing.broker import RunningBroker

_ANSWER_S = 60.0


class HttpAnswer(NamedTuple):
    """Answer of an endpoint."""

    status: int
    text: str
    content_type: str
    retry_after_s: str | None


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for each in self.families.values() for sample in each.samples]

    @property
    def names(self) -> set[str]:
        """The names of all samples."""
        return {sample.name for sample in self._samples}

    def value(self, name: str, **labels: str) -> float:
        """The value with exactly these labels."""
        found = self.find(name, **labels)
        assert found is not None, f"no {name} with {labels}"
        return found

    def find(self, name: str, **labels: str) -> float | None:
        """The value with exactly these labels; None if there is none."""
        for sample in self._samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
        return None

    def labels(self, name: str) -> list[Mapping[str, str]]:
        """The labels of all values of a metric."""
        return [sample.labels for sample in self._samples if sample.name == name]


class Probe:
    """Asks an endpoint."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self.endpoint = endpoint
        self.url = endpoint.url

    def ask(
        self,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpAnswer:
        """One request, on a connection of its own."""
        port = self.endpoint.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
        try:
            given = {"Content-Type": "application/json"} if method == "POST" else {}
            connection.request(method, path, body, given | dict(headers or {}))
            response = connection.getresponse()
            kind = response.headers.get("Content-Type", "")
            again_s = response.headers.get("Retry-After")
            return HttpAnswer(response.status, response.read().decode(), kind, again_s)
        finally:
            connection.close()

    def scrape(self) -> Scrape:
        """Parses `GET /metrics`."""
        answer = self.ask("/metrics")
        assert answer.status == 200, answer.text
        return Scrape(answer.text)


@contextmanager
def probed(broker: RunningBroker, *, limits: RequestLimits | None = None) -> Iterator[Probe]:
    """An endpoint of a running broker, at a free port."""
    endpoint = HttpEndpoint(ObservedBroker(broker.node), listen(0), limits=limits)
    try:
        yield Probe(endpoint)
    finally:
        endpoint.close()


@contextmanager
def standing_still(broker: RunningBroker) -> Iterator[None]:
    """A broker whose event loop does nothing until the block ends."""
    go_on, is_stopped = threading.Event(), threading.Event()

    def stand_still() -> None:
        is_stopped.set()
        assert go_on.wait(_ANSWER_S)

    broker.broker.thread.call_soon(stand_still)
    assert is_stopped.wait(_ANSWER_S)
    try:
        yield
    finally:
        go_on.set()
