"""Transactional client in Python for a program: a producer, and a member of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

from cordwood.model.errors import CordwoodError
from support.stock_clients.base import StockRecord

Isolation = Literal["read_committed", "read_uncommitted"]
#: How a transaction ends; one that is left open has all its records and offsets at the broker.
Ending = Literal["commit", "abort", "open"]
#: The value of a topic's last record.
LAST: Final = b"last"
#: The least that a broker allows: the members of a process that was killed leave after it.
SESSION_TIMEOUT_MS: Final = 6000
HEARTBEAT_MS: Final = 500


class FencedError(CordwoodError):
    """A newer producer has the transactional id."""


class Session(Protocol):
    """A producer with a transactional id, and a consumer of read_committed in a group."""

    def take(self, count: int, seconds_max: float) -> Sequence[Any]:
        """The client's next records of the group; joins it if this is not a member.

        Raises:
            StockClientError: they did not come in time.
        """

    def begin(self) -> None:
        """Begins a transaction."""

    def send(self, topic: str, records: Sequence[StockRecord]) -> None:
        """Writes to partition 0; returns when all are acknowledged."""

    def send_offsets(self, taken: Sequence[Any]) -> None:
        """Adds the offsets after what was taken to the transaction."""

    def commit(self) -> None:
        """Commits.

        Raises:
            FencedError: see there.
        """

    def abort(self) -> None:
        """Aborts; the next records are again those after the committed offsets."""

    def close(self) -> None:
        """Leaves the group; a transaction stays as it is."""


class Client(Protocol):
    """Makes sessions, and reads what they have written."""

    def open(self, transactional_id: str, source: str, group: str) -> Session:
        """A session whose producer is initialised: others with its id are fenced."""

    def told(self, taken: Any) -> StockRecord:
        """A record that was taken."""

    def read_all(self, topic: str, isolation: Isolation) -> list[StockRecord]:
        """The records of partition 0 up to the one with the value `LAST`."""
