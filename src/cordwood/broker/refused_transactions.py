"""The answer to clients that use transactions, which are not supported, and its log line.

The answer is TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the only error of FindCoordinator after which
every stock client gives up immediately. librdkafka retries any other until it times out.
"""

from __future__ import annotations

import logging
from typing import Final

from cordwood.model.kafka_errors import TransactionalIdAuthorizationError

_log = logging.getLogger(__name__)

_LOGGED_MAX: Final = 1_000
_SHOWN_CHARACTERS_MAX: Final = 249
REFUSAL: Final = (
    "Transactions are not supported by this broker: use a producer without transactional.id"
)


class RefusedTransactions:
    """The refused transactional ids; each is logged once, and at most 1,000 of them."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def refuse(
        self, transactional_id: str, *, client_id: str | None, client_host: str
    ) -> TransactionalIdAuthorizationError:
        """The error for a client's transactional id."""
        shown = transactional_id[:_SHOWN_CHARACTERS_MAX]
        if shown not in self._logged and len(self._logged) < _LOGGED_MAX:
            self._logged.add(shown)
            _log.warning(
                "Refusing transactional id %r of client %s at %s. %s.",
                shown,
                client_id,
                client_host,
                REFUSAL,
            )
            if len(self._logged) == _LOGGED_MAX:
                _log.warning("Further refused transactional ids are not logged")
        return TransactionalIdAuthorizationError(REFUSAL)
