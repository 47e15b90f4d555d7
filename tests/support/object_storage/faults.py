"""Faults of a `FaultProxy`: their kinds, and plans that choose them.

A plan is any function from a request to a fault. Which fault a request gets does not depend on
time: by its number, or by how many like it came before, a test with a seed repeats it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FaultKind(StrEnum):
    """Fate of a request, or of its answer."""

    PASS = "pass"  # noqa: S105  # no password
    """It is sent on, and answered."""
    SLOW_DOWN = "slow-down"
    """503 SlowDown; it does not reach the server."""
    CONFLICT = "conflict"
    """409 ConditionalRequestConflict; it does not reach the server."""
    INTERNAL_ERROR = "internal-error"
    """500 InternalError, though the server has carried it out."""
    NOT_SENT = "not-sent"
    """The connection breaks; it does not reach the server."""
    ANSWER_LOST = "answer-lost"
    """The connection breaks after the server has carried it out."""
    ANSWER_HALVED = "answer-halved"
    """The connection breaks in the middle of the answer's body, or of its head if it has none."""
    REPEATED = "repeated"
    """It reaches the server twice, one after the other; the second answer is given."""
    DELAYED = "delayed"
    """The connection breaks, and it reaches the server after later requests, unless none comes."""


FAULT_KINDS: Final = tuple(kind for kind in FaultKind if kind is not FaultKind.PASS)


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind, and its details."""

    kind: FaultKind
    is_reset: bool = False
    """How the connection breaks: by a TCP reset, else by an orderly close."""
    later_requests: int = 0
    """Of `DELAYED`: how many requests that come later are answered before it is sent on."""

    def __post_init__(self) -> None:
        assert (self.kind is FaultKind.DELAYED) == (self.later_requests > 0), self


PASS: Final = Fault(FaultKind.PASS)


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request that the proxy has got."""

    number: int
    """From 0, of all requests to the proxy."""
    method: str
    target: str
    """Path and query, as sent."""
    headers: Mapping[str, str]
    """With names in lower case."""

    @property
    def path(self) -> str:
        """The target without its query: `/bucket/key`, percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def is_conditional(self) -> bool:
        """Whether it changes an object only in a certain state: If-Match, If-None-Match."""
        return self.method in {"PUT", "POST"} and (
            "if-match" in self.headers or "if-none-match" in self.headers
        )


FaultPlan = Callable[[ProxiedRequest], Fault]
"""Chooses what happens to a request; called by one thread at a time."""


def no_faults(request: ProxiedRequest) -> Fault:
    """The plan in which every request is sent on."""
    del request
    return PASS


class FaultScript:
    """The plan in which the first requests of a kind get the faults of a list, and all others none.

    `left` has those that no request has got yet.
    """

    def __init__(
        self, *faults: Fault, of: Callable[[ProxiedRequest], bool] = lambda _: True
    ) -> None:
        """Nothing has come yet.

        Args:
            faults: of the first request that `of` selects, of the second, and so on.
            of: whether a request takes the next fault.
        """
        self.left = list(faults)
        self._of = of

    def __call__(self, request: ProxiedRequest) -> Fault:
        """The next fault, or none."""
        return self.left.pop(0) if self.left and self._of(request) else PASS


class RandomFaults:
    """The plan in which requests get faults at random, from a seed.

    The n-th request of a method for a target gets the same fault with the same seed, in whatever
    order requests for other targets come: threads of a client do not change what happens.
    """

    def __init__(
        self,
        seed: int,
        *,
        share: float = 0.2,
        kinds: Sequence[FaultKind] = FAULT_KINDS,
        in_a_row_max: int = 4,
        later_requests_max: int = 5,
    ) -> None:
        """Nothing has come yet.

        Args:
            seed: of all that is drawn.
            share: of the requests that get a fault.
            kinds: what is drawn from, all alike; a request that reads gets no conflict.
            in_a_row_max: after so many faults a method and target get a request passed: a client
                that tries more often than that succeeds.
            later_requests_max: of a delayed request.
        """
        self._seed = seed
        self._share = share
        self._kinds = kinds
        self._in_a_row_max = in_a_row_max
        self._later_requests_max = later_requests_max
        self._seen: Counter[tuple[str, str]] = Counter()
        self._in_a_row: Counter[tuple[str, str]] = Counter()

    def __call__(self, request: ProxiedRequest) -> Fault:
        """The fault that is drawn for this occurrence of the method and target."""
        name = (request.method, request.target)
        drawn = random.Random(f"{self._seed} {name} {self._seen[name]}")  # noqa: S311
        self._seen[name] += 1
        if self._in_a_row[name] >= self._in_a_row_max or drawn.random() >= self._share:
            self._in_a_row[name] = 0
            return PASS
        self._in_a_row[name] += 1
        # A store answers 409 to what writes.
        is_read = request.method in {"GET", "HEAD"}
        kinds = [each for each in self._kinds if not (is_read and each is FaultKind.CONFLICT)]
        kind = drawn.choice(kinds)
        later = drawn.randint(1, self._later_requests_max) if kind is FaultKind.DELAYED else 0
        return Fault(kind, is_reset=drawn.random() < 0.5, later_requests=later)
