"""Who appends to a log: it decides how much of an append is checked.

Source: org.apache.kafka.storage.internals.log.AppendOrigin.
"""

from __future__ import annotations

import enum


class AppendOrigin(enum.Enum):
    """Where records come from."""

    REPLICATION = "replication"
    """From the leader, or from disk: checked when they were first written."""
    COORDINATOR = "coordinator"
    """From a group or transaction coordinator: without sequences, with control records."""
    CLIENT = "client"
    """From a producer: everything is checked."""
    RAFT_LEADER = "raft leader"
    """From the leader of the metadata log, which gives out offsets itself."""
