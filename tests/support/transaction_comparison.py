"""A script of transactional requests that a real Kafka and Cordwood answer in step.

Kafka sends the markers of a transaction when its end is answered. Before the next request the
script waits until no transaction is between its decision and its markers, at both brokers; so no
answer depends on how long that takes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cordwood.format.record_batch import iter_batches
from support.kafka import poll_until
from support.transaction_script import (
    BASE_MS,
    CLASSIC,
    CLASSIC_MEMBER,
    CONSUMER,
    CONSUMER_MEMBER,
    GENERATION,
    Request,
    TransactionScript,
)
from support.wire import API_KEYS, ConnectionClosedError, Plain, Wire, request_body

DIFFERENCES_MAX: Final = 5
_LATEST_OF_RECORDS_MS: Final = BASE_MS + 10**9
_SETTLE_S: Final = 60
_POLL_S: Final = 0.002
_SESSION_MS: Final = 1_800_000
_BLANK: Final = frozenset({"throttle_time_ms"})
_TIMES: Final = frozenset({"last_timestamp", "transaction_start_time_ms", "log_append_time_ms"})
#: Topics and partitions, which Kafka answers in the order of hash maps; clients go by their names.
_UNORDERED: Final = frozenset(
    {"responses", "partition_responses", "topics", "partitions", "markers"}
    | {"results_by_topic_v3_and_below", "results_by_partition", "topic_results"}
    | {"results_by_transaction"}
)
_PRODUCE: Final = "produce"


class Side:
    """A broker, and the id that it gave the member of the classic group."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._wire = Wire(port)
        self.member_id = ""

    def close(self) -> None:
        """Ends the connection."""
        self._wire.close()

    def join(self) -> None:
        """Has a member join the classic group, and one the consumer group."""
        joined = self._join("")
        assert joined["error_code"] == "member_id_required", joined
        self.member_id = joined["member_id"]
        joined = self._join(self.member_id)
        assert (joined["error_code"], joined["generation_id"]) == ("none", 1), joined
        member = {"group_id": CLASSIC, "generation_id": 1, "member_id": self.member_id}
        assignments = [{"member_id": self.member_id, "assignment": b""}]
        synced = self._wire.ask("sync_group", 4, {**member, "assignments": assignments})
        assert synced["error_code"] == "none", synced
        values = {
            "group_id": CONSUMER,
            "member_id": CONSUMER_MEMBER,
            "member_epoch": 0,
            "rebalance_timeout_ms": _SESSION_MS,
            "subscribed_topic_names": ["red"],
            "topic_partitions": [],
        }
        beaten = self._wire.ask("consumer_group_heartbeat", 1, values)
        assert (beaten["error_code"], beaten["member_epoch"]) == ("none", GENERATION[CONSUMER]), (
            beaten
        )

    def _join(self, member_id: str) -> Plain:
        values = {
            "group_id": CLASSIC,
            "session_timeout_ms": _SESSION_MS,
            "rebalance_timeout_ms": _SESSION_MS,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        return self._wire.ask("join_group", 6, values)

    def ask(self, request: Request) -> Plain:
        """The answer without what depends on the time and the place.

        That of a request with acks=0 says whether the broker has closed the connection.
        """
        values = self._own(request.values)
        if request.api == _PRODUCE and values["acks"] == 0:
            key = API_KEYS[_PRODUCE]
            self._wire.tell_raw(key, request.version, request_body(key, request.version, values))
            found: Plain = {"connection": "open" if self._is_open() else "closed"}
        else:
            try:
                found = self._wire.ask(request.api, request.version, values)
            except ConnectionClosedError:
                found = {"connection": "closed"}
        same = self._same(found)
        assert isinstance(same, dict)
        return same

    def _is_open(self) -> bool:
        try:
            self._wire.versions()
        except ConnectionClosedError:
            return False
        return True

    def _own(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._own(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._own(each) for each in value]
        return self.member_id if value == CLASSIC_MEMBER else value

    def _same(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: self._same_field(key, inner)
                for key, inner in value.items()
                if key not in _BLANK
            }
        return [self._same(each) for each in value] if isinstance(value, list) else value

    def _same_field(self, key: str, value: Any) -> Any:
        if key == "records" and value is not None:
            return batches_of(value)
        if key in _TIMES and value is not None and value > _LATEST_OF_RECORDS_MS:
            return "(now)"
        if key == "port" and value == self._port:
            return "(its port)"
        same = self._same(value)
        if key == "responses" and same and "partitions" in same[0]:
            # Fetch: the partitions of a topic do not all follow each other.
            same = [{**topic, "partitions": each} for topic in same for each in topic["partitions"]]
        return sorted(same, key=repr) if key in _UNORDERED and same else same

    def is_settled(self, transactional_ids: Sequence[str]) -> bool:
        """Whether none of the transactions waits for its markers."""
        asked = {"transactional_ids": list(transactional_ids)}
        found = self._wire.ask("describe_transactions", 0, asked)["transaction_states"]
        return not any(each["transaction_state"].startswith("Prepare") for each in found)


def batches_of(data: bytes) -> list[tuple[Any, ...]]:
    """Headers and records of batches; of control batches without times."""
    found = []
    for _, batch in iter_batches(data):
        header = batch.header  # type: ignore[union-attr]
        fixed = header._replace(crc=0)
        if header.base_timestamp > _LATEST_OF_RECORDS_MS:
            fixed = fixed._replace(base_timestamp=0, max_timestamp=0)
        records = [
            (each.offset, each.key, each.value, each.headers)
            for each in batch.iter_records()  # type: ignore[union-attr]
        ]
        found.append((*fixed, tuple(records)))
    return found


class Comparison:
    """A script that two brokers answer, and what they answer differently."""

    def __init__(self, sides: tuple[Side, Side], script: TransactionScript) -> None:
        self.differences: list[str] = []
        self.answered: Counter[str] = Counter()
        self._sides = sides
        self._script = script

    def move_to(self, sides: tuple[Side, Side]) -> None:
        """Continues with other brokers, which have the state of those before."""
        for new, old in zip(sides, reversed(self._sides), strict=True):
            new.member_id = old.member_id
            old.close()
        self._sides = sides

    def close(self) -> None:
        """Ends the connections."""
        for side in self._sides:
            side.close()

    def run(self, count: int) -> list[str]:
        """Asks so many times; the first differences, as text."""
        for number in range(count):
            request = self._script.draw()
            answers = [side.ask(request) for side in self._sides]
            for error in errors_of(answers[0]):
                self.answered[f"{request.api} {error}"] += 1
            if answers[0] != answers[1]:
                texts = "\n".join(f"  {each}" for each in answers)
                self.differences.append(
                    f"{number} {request.api} v{request.version} {_short(request.values)}\n{texts}"
                )
                if len(self.differences) >= DIFFERENCES_MAX:
                    break
            if request.learn is not None and "connection" not in answers[0]:
                request.learn(answers[0])
            self._settle(request)
        return self.differences

    def _settle(self, request: Request) -> None:
        """Waits until none of a request's transactions waits for its markers."""
        for name, side in zip(("Kafka", "Cordwood"), self._sides, strict=True):
            if request.settles:
                poll_until(
                    functools.partial(side.is_settled, request.settles),
                    timeout_s=_SETTLE_S,
                    what=f"{name} writes the markers after {request}",
                    interval_s=_POLL_S,
                )


def errors_of(answer: Any) -> list[str]:
    """The names of the errors in an answer, with "none"."""
    if isinstance(answer, list):
        return sorted({error for each in answer for error in errors_of(each)})
    if not isinstance(answer, Mapping):
        return []
    found = {str(answer[key]) for key in answer if key.endswith("error_code")}
    for value in answer.values():
        found.update(errors_of(value))
    return sorted(found)


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_short(each) for each in value]
    return [(*each[9:13],) for each in batches_of(value)] if isinstance(value, bytes) else value
