"""A transactional client in Python behind jobs in JSON: a line in, a line out.

The arguments are the client's name and the broker.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from support.stock_clients.base import READ_SECONDS_MAX, StockRecord, record_to_json
from support.stock_clients.sessions.aiokafka import AiokafkaTransactions
from support.stock_clients.sessions.base import Client, FencedError, Session
from support.stock_clients.sessions.confluent import ConfluentTransactions
from support.stock_clients.sessions.kafka_python import KafkaPythonTransactions

_CLIENTS: Final[Mapping[str, Callable[[str], Client]]] = {
    "confluent-kafka": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AiokafkaTransactions,
}


class Program:
    """The client and its sessions."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sessions: dict[str, Session] = {}

    def run(self, job: Mapping[str, Any]) -> Any:
        """Does a job; its answer."""
        match job["op"]:
            case "open_session":
                opened = self._client.open(job["transactionalId"], job["topic"], job["group"])
                self._sessions[job["session"]] = opened
            case "process":
                return self._process(self._sessions[job["session"]], job)
            case "finish":
                _end(self._sessions[job["session"]], job["end"])
            case "close_session":
                self._sessions.pop(job["session"]).close()
            case "read_all":
                read = self._client.read_all(job["topic"], job["isolation"])
                return [_told(record) for record in read]
            case other:
                raise ValueError(f"no such op: {other}")
        return None

    def _process(self, session: Session, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        taken = session.take(job["count"], READ_SECONDS_MAX)
        records = [self._client.told(each) for each in taken]
        session.begin()
        written = [each._replace(value=b"done " + (each.value or b"")) for each in records]
        session.send(job["topic"], written)
        session.send_offsets(taken)
        _end(session, job["end"])
        return [_told(record) for record in records]


def _end(session: Session, end: str) -> None:
    if end == "commit":
        session.commit()
    elif end == "abort":
        session.abort()


def _told(record: StockRecord) -> dict[str, Any]:
    place = {"offset": record.offset, "partition": record.partition}
    return {**record_to_json(record), **place}


def main() -> None:
    """Takes jobs until there are no more."""
    name, servers = sys.argv[1:]
    program = Program(_CLIENTS[name](servers))
    for line in sys.stdin:
        try:
            answer = {"ok": program.run(json.loads(line))}
        except Exception as error:  # the answer reports whatever a client raises
            kind = "fenced" if isinstance(error, FencedError) else "other"
            answer = {"error": kind, "message": traceback.format_exc()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
