"""`cordwood metadata-quorum`; that it prints what Kafka's tool does is in tests/compat."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from cordwood.client.errors import ClientError
from cordwood.client.quorum import QuorumFacts, QuorumReplica
from cordwood.model.uuids import ZERO_UUID
from cordwood.surfaces.cli.tools.metadata_quorum import relative_time
from cordwood.surfaces.cli.tools.tool import ToolError
from cordwood.testing.broker import RunningBroker

Run = Callable[..., Any]

NOW_MS = 1_700_000_000_000


def replica(replica_id: int, directory_id: UUID = ZERO_UUID) -> QuorumReplica:
    return QuorumReplica(replica_id, directory_id, 10, NOW_MS, NOW_MS)


def test_the_status_names_the_leader_and_the_only_voter(run: Run, broker: RunningBroker) -> None:
    said = run("metadata-quorum -B describe --status")
    assert (said.code, said.err) == (0, "")
    values = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert values["ClusterId:"] == broker.node.broker.cluster_id
    assert values["LeaderId:"] == "1"
    assert values["MaxFollowerLag:"] == values["MaxFollowerLagTimeMs:"] == "0"
    voter = r'\[{"id": 1, "directoryId": "[\w-]{22}", "endpoints": \["CONTROLLER://.*:\d+"\]}\]'
    assert re.fullmatch(voter, values["CurrentVoters:"])
    assert values["CurrentObservers:"] == "[]"


def test_the_json_of_the_status_has_the_same_fields(run: Run) -> None:
    document = json.loads(run("metadata-quorum -B describe --status --json").out)
    assert document["leaderId"] == 1
    assert document["currentVoters"][0]["id"] == 1
    assert document["currentObservers"] == []


def test_replication_has_a_row_for_each_replica(run: Run) -> None:
    said = run("metadata-quorum -B describe --replication --human-readable")
    header, row = said.out.splitlines()
    assert header.split() == [
        *("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp"),
        *("LastCaughtUpTimestamp", "Status"),
    ]
    assert re.search(r"^1 .*\t0 +\t\d+ ms ago +\t\d+ ms ago +\tLeader", row)


def test_what_changes_the_quorum_is_refused(run: Run) -> None:
    said = run("metadata-quorum -B remove-controller")
    assert said.code == 1
    assert said.err == "remove-controller is not served: use kafka-metadata-quorum\n"


def test_a_time_that_is_not_known_stays_so() -> None:
    assert relative_time(-1, NOW_MS, "last fetch") == -1
    assert relative_time(NOW_MS, None, "last fetch") == NOW_MS
    assert relative_time(NOW_MS - 5, NOW_MS, "last fetch") == "5 ms ago"


@pytest.mark.parametrize("time_ms", [NOW_MS + 1, 0, -2])
def test_a_time_in_the_future_or_before_the_epoch_is_an_error(time_ms: int) -> None:
    with pytest.raises(
        ToolError, match=f"possible drift(?s:.*), last fetch timestamp is {time_ms}"
    ):
        relative_time(time_ms, NOW_MS, "last fetch")


def test_a_leader_that_is_no_voter_is_an_error() -> None:
    facts = QuorumFacts(2, 1, 10, (replica(1),), (), {})
    with pytest.raises(ClientError):
        assert facts.leader
    assert facts._replace(leader_id=1).leader == replica(1)
