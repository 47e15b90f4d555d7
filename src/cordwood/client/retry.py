"""Error codes that do not end a call, and the actions that follow them, as in Kafka's clients.

`RULES` has a row for each request that the client sends. A code without an action is an error of
the call. `ClusterClient` sends a request again where the row says that it does; else the caller
does, since another node may have to be asked or the request has to be another one.

Source: org.apache.kafka.clients.admin.internals (the handlers), KafkaAdminClient,
producer.internals.Sender and TransactionManager, consumer.internals.AbstractCoordinator,
ConsumerCoordinator and FetchCollector; org.apache.kafka.common.errors.RetriableException.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cordwood.model.error_codes import ErrorCode


class Action(Enum):
    """The action after an error code; the value is the word in docs/design/client.md."""

    AGAIN = "again"
    METADATA = "new metadata"
    COORDINATOR = "new coordinator"
    REJOIN = "rejoin"
    REJOIN_AS_NEW = "rejoin as new"
    DIVIDE = "divide the batch"
    NEW_EPOCH = "new epoch"
    DELIVERED = "delivered"
    RESET = "reset the position"


class Backoff:
    """The times between attempts: the first one, then twice the last, up to a maximum.

    Differs: Kafka adds a random part of up to a fifth, for many clients that begin together.
    Source: org.apache.kafka.common.utils.ExponentialBackoff.
    """

    def __init__(self, *, first_ms: int, max_ms: int) -> None:
        self._next_ms = min(first_ms, max_ms)
        self._max_ms = max_ms

    def next_s(self) -> float:
        """The time before the next attempt, in seconds."""
        found = self._next_ms / 1000
        self._next_ms = min(self._next_ms * 2, self._max_ms)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """Row of the table of actions: a request's actions after error codes.

    `places` are the paths to the error codes in its answer. `by_client` is true if
    `ClusterClient` sends the request again for `AGAIN` and `COORDINATOR`.
    """

    actions: Mapping[ErrorCode, Action]
    places: tuple[str, ...] = ("error_code",)
    by_client: bool = True


INVALID_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Codes whose exceptions extend Kafka's InvalidMetadataException."""

_BY_CLASS: Mapping[ErrorCode, Action] = {
    code: Action.METADATA if code in INVALID_METADATA else Action.AGAIN
    for code in ErrorCode
    if code.is_retriable
}
"""Every retriable code: with new metadata if the client's is out of date."""

_AT_LEADER: Mapping[ErrorCode, Action] = dict.fromkeys(_BY_CLASS, Action.METADATA)
"""Every retriable code, for requests before each of which the client looks for the leader."""

_AGAIN: Mapping[ErrorCode, Action] = dict.fromkeys(_BY_CLASS, Action.AGAIN)
_NO_RETRY: Mapping[ErrorCode, Action] = {}
_COORDINATED: Mapping[ErrorCode, Action] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Action.AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Action.COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Action.COORDINATOR,
}
_MEMBER: Mapping[ErrorCode, Action] = {
    **_COORDINATED,
    ErrorCode.REBALANCE_IN_PROGRESS: Action.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Action.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Action.REJOIN_AS_NEW,
}
_CONTROLLED: Mapping[ErrorCode, Action] = {ErrorCode.NOT_CONTROLLER: Action.AGAIN}
_TOPICS_CHANGED: Mapping[ErrorCode, Action] = {
    **_CONTROLLED,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Action.AGAIN,
}
_LISTED: Mapping[ErrorCode, Action] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Action.AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Action.AGAIN,
}
_PARTITIONS = ("topics.partitions.error_code",)
_RESPONSES = ("responses.error_code",)
_RESULTS = ("results.error_code",)
_GROUPS = ("groups.error_code",)

RULES: Mapping[str, RetryRule] = {
    # ---- records
    "produce": RetryRule(
        actions={
            **_BY_CLASS,
            ErrorCode.MESSAGE_TOO_LARGE: Action.DIVIDE,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Action.NEW_EPOCH,
            ErrorCode.UNKNOWN_PRODUCER_ID: Action.NEW_EPOCH,
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Action.DELIVERED,
        },
        places=("responses.partition_responses.error_code",),
        by_client=False,
    ),
    "fetch": RetryRule(
        actions={
            **{
                code: follows
                for code, follows in _AT_LEADER.items()
                if code is not ErrorCode.CORRUPT_MESSAGE
            },
            ErrorCode.UNKNOWN_SERVER_ERROR: Action.METADATA,
            ErrorCode.OFFSET_OUT_OF_RANGE: Action.RESET,
        },
        places=("error_code", "responses.partitions.error_code"),
        by_client=False,
    ),
    "list_offsets": RetryRule(actions=_AT_LEADER, places=_PARTITIONS, by_client=False),
    "delete_records": RetryRule(actions=_AT_LEADER, places=_PARTITIONS, by_client=False),
    "describe_producers": RetryRule(
        actions={
            ErrorCode.NOT_LEADER_OR_FOLLOWER: Action.METADATA,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Action.METADATA,
        },
        places=_PARTITIONS,
        by_client=False,
    ),
    "write_txn_markers": RetryRule(
        actions=dict.fromkeys(
            (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.REPLICA_NOT_AVAILABLE,
                ErrorCode.BROKER_NOT_AVAILABLE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ),
            Action.METADATA,
        ),
        places=("markers.topics.partitions.error_code",),
        by_client=False,
    ),
    "metadata": RetryRule(
        actions=_AGAIN,
        places=("topics.error_code",),
        by_client=False,
    ),
    # ---- coordinators, and what they look after
    "find_coordinator": RetryRule(
        actions=_LISTED, places=("error_code", "coordinators.error_code")
    ),
    "init_producer_id": RetryRule(actions={**_AGAIN, **_COORDINATED}),
    "describe_transactions": RetryRule(
        actions=_COORDINATED, places=("transaction_states.error_code",)
    ),
    "list_transactions": RetryRule(
        actions={ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Action.AGAIN},
    ),
    "join_group": RetryRule(actions=_MEMBER),
    "sync_group": RetryRule(actions=_MEMBER),
    "heartbeat": RetryRule(actions=_MEMBER),
    "leave_group": RetryRule(actions=_NO_RETRY),
    "offset_commit": RetryRule(
        actions={
            **_MEMBER,
            ErrorCode.REQUEST_TIMED_OUT: Action.COORDINATOR,
        },
        places=_PARTITIONS,
    ),
    "offset_fetch": RetryRule(
        actions={
            **_AGAIN,
            **_COORDINATED,
        },
        # Partitions only have UNSTABLE_OFFSET_COMMIT, which this client does not ask for.
        places=("error_code", *_GROUPS),
    ),
    "offset_delete": RetryRule(actions=_COORDINATED),
    "consumer_group_describe": RetryRule(actions=_COORDINATED, places=_GROUPS),
    "describe_groups": RetryRule(actions=_COORDINATED, places=_GROUPS),
    "delete_groups": RetryRule(actions=_COORDINATED, places=_RESULTS),
    "list_groups": RetryRule(actions=_LISTED),
    # ---- topics and settings, which the active controller changes
    "create_topics": RetryRule(
        actions=_TOPICS_CHANGED, places=("topics.error_code",), by_client=False
    ),
    "delete_topics": RetryRule(actions=_TOPICS_CHANGED, places=_RESPONSES, by_client=False),
    "create_partitions": RetryRule(actions=_TOPICS_CHANGED, places=_RESULTS, by_client=False),
    "list_partition_reassignments": RetryRule(actions=_CONTROLLED),
    "incremental_alter_configs": RetryRule(actions=_CONTROLLED, places=_RESPONSES),
    "alter_client_quotas": RetryRule(actions=_CONTROLLED, places=("entries.error_code",)),
    "alter_user_scram_credentials": RetryRule(actions=_CONTROLLED, places=_RESULTS),
    "unregister_broker": RetryRule(actions={ErrorCode.REQUEST_TIMED_OUT: Action.AGAIN}),
    "unregister_controller": RetryRule(actions={ErrorCode.REQUEST_TIMED_OUT: Action.AGAIN}),
    "update_features": RetryRule(actions=_CONTROLLED),
    "describe_quorum": RetryRule(actions=_AGAIN, places=("error_code", *_PARTITIONS)),
    # ---- answered by any broker as it is
    "describe_cluster": RetryRule(actions=_NO_RETRY),
    "describe_configs": RetryRule(actions=_NO_RETRY, places=_RESULTS),
    "describe_client_quotas": RetryRule(actions=_NO_RETRY),
    "describe_log_dirs": RetryRule(actions=_NO_RETRY),
    "describe_user_scram_credentials": RetryRule(actions=_NO_RETRY),
    "describe_topic_partitions": RetryRule(actions=_NO_RETRY, places=("topics.error_code",)),
    "list_config_resources": RetryRule(actions=_NO_RETRY),
}
"""A row for each request; `tests/unit/client/test_retry.py` looks for those that have none."""


def action(api: str, code: int) -> Action | None:
    """The action after an error code in an answer; None for an error of the call."""
    return RULES[api].actions.get(ErrorCode.of(code))


def repeated(api: str, answer: Any) -> Action | None:
    """`COORDINATOR` or `AGAIN` if `ClusterClient` sends a request with that answer again."""
    rule = RULES.get(api)
    if rule is None or not rule.by_client:
        return None
    found = {rule.actions.get(ErrorCode.of(code)) for code in _codes(answer, rule.places)}
    return next((each for each in (Action.COORDINATOR, Action.AGAIN) if each in found), None)


def _codes(answer: Any, places: Iterable[str]) -> Iterator[int]:
    for place in places:
        for code in _values(answer, place.split(".")):
            if code:
                yield int(code)


def _values(value: Any, names: Sequence[str]) -> Iterator[Any]:
    if not names:
        yield value
        return
    found = getattr(value, names[0], None)
    if found is None:
        return
    for each in found if len(names) > 1 else (found,):
        yield from _values(each, names[1:])
